"""The settings file: defaults, ranges, unknown keys, damage, and what a failed write leaves."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from app.errors import SettingsError
from app.settings.migrations import VERSION, upgraded
from app.settings.schema import Settings, note_of, option_keys, section_title, section_type
from app.settings.store import SettingsStore
from engine.api.values import SamplingParams


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "config" / "settings.toml"


def test_without_a_file_all_are_defaults_and_nothing_is_written(path: Path) -> None:
    store = SettingsStore(path)
    assert store.values == Settings()
    assert store.notices == []
    assert not path.exists()


def test_a_change_is_saved_and_comes_back(path: Path) -> None:
    store = SettingsStore(path)
    seen: list[tuple[str, Any]] = []
    store.listen(lambda key, value: seen.append((key, value)))
    store.set("sampling.temperature", 0.25)
    store.set("engine.recent_models", ("/models/ä b.gguf", "/x.gguf"))
    assert seen == [("sampling.temperature", 0.25), ("engine.recent_models", ("/models/ä b.gguf", "/x.gguf"))]
    again = SettingsStore(path)
    assert again.values.sampling.temperature == 0.25
    assert again.values.engine.recent_models == ("/models/ä b.gguf", "/x.gguf")
    assert again.values.sampling_params() == SamplingParams(temperature=0.25)
    again.reset("sampling.temperature")
    assert SettingsStore(path).values.sampling.temperature == 0.7


def test_a_value_out_of_range_is_refused_and_changes_nothing(path: Path) -> None:
    store = SettingsStore(path)
    for key, value in (
        ("sampling.temperature", 9.0),
        ("general.theme", "pink"),
        ("engine.threads", -1),
        ("engine.threads", "0-7,7"),
    ):
        with pytest.raises(ValidationError):
            store.set(key, value)
    assert store.values == Settings()
    assert not path.exists()


@pytest.mark.parametrize(
    ("written", "found"), [("4", "4"), ("0", ""), ('"0-7,16-23"', "0-7,16-23"), ('"x"', ""), ("true", ""), ("-3", "")]
)
def test_threads_are_a_number_or_a_list_and_files_of_before_hold_a_number(path: Path, written: str, found: str) -> None:
    path.parent.mkdir()
    path.write_text(f"[engine]\nthreads = {written}\n")
    store = SettingsStore(path)
    assert store.values.engine.threads == found
    assert bool(store.notices) == (written in ('"x"', "true", "-3"))


def test_unknown_keys_are_kept(path: Path) -> None:
    path.parent.mkdir()
    path.write_text('version = 7\nodd = 1\n[general]\ntheme = "dark"\nfuture = [1, 2]\n[server]\nport = 8000\n')
    store = SettingsStore(path)
    assert store.values.general.theme == "dark"
    store.set("general.theme", "light")
    assert tomllib.loads(path.read_text()) == {
        "version": 7,
        "odd": 1,
        "general": {"theme": "light", "future": [1, 2]},
        "server": {"port": 8000},
    }


def test_one_bad_value_costs_only_itself(path: Path) -> None:
    path.parent.mkdir()
    path.write_text('chat = 3\n[general]\ntheme = "pink"\nstart_with_last_model = false\n[sampling]\ntop_k = 7\ntop_p = 4.0\n')
    store = SettingsStore(path)
    assert (store.values.general.theme, store.values.general.start_with_last_model) == ("system", False)
    assert (store.values.sampling.top_k, store.values.sampling.top_p) == (7, 0.95)
    assert len(store.notices) == 2
    assert "general.theme = 'pink'" in store.notices[0]
    store.set("chat.side_panel", False)
    assert SettingsStore(path).values.chat.side_panel is False


@given(st.binary(max_size=300))
def test_any_bytes_are_read_without_a_crash(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("any") / "settings.toml"
    path.write_bytes(data)
    store = SettingsStore(path)
    store.set("general.theme", "dark")
    assert SettingsStore(path).values.general.theme == "dark"


def test_a_damaged_file_is_kept_aside(path: Path) -> None:
    path.parent.mkdir()
    path.write_text("[general\ntheme=")
    store = SettingsStore(path)
    assert store.values == Settings()
    kept = list(path.parent.glob("settings.damaged-*.toml"))
    assert [file.read_text() for file in kept] == ["[general\ntheme="]
    assert str(kept[0]) in store.notices[0]


def test_a_file_that_cannot_be_written_is_a_sentence_and_the_value_holds(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("a file where the folder should be")
    store = SettingsStore(tmp_path / "other" / "settings.toml")
    store.path = tmp_path / "config" / "settings.toml"
    with pytest.raises(SettingsError, match="could not be saved"):
        store.set("general.theme", "dark")
    assert store.values.general.theme == "dark"


def test_every_option_has_a_label_and_choices_that_fit() -> None:
    for key in option_keys():
        note = note_of(key)
        assert note.label
        if note.choices:
            section, name = key.split(".")
            assert len(get_args(section_type(section).model_fields[name].annotation)) == len(note.choices)
    assert "engine.last_model" not in option_keys(hidden=False)
    assert section_title("sampling") == "Sampling"
    with pytest.raises(KeyError):
        Settings().get("chat.nothing")


def test_upgraded_runs_each_step_once_and_leaves_newer_files_alone() -> None:
    steps = {1: lambda d: {**d, "one": True}, 2: lambda d: {**d, "two": d["one"]}}
    assert upgraded({}, steps, 3) == {"one": True, "two": True, "version": 3}
    assert upgraded({"version": 2, "one": 5}, steps, 3) == {"one": 5, "two": 5, "version": 3}
    assert upgraded({"version": 9, "x": 1}, steps, 3) == {"version": 9, "x": 1}
    assert upgraded({"version": "odd"})["version"] == VERSION
