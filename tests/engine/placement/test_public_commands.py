"""Command lines that people published, and the devices that llama.cpp's rules give each kind of tensor.

The expected places were worked out by another program, from `src/llama-model.cpp` and `src/llama-model-loader.cpp`; those of the
overrides agree with 16,000 lines of published logs ("buffer type overridden to"). GPUs are of one size. `more_commands.json` are
whole lines, most of ik_llama.cpp, worked out in the same way by a third program.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from engine.hardware.gpus import GpuInfo
from engine.placement.flags import LlamaFlags
from engine.placement.interchange.parsed import parse
from engine.placement.rules import tensor_map
from tests.helpers import tensor_names
from tests.helpers.models import GOLDEN

MODELS = {
    "deepseek": (tensor_names.deepseek(), 61),
    "qwen3-235b": (tensor_names.mixture(94), 94),
    "qwen3-30b": (tensor_names.mixture(48), 48),
    "gpt-oss-120b": (tensor_names.mixture(36), 36),
    "maverick": (tensor_names.alternating(), 48),
    "llama-70b": (tensor_names.dense(80), 80),
    "qwen3-32b": (tensor_names.dense(64), 64),
}
CASES: list[dict[str, Any]] = [
    case
    for name in ("llama_cpp_commands", "more_commands")
    for case in json.loads((GOLDEN / f"placement/{name}.json").read_text(encoding="utf-8"))
]
PARTS = {"exps": ("ffn_gate_exps", "ffn_up_exps", "ffn_down_exps")}


def layers_of(text: str) -> dict[int, str]:
    """The device of each layer in `CPU 0-2; CUDA0 3,7-9`."""
    found = {}
    for part in text.split("; "):
        device, ranges = part.split(" ")
        for one in ranges.split(","):
            first, _, last = one.partition("-")
            found |= dict.fromkeys(range(int(first), int(last or first) + 1), device)
    return found


def test_there_are_enough_of_them() -> None:
    assert len({case["command"] for case in CASES}) >= 60


@pytest.mark.parametrize("case", CASES, ids=[f"{i}-{case['model']}" for i, case in enumerate(CASES)])
def test_tensors_lie_where_the_tool_puts_them(case: dict[str, Any]) -> None:
    names, n_layers = MODELS[case["model"]]
    gpus = [GpuInfo(i, "card", 24 << 30, 24 << 30) for i in range(case["gpus"])]
    parsed = parse(case["command"])
    assert isinstance(parsed.rules, LlamaFlags)
    assert parsed.tool == case.get("tool", parsed.tool)
    found = tensor_map(parsed.rules, names, n_layers, gpus)
    assert found["output.weight"] == case["devices"]["output"]
    assert found["token_embd.weight"] == case["devices"].get("token_embd", "CPU")
    for part, text in case["devices"].items():
        if part in ("output", "token_embd"):
            continue
        for tensor in PARTS.get(part, (part,)):
            there = {
                int(match[1]): found[name] for name in names if (match := re.fullmatch(rf"blk\.(\d+)\.{tensor}\.weight", name))
            }
            assert there == layers_of(text), (part, case["source"])
