"""What a file's header makes the engine say before it is loaded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from engine.arch.registry import build_spec
from engine.gguf.reader import read_gguf
from engine.service.loaded import model_info
from tests.helpers.gguf_builder import tiny_llama
from tests.helpers.golden_models import golden
from tests.helpers.requantise import requantised


def test_blocks_that_are_left_out_are_named() -> None:
    file = read_gguf(golden("glm4moe").path)
    assert model_info(file, build_spec(file), "m.gguf").warnings == ()
    more = replace(file, metadata={**file.metadata, "glm4moe.nextn_predict_layers": 1})
    info = model_info(more, build_spec(more), "m.gguf")
    assert info.n_layers == 2 and len(info.warnings) == 1
    assert info.warnings[0].startswith("1 block at the end of the file") and "will not be used" in info.warnings[0]


def test_formats_on_the_exact_path_are_named(tmp_path: Path) -> None:
    plain = tmp_path / "plain.gguf"
    plain.write_bytes(tiny_llama(n_embd=256, n_ff=256))
    path = requantised(plain, tmp_path / "slow.gguf", {"ffn": "TQ2_0"})
    file = read_gguf(path)
    assert model_info(file, build_spec(file), "slow.gguf").exact_formats == ("TQ2_0",)
    file = read_gguf(golden("glm4moe").path)
    assert model_info(file, build_spec(file), "m.gguf").exact_formats == ()
