"""Loading models, and the files they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.ops.model_files import ModelFile, describe, find_in_folder, first_file, known_models, name_and_quant
from app.ops.prompts import conversation, sampling_of, title_of
from app.store.rows import MessageRow
from engine.api.events import Notice
from engine.api.values import ChatMessage, SamplingParams
from tests.app.ops.conftest import Bench
from tests.helpers.fake_engine import OUT_OF_MEMORY, Load


def test_a_loaded_model_is_remembered(bench: Bench, tmp_path: Path) -> None:
    path = tmp_path / "Tiny-1B.Q8_0.gguf"
    path.write_bytes(b"GGUF")
    bench.load("/other.gguf")
    bench.load(str(path))
    assert bench.settings.values.engine.last_model == str(path)
    assert bench.settings.values.engine.recent_models == (str(path), "/other.gguf")
    assert bench.models.models()[0].name == "Tiny 1B"
    assert bench.models.default_path() == str(path)


def test_a_load_that_fails_is_a_sentence(bench: Bench) -> None:
    bench.engine.load = (OUT_OF_MEMORY,)
    with bench.qtbot.waitSignal(bench.models.failed) as told:
        bench.models.load("/m.gguf")
    assert OUT_OF_MEMORY.message in told.args[0]
    assert bench.settings.values.engine.last_model == ""


def test_loading_can_be_stopped(bench: Bench) -> None:
    bench.engine.load = (Load(steps=100, step_s=1.0),)
    bench.models.load("/m.gguf")
    bench.qtbot.waitUntil(lambda: bench.bridge.state.kind == "loading")
    with bench.qtbot.waitSignal(bench.models.notice):
        bench.models.cancel_loading()
    assert bench.bridge.state.kind == "no_model"


def test_notices_of_the_engine_are_told(bench: Bench) -> None:
    with bench.qtbot.waitSignal(bench.models.notice) as told:
        bench.bridge.happened.emit(Notice(bench.bridge.new_id(), "Plain ChatML is used."))
    assert told.args == ["Plain ChatML is used."]


def test_unload(bench: Bench) -> None:
    bench.load()
    bench.models.unload()
    bench.qtbot.waitUntil(lambda: bench.bridge.state.kind == "no_model")


def test_folders_are_searched_in_the_background(bench: Bench, tmp_path: Path) -> None:
    folder = tmp_path / "models" / "deep"
    folder.mkdir(parents=True)
    for name in ("A-7B-Q4_K_M.gguf", "B-00001-of-00002.gguf", "B-00002-of-00002.gguf", "mmproj-x.gguf", "notes.txt"):
        (folder / name).write_bytes(b"12345")
    with bench.qtbot.waitSignal(bench.models.models_changed):
        bench.models.add_folder(str(tmp_path / "models"))
    found = {model.name: model for model in bench.models.models() if model.path.startswith(str(tmp_path))}
    assert (found["A 7B"].quant, found["A 7B"].bytes) == ("Q4_K_M", 5)
    assert (found["B"].bytes, Path(found["B"].path).name) == (10, "B-00001-of-00002.gguf")
    assert set(found) == {"A 7B", "B"}


def test_any_shard_and_the_folder_stand_for_one_model(bench: Bench, tmp_path: Path) -> None:
    parts = [tmp_path / f"B-Q8_0-0000{number}-of-00002.gguf" for number in (1, 2)]
    for part in parts:
        part.write_bytes(b"12345")
    (tmp_path / "mmproj-B.gguf").write_bytes(b"")
    assert [first_file(path) for path in (*parts, tmp_path)] == [parts[0]] * 3
    assert known_models([parts[1], tmp_path, parts[0]]) == (ModelFile(str(parts[0]), "B", "Q8_0", 10),)
    bench.models.load(str(tmp_path))
    bench.qtbot.waitUntil(lambda: bench.bridge.state.kind == "ready")
    assert bench.bridge.state.model is not None and bench.bridge.state.model.path == str(parts[0])


def test_a_folder_of_several_models_stands_for_itself(tmp_path: Path) -> None:
    for name in ("a.gguf", "b-00001-of-00002.gguf"):
        (tmp_path / name).write_bytes(b"")
    assert first_file(tmp_path) == tmp_path
    (tmp_path / "b-00001-of-00002.gguf").rename(tmp_path / "b-00002-of-00002.gguf")
    assert first_file(tmp_path / "b-00002-of-00002.gguf") == tmp_path / "b-00002-of-00002.gguf"


@pytest.mark.parametrize(
    ("stem", "expected"),
    [
        ("SmolLM2-135M-Instruct.Q4_1", ("SmolLM2 135M Instruct", "Q4_1")),
        ("DeepSeek-V3-UD-Q2_K_XL-00001-of-00005", ("DeepSeek V3", "UD-Q2_K_XL")),
        ("gpt-oss-20b-mxfp4", ("gpt oss 20b", "MXFP4")),
        ("model", ("model", "")),
        ("Q4_0", ("Q4 0", "")),
    ],
)
def test_names_of_files(stem: str, expected: tuple[str, str]) -> None:
    assert name_and_quant(stem) == expected


def test_a_file_that_is_gone_is_none(tmp_path: Path) -> None:
    assert describe(tmp_path / "gone.gguf") is None
    assert find_in_folder(tmp_path / "gone") == ()


def row(role: str, text: str) -> MessageRow:
    return MessageRow(1, 1, None, role, text, "done", 0.0)  # type: ignore[arg-type]


def test_conversation_joins_neighbours_and_leaves_empty_answers_out() -> None:
    rows = [row("user", "a"), row("assistant", ""), row("user", "b"), row("assistant", "c")]
    assert conversation("", rows) == (ChatMessage("user", "a\n\nb"), ChatMessage("assistant", "c"))
    assert conversation("S", [])[0].role == "system"


@pytest.mark.parametrize("text", ["", "[]", "3", '{"top_k": "many"}', '{"temperature": 99}', '{"unknown": 1}'])
def test_overrides_that_are_not_understood_are_left_out(text: str) -> None:
    assert sampling_of(SamplingParams(top_k=3), text) == SamplingParams(top_k=3)


@pytest.mark.parametrize(
    ("text", "title"),
    [("", "…"), ("\n\n  Hi   there \nmore", "Hi there"), ("word " * 30, "word " * 11 + "word…"), ("x" * 100, "x" * 60 + "…")],
)
def test_title_is_the_first_line_cut_at_a_word(text: str, title: str) -> None:
    assert title_of(text) == title
