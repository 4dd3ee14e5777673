"""Flags of llama.cpp and ik_llama.cpp as ordered rules about where a model lies: parsed from a command line and kept word by
word.

What they mean is in llama.cpp's `common/arg.cpp` and `tools/server/README.md`: overrides of tensors (`-ot`, `-cmoe`, `-ncmoe`,
`-ncffn`) form one list in the order of the command line, of which the first that matches counts; of all other flags the last
one. Flags about other things are in `flag_settings`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from engine.errors import PlacementError
from engine.placement.flag_settings import IK_ONLY, MOOT, OPTIONAL, SETTINGS, settings_of
from engine.placement.patterns import compile_pattern
from engine.placement.settings import Settings

LlamaTool = Literal["llama.cpp", "ik"]
MAX_TEXT = 1 << 20
"""Characters of a command line; real ones have a few thousand."""
MAX_DEVICES = 64
"""More shares are a mistake; usual builds of llama.cpp take 15."""

_EXPERTS = r"\.ffn_(up|down|gate|gate_up)_(ch|)exps"
_DENSE = r"\.ffn_(up|down|gate)\."


@dataclass(frozen=True, slots=True)
class Override:
    """Tensors in whose name `pattern` is found lie on `device`; with `below`, only those of layers 0 to below - 1."""

    pattern: str
    device: str
    below: int | None = None
    _compiled: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        text = self.pattern if self.below is None else rf"blk\.(\d+){self.pattern}"
        object.__setattr__(self, "_compiled", compile_pattern(text))

    def matches(self, name: str) -> bool:
        """Whether the rule is about the tensor `name`."""
        found = self._compiled.search(name)
        return found is not None and (self.below is None or int(found[1]) < self.below)


@dataclass(frozen=True, slots=True)
class LlamaFlags:
    """What a command line says about places.

    words: those that mean something here, unchanged. n_gpu_layers None: as many as there are. tensor_split: shares of the GPUs in
    order, (): by their free memory. single: only main_gpu. devices: the GPUs in order, None: all. unsupported: what means nothing
    here and would change places or results, one sentence each. moot: what need not be said here, likewise. settings: what is said
    beside places. ignored: words about other things. tool: whose rules they are.
    """

    words: tuple[str, ...] = ()
    n_gpu_layers: int | None = None
    overrides: tuple[Override, ...] = ()
    tensor_split: tuple[float, ...] = ()
    single: bool = False
    main_gpu: int = 0
    devices: tuple[str, ...] | None = None
    kv_offload: bool = True
    k_type: str | None = None
    v_type: str | None = None
    unsupported: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    moot: tuple[str, ...] = ()
    settings: Settings = field(default_factory=Settings)
    tool: LlamaTool = "llama.cpp"


@dataclass(slots=True)
class _Reading:
    """A command line being read: the values so far."""

    values: dict[str, object] = field(default_factory=dict)
    overrides: list[Override] = field(default_factory=list)
    unsupported: list[str] = field(default_factory=list)


def parse_flags(text: str, tool: LlamaTool | None = None) -> LlamaFlags:
    """The rules of a command line, with or without the program before its flags. tool None: told by the flags.

    Raises:
        PlacementError: a value that is missing or means nothing; one sentence.
    """
    return parse_words(split_words(text), tool)


def split_words(text: str) -> list[str]:
    """A command line in words, as a shell would give them, where nothing is expanded. Raises: PlacementError."""
    if len(text) > MAX_TEXT:
        raise PlacementError(f"the flags have {len(text)} characters; a command line has at most {MAX_TEXT}")
    try:
        return shlex.split(re.sub(r"[\\^]\r?\n", " ", text))
    except ValueError as error:
        raise PlacementError(f"the flags cannot be read: {str(error).lower()}; close every quotation mark") from error


def parse_words(words: Sequence[str], tool: LlamaTool | None = None) -> LlamaFlags:
    """The rules of a command line in words, as a shell would give it. Raises: see `parse_flags`."""
    reading = _Reading()
    kept: list[str] = []
    ignored: list[str] = []
    moot: dict[str, str] = {}
    said: list[tuple[str, str]] = []
    at = next((i for i, word in enumerate(words) if word.startswith("-")), len(words))
    while at < len(words):
        word = words[at]
        flag = word.replace("_", "-") if word.startswith("--") else word
        end = at + 1
        if flag in _WITH_VALUE or flag in SETTINGS:
            if end == len(words):
                what = _WITH_VALUE[flag][1] if flag in _WITH_VALUE else SETTINGS[flag]
                raise PlacementError(f"{word} has no value; it takes {what}")
            if flag in _WITH_VALUE:
                _WITH_VALUE[flag][0](reading, flag, words[end])
            else:
                said.append((flag, words[end]))
            end += 1
        elif flag in _ALONE:
            _ALONE[flag](reading, flag)
        elif (
            flag in OPTIONAL and end < len(words) and words[end].lower() in ("on", "off", "auto", "0", "1", "enabled", "disabled")
        ):
            end += 1
        elif flag not in OPTIONAL:
            while end < len(words) and not _is_flag(words[end]):
                end += 1
        here = words[at:end]
        if flag in _NOT_HERE:
            reading.unsupported.append(f"{' '.join(here)[:200]}: {_NOT_HERE[flag]}")
        elif flag in MOOT:
            moot.setdefault(flag, f"{' '.join(here)[:80]}: {MOOT[flag]}")
        known = flag in _WITH_VALUE or flag in SETTINGS or flag in _ALONE or flag in _NOT_HERE or flag in MOOT
        (kept if known else ignored).extend(here)
        at = end
    settings, notes = settings_of(said)
    return LlamaFlags(
        words=tuple(kept),
        overrides=tuple(reading.overrides),
        unsupported=tuple(reading.unsupported),
        ignored=tuple(ignored),
        moot=(*moot.values(), *notes),
        settings=settings,
        tool=tool or _tool_of(words),
        **reading.values,  # type: ignore[arg-type]
    )


def _tool_of(words: Sequence[str]) -> LlamaTool:
    """Whose flags they are: some are of ik_llama.cpp alone, and the path of its programs may name it."""
    program = words[0] if words and not words[0].startswith("-") else ""
    return "ik" if "ik_llama" in program or not IK_ONLY.isdisjoint(words) else "llama.cpp"


def _is_flag(word: str) -> bool:
    return re.match(r"-[^\d\s.]", word) is not None


def _layers(reading: _Reading, flag: str, value: str) -> None:
    if value == "auto":
        reading.unsupported.append(f"{flag} auto: llama.cpp measures how many layers fit; here all of them are meant")
    number = -1 if value in ("auto", "all") else _number(flag, value, "a number of layers, all or auto")
    reading.values["n_gpu_layers"] = None if number < 0 else number


def _override(reading: _Reading, flag: str, value: str) -> None:
    for piece in value.split(","):
        pattern, equals, device = piece.partition("=")
        if not equals:
            raise PlacementError(f"{flag} {piece[:80]!r} is not PATTERN=DEVICE; commas only stand between two of them")
        reading.overrides.append(Override(pattern, device))


def _split(reading: _Reading, flag: str, value: str) -> None:
    try:
        shares = tuple(float(one) for one in re.split(r"[,/]+", value))
    except ValueError as error:
        raise PlacementError(f"{flag} {value[:80]!r} is not a list of shares such as 3,1") from error
    if len(shares) > MAX_DEVICES or not all(0 <= one < 1e30 for one in shares):
        raise PlacementError(f"{flag} {value[:80]!r} is not a list of up to {MAX_DEVICES} shares, 0 or more each")
    reading.values["tensor_split"] = shares


def _mode(reading: _Reading, flag: str, value: str) -> None:
    if value not in ("none", "layer", "row", "tensor", "graph", "attn"):
        raise PlacementError(f"{flag} {value[:40]!r} is unknown; it takes none, layer, row or tensor")
    if value not in ("none", "layer"):
        reading.unsupported.append(f"{flag} {value}: a matrix lies whole on one device here, as with {flag} layer")
    reading.values["single"] = value == "none"


def _main(reading: _Reading, flag: str, value: str) -> None:
    reading.values["main_gpu"] = _number(flag, value, "the number of a GPU")


def _devices(reading: _Reading, flag: str, value: str) -> None:
    reading.values["devices"] = () if value == "none" else tuple(value.split(","))


def _cpu_experts(reading: _Reading, flag: str) -> None:
    reading.overrides.append(Override(_EXPERTS, "CPU"))


def _first_layers(pattern: str) -> Callable[[_Reading, str, str], None]:
    def read(reading: _Reading, flag: str, value: str) -> None:
        number = _number(flag, value, "a number of layers")
        if number < 0:
            raise PlacementError(f"{flag} {value} is negative; it takes a number of layers")
        if number:
            reading.overrides.append(Override(pattern, "CPU", number))

    return read


def _text(name: str) -> Callable[[_Reading, str, str], None]:
    def read(reading: _Reading, flag: str, value: str) -> None:
        reading.values[name] = value

    return read


def _cache_place(offload: bool) -> Callable[[_Reading, str], None]:
    def read(reading: _Reading, flag: str) -> None:
        reading.values["kv_offload"] = offload

    return read


def _number(flag: str, value: str, what: str) -> int:
    if re.fullmatch(r"[+-]?\d{1,9}", value.strip()) is None:
        raise PlacementError(f"{flag} {value[:40]!r} is not understood; it takes {what}")
    return int(value)


_VALUES: tuple[tuple[tuple[str, ...], Callable[[_Reading, str, str], None], str], ...] = (
    (("-ngl", "--gpu-layers", "--n-gpu-layers"), _layers, "a number of layers, all or auto"),
    (("-ot", "--override-tensor"), _override, "PATTERN=DEVICE,..."),
    (("-ts", "--tensor-split"), _split, "shares such as 3,1"),
    (("-sm", "--split-mode"), _mode, "none, layer, row or tensor"),
    (("-mg", "--main-gpu"), _main, "the number of a GPU"),
    (("-dev", "--device"), _devices, "names of devices, or none"),
    (("-ncmoe", "--n-cpu-moe"), _first_layers(_EXPERTS), "a number of layers"),
    (("-ncffn", "--n-cpu-ffn"), _first_layers(_DENSE), "a number of layers"),
    (("-ctk", "--cache-type-k"), _text("k_type"), "a type"),
    (("-ctv", "--cache-type-v"), _text("v_type"), "a type"),
)
_WITH_VALUE = {flag: (read, what) for flags, read, what in _VALUES for flag in flags}
_ALONE: dict[str, Callable[[_Reading, str], None]] = {
    "-cmoe": _cpu_experts,
    "--cpu-moe": _cpu_experts,
    "-nkvo": _cache_place(False),
    "--no-kv-offload": _cache_place(False),
    "-kvo": _cache_place(True),
    "--kv-offload": _cache_place(True),
}
_DRAFT = "there are no draft models here"
_NOT_HERE = {
    "--rpc": "other computers cannot be used",
    "--numa": "memory is not spread over nodes by this flag",
    **dict.fromkeys(("-fit", "--fit", "-fitt", "--fit-target", "-fitc", "--fit-ctx"), "nothing is moved until it fits"),
    **dict.fromkeys(("-ser", "--smart-expert-reduction"), "every expert that the router chooses is computed"),
    **dict.fromkeys(("--lora", "--lora-scaled", "--control-vector"), "models are run as they are"),
    "--moe-cache-mib": "experts in the slots of a GPU are named in a placement, by layer",
    **dict.fromkeys(
        ("-md", "--model-draft", "-ngld", "--gpu-layers-draft", "--n-gpu-layers-draft", "-devd", "--device-draft"), _DRAFT
    ),
    **dict.fromkeys(("-otd", "--override-tensor-draft", "-cmoed", "--cpu-moe-draft", "-ncmoed", "--n-cpu-moe-draft"), _DRAFT),
}
"""Flags about places that have no meaning here."""


def n_gpus_meant(flags: LlamaFlags) -> int:
    """How many GPUs a machine has for which the flags were written, at least."""
    if flags.devices == () or (flags.n_gpu_layers == 0 and not flags.overrides):
        return 0
    named = [rule.device for rule in flags.overrides] + list(flags.devices or ())
    numbers = [int(name.lstrip("CUDAROm")) for name in named if re.fullmatch(r"(?:CUDA|ROCm)\d{1,3}", name)]
    return max(1, len(flags.tensor_split), flags.main_gpu + 1, *(number + 1 for number in numbers))


def to_text(words: Sequence[str]) -> str:
    """Words as one would type them in a shell."""
    return shlex.join(words)
