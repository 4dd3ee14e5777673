"""`layerdeck inspect`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.cli.main import main
from engine.gguf.types import TYPE_IDS
from tests.helpers.gguf_builder import build_gguf, tiny_llama, tiny_metadata
from tests.helpers.models import need_included_model


def inspect(path: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert main(["inspect", str(path), "--json"]) == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    result: dict[str, Any] = json.loads(out)
    return result


def test_object_has_the_promised_keys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(tiny_llama(quant="Q8_0", n_layers=3, tied=False))
    result = inspect(path, capsys)
    assert list(result) == [
        *("architecture", "name", "n_layers", "n_params", "file_bytes"),
        *("context_length", "quants", "tensors", "derived", "warnings"),
    ]
    assert (result["architecture"], result["name"], result["n_layers"], result["context_length"]) == ("llama", "tiny", 3, 256)
    assert result["file_bytes"] == path.stat().st_size
    assert len(result["tensors"]) == 3 + 3 * 9
    first = result["tensors"][0]
    assert first == {"name": "token_embd.weight", "type": "Q8_0", "shape": [64, 260], "bytes": 260 * 68, "unit": "embed"}
    n_params = 0
    for tensor in result["tensors"]:
        count = 1
        for n in tensor["shape"]:
            count *= n
        n_params += count
    assert result["n_params"] == n_params
    assert result["quants"] == {kind: sum(t["bytes"] for t in result["tensors"] if t["type"] == kind) for kind in ("Q8_0", "F32")}
    assert result["derived"] == [] and result["warnings"] == []
    assert {t["unit"] for t in result["tensors"]} == {"embed", "head", *(f"{u}.{i}" for u in ("mixer", "ffn") for i in range(3))}


def test_warnings_say_what_is_odd(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    metadata = tiny_metadata()
    del metadata["tokenizer.chat_template"]
    path = tmp_path / "v.gguf"
    path.write_bytes(build_gguf(metadata | {"llama.nextn_predict_layers": 1}))
    result = inspect(path, capsys)
    assert result["n_layers"] == 1
    assert len(result["warnings"]) == 3
    assert any("no chat template" in w for w in result["warnings"])


def test_exact_but_slow_formats_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "slow.gguf"
    tensors = [("a", (256, 1), TYPE_IDS["IQ2_XXS"], bytes(66)), ("b", (256, 1), TYPE_IDS["Q4_K"], bytes(144))]
    path.write_bytes(build_gguf(tiny_metadata(), tensors))
    assert "exact but slow formats, multiplied as f32: IQ2_XXS" in inspect(path, capsys)["warnings"]


def test_table_for_people(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(tiny_llama())
    assert main(["inspect", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["name", "tiny"]
    assert any(line.startswith("tensors") and "F16" in line for line in lines)


def test_hostile_template_is_refused_with_its_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "h.gguf"
    path.write_bytes(build_gguf(tiny_metadata() | {"tokenizer.chat_template": "{{ x.__class__ }}"}))
    assert main(["inspect", str(path)]) == 1
    assert "tokenizer.chat_template at byte" in capsys.readouterr().err


def test_included_model(capsys: pytest.CaptureFixture[str]) -> None:
    result = inspect(need_included_model(), capsys)
    assert (result["architecture"], result["n_layers"], len(result["tensors"])) == ("llama", 30, 272)
    assert set(result["quants"]) == {"Q4_1", "Q8_0", "F32"}
