"""What was found to be fastest: kept by machine and model, forgotten, and used where nobody asked for anything else."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from engine.estimate.tuned import Tuned, forget_tuned, load_tuned, save_tuned, tuned_key, tuned_path, with_tuned
from engine.hardware.machine import NodeInfo, this_machine
from engine.placement.options import LoadOptions
from tests.helpers.described import described
from tests.helpers.golden_models import golden

FOUND = Tuned(6, 256, 12.5, 300.0)


def test_each_model_has_its_own_and_another_machine_has_none(tmp_path: Path) -> None:
    machine = this_machine()
    other = replace(machine, nodes=(NodeInfo(0, "other", 1 << 40, 1 << 40, 99),))
    save_tuned(FOUND, tmp_path / "new", machine, "a")
    save_tuned(replace(FOUND, n_threads=3), tmp_path / "new", machine, "b")
    assert [load_tuned(tmp_path / "new", machine, key) for key in "abc"] == [FOUND, replace(FOUND, n_threads=3), None]
    assert load_tuned(tmp_path / "new", other, "a") is None
    assert forget_tuned(tmp_path / "new", machine, "a") and not forget_tuned(tmp_path / "new", machine, "a")
    assert [load_tuned(tmp_path / "new", machine, key) for key in "ab"] == [None, replace(FOUND, n_threads=3)]


def test_the_key_tells_quants_and_hybrids_apart() -> None:
    spec = described(golden("qwen3moe").path).spec
    keys = {tuned_key(spec, 10, gpus=False), tuned_key(spec, 11, gpus=False), tuned_key(spec, 10, gpus=True)}
    assert len(keys) == 3


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        '{"layerdeck": "tuned", "version": 2}',
        "\x00",
        *(
            json.dumps({"models": {"a": one}})
            for one in ({}, {"n_threads": "x"}, {"n_threads": 0, "prefill_chunk": 1, "decode_tok_s": 1, "prefill_tok_s": 1})
        ),
    ],
)
def test_a_broken_file_is_as_good_as_none(tmp_path: Path, text: str) -> None:
    machine = this_machine()
    save_tuned(FOUND, tmp_path, machine, "a")
    path = tuned_path(tmp_path, machine)
    if text.startswith('{"models"'):  # in an otherwise good file
        text = json.dumps(json.loads(path.read_text()) | json.loads(text))
    path.write_text(text)
    assert load_tuned(tmp_path, machine, "a") is None
    save_tuned(FOUND, tmp_path, machine, "a")
    assert load_tuned(tmp_path, machine, "a") == FOUND


def test_what_somebody_asked_for_stays() -> None:
    free = LoadOptions(grow_chunk=True)
    assert with_tuned(free, None) == free
    assert with_tuned(free, FOUND) == replace(free, n_threads=6, prefill_chunk=256, grow_chunk=False)
    assert with_tuned(free, replace(FOUND, prefill_chunk=512)) == replace(free, n_threads=6)
    assert with_tuned(replace(free, n_threads=2), FOUND).n_threads == 2
    assert with_tuned(replace(free, n_threads=2, cores=(0, 1)), FOUND).cores == (0, 1)
    assert with_tuned(replace(free, grow_chunk=False), FOUND).prefill_chunk == 512
