"""Every option once: type, default, range, label and help. Validation, the TOML file and the preferences dialog follow from it.

Texts are English here and translated where they are shown (context `Settings`). No Qt.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from engine.api.values import RANGES, SamplingParams


@dataclass(frozen=True, slots=True)
class Note:
    """What the dialog needs to know of an option beyond its type. hidden: changed elsewhere, not in the dialog.

    reload: takes effect when the model is loaded again. choices: the texts of a Literal's values, in order.
    """

    label: str
    help: str = ""
    hidden: bool = False
    reload: bool = False
    choices: tuple[str, ...] = ()
    multiline: bool = False
    step: float = 1.0


def _note(label: str, help: str = "", **more: Any) -> Any:
    return Note(label=label, help=help, **more)


class Section(BaseModel):
    """A group of options; the name of its field in `Settings` is the name of its table in the file."""

    model_config = ConfigDict(frozen=True, extra="ignore", validate_default=True)


def _range(name: str) -> Any:
    low, high = RANGES[name]
    return Field(ge=low, le=high)


_DEFAULTS = SamplingParams()


class General(Section):
    """How the application looks and starts."""

    theme: Annotated[Literal["system", "dark", "light"], _note("Theme", choices=("As the system", "Dark", "Light"))] = "system"
    language: Annotated[Literal["en"], _note("Language", choices=("English",))] = "en"
    start_with_last_model: Annotated[
        bool, _note("Load the last model on start", "The model that was used last is loaded as soon as the window is open.")
    ] = True


class Chat(Section):
    """How chats are written and shown."""

    send_key: Annotated[
        Literal["enter", "ctrl_enter"],
        _note("Send with", "The other combination starts a new line.", choices=("Enter", "Ctrl+Enter")),
    ] = "enter"
    system_prompt: Annotated[
        str, Field(max_length=100_000), _note("System prompt", "Given to the model in every new chat.", multiline=True)
    ] = ""
    show_list: Annotated[bool, _note("Show the list of chats", hidden=True)] = True
    side_panel: Annotated[bool, _note("Show the side panel", "Decode speed, cards, processors, memory beside the chat.")] = True


class Sampling(Section):
    """How the next token is chosen, unless a chat says otherwise."""

    temperature: Annotated[
        float,
        _range("temperature"),
        _note("Temperature", "Higher is more varied; 0 always takes the likeliest token.", step=0.05),
    ] = _DEFAULTS.temperature
    top_k: Annotated[int, _range("top_k"), _note("Top-k", "Only the k likeliest tokens; 0 is off.")] = _DEFAULTS.top_k
    top_p: Annotated[
        float, _range("top_p"), _note("Top-p", "Only the likeliest tokens that together reach this share; 1 is off.", step=0.01)
    ] = _DEFAULTS.top_p
    min_p: Annotated[
        float, _range("min_p"), _note("Min-p", "Only tokens at least this share as likely as the likeliest; 0 is off.", step=0.01)
    ] = _DEFAULTS.min_p
    repetition_penalty: Annotated[
        float, _range("repetition_penalty"), _note("Repetition penalty", "Above 1 repeats less; 1 is off.", step=0.05)
    ] = _DEFAULTS.repetition_penalty
    presence_penalty: Annotated[
        float, _range("presence_penalty"), _note("Presence penalty", "Against tokens that occurred at all; 0 is off.", step=0.1)
    ] = _DEFAULTS.presence_penalty
    frequency_penalty: Annotated[
        float,
        _range("frequency_penalty"),
        _note("Frequency penalty", "Against tokens by how often they occurred; 0 is off.", step=0.1),
    ] = _DEFAULTS.frequency_penalty
    penalty_window: Annotated[
        int,
        _range("penalty_window"),
        _note("Penalty window", "How many tokens the penalties look back; -1 is the whole context."),
    ] = _DEFAULTS.penalty_window
    max_tokens: Annotated[
        int, _range("max_tokens"), _note("Longest answer", "In tokens; -1 until the model stops or the context is full.")
    ] = _DEFAULTS.max_tokens


class Engine(Section):
    """How models are loaded and run."""

    threads: Annotated[
        int, Field(ge=0, le=1024), _note("Threads", "0 takes one for each core that this process may use.", reload=True)
    ] = 0
    context: Annotated[
        int,
        Field(ge=0, le=10_000_000),
        _note("Context", "In tokens; 0 takes what the model was made for, at most 8192.", reload=True, step=1024),
    ] = 0
    prefill_chunk: Annotated[
        int, Field(ge=1, le=8192), _note("Prefill chunk", "Tokens of a prompt that are computed together.", reload=True, step=64)
    ] = 512
    k_type: Annotated[
        Literal["f16", "q8_0", "int8", "f32"],
        _note(
            "Cache type of keys",
            "q8_0 and int8 take half the memory of f16, f32 is exact and takes twice as much.",
            reload=True,
            choices=("f16", "q8_0", "int8", "f32"),
        ),
    ] = "f16"
    v_type: Annotated[
        Literal["f16", "q8_0", "int8", "f32"],
        _note(
            "Cache type of values",
            "q8_0 and int8 take half the memory of f16, f32 is exact and takes twice as much.",
            reload=True,
            choices=("f16", "q8_0", "int8", "f32"),
        ),
    ] = "f16"
    remember_placement: Annotated[
        bool,
        _note("Load with the last placement", "A model is put where it was applied last on this machine, instead of by itself."),
    ] = True
    last_model: Annotated[str, _note("Last model", hidden=True)] = ""
    recent_models: Annotated[tuple[str, ...], _note("Recent models", hidden=True)] = ()
    model_folders: Annotated[tuple[str, ...], _note("Folders with models", hidden=True)] = ()


MONITOR_PERIODS = (0.5, 1.0, 2.0, 5.0)
"""Seconds between readings that the Monitors page offers."""


class Monitors(Section):
    """What the monitors show and are told."""

    psu_watts: Annotated[
        int,
        Field(ge=0, le=20_000),
        _note(
            "Power supply", "In watts, as it says on its label; 0 where you do not know. Then nothing is said about it.", step=50
        ),
    ] = 0
    pinned: Annotated[tuple[str, ...], _note("Values in the side panel", hidden=True)] = ()
    span: Annotated[Literal["60", "300", "1800", "all"], _note("How far back the lines go", hidden=True)] = "300"
    period_s: Annotated[float, Field(ge=0.5, le=60), _note("Seconds between readings", hidden=True)] = 1.0


class Settings(BaseModel):
    """All options. The tables of the file are the fields of this class."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    general: Annotated[General, "General"] = General()
    chat: Annotated[Chat, "Chat"] = Chat()
    sampling: Annotated[Sampling, "Sampling"] = Sampling()
    engine: Annotated[Engine, "Engine"] = Engine()
    monitors: Annotated[Monitors, "Monitors"] = Monitors()

    def get(self, key: str) -> Any:
        """The value of an option, `section.name`. Raises KeyError for one that does not exist."""
        section, name = key.split(".", 1)
        if section not in type(self).model_fields or name not in section_type(section).model_fields:
            raise KeyError(key)
        return getattr(getattr(self, section), name)

    def sampling_params(self) -> SamplingParams:
        """The defaults of new chats, as the engine takes them."""
        return SamplingParams(**self.sampling.model_dump())


def section_type(section: str) -> type[Section]:
    """The class of a section."""
    found = Settings.model_fields[section].annotation
    assert isinstance(found, type) and issubclass(found, Section)
    return found


def section_title(section: str) -> str:
    """The heading of a section, untranslated."""
    return str(Settings.model_fields[section].metadata[0])


def note_of(key: str) -> Note:
    """The note of an option, `section.name`."""
    section, name = key.split(".", 1)
    return next(item for item in section_type(section).model_fields[name].metadata if isinstance(item, Note))


def option_keys(*, hidden: bool = True) -> tuple[str, ...]:
    """All options in order, `section.name`; without the hidden ones when asked."""
    keys = [f"{section}.{name}" for section in Settings.model_fields for name in section_type(section).model_fields]
    return tuple(key for key in keys if hidden or not note_of(key).hidden)
