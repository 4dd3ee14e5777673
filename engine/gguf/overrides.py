"""Metadata that a user sets in place of what the file says, with a warning wherever the two differ: files are usually right,
and the recipes that people copy are not (a rope base of 10000 garbles a model that was trained with 10 million)."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import replace

from engine.errors import InvalidRequest
from engine.gguf import keys
from engine.gguf.info import GgufFile, MetaValue
from engine.gguf.rules import check_metadata

Scalar = bool | int | float | str
Override = tuple[str, Scalar]
"""A key, whole or without the architecture's name before it, and its value."""

_TYPES: dict[str, type[Scalar]] = {"int": int, "float": float, "bool": bool, "str": str}
_FIXED = (keys.ALIGNMENT, keys.SPLIT_NO, keys.SPLIT_COUNT, keys.SPLIT_TENSORS)
"""They say how the file is laid out."""
_COMMON = (
    *(keys.ROPE_FREQ_BASE, keys.ROPE_DIMENSIONS, keys.CONTEXT_LENGTH, keys.EXPERT_USED_COUNT, keys.RMS_EPSILON),
    *("rope.scaling.type", "rope.scaling.factor", "rope.scaling.original_context_length", "attention.scale"),
    "rope.scaling.yarn_truncate",
    *("attention.sliding_window", "final_logit_softcapping", "attention.q_lora_rank"),
)
"""Keys of architectures that files often leave out."""
_REALS = (keys.ROPE_FREQ_BASE, keys.RMS_EPSILON, "rope.scaling.factor", "attention.scale", "final_logit_softcapping")


def parse_override(text: str) -> Override:
    """`rope_freq_base=1000000`, `qwen3.rope.freq_base=float:1e6` as key and value.

    Raises: InvalidRequest for anything of another form.
    """
    key, equals, value = text.partition("=")
    if not equals or not key.strip() or not value.strip():
        raise InvalidRequest(f"{text!r} is no override; write KEY=VALUE, for example rope_freq_base=1000000")
    kind, colon, rest = value.partition(":")
    if colon and kind in _TYPES:
        found = _as(_TYPES[kind], rest)
        if found is None:
            raise InvalidRequest(f"{text!r}: {rest!r} is no {kind}; correct the value")
        return key.strip(), found
    guesses = (_as(kind, value) for kind in (bool, int, float))
    return key.strip(), next((guess for guess in guesses if guess is not None), value)


def override(file: GgufFile, wanted: Sequence[Override]) -> tuple[GgufFile, tuple[str, ...]]:
    """The file as if it said what is wanted, and a clause of warning for each value that the file contradicts.

    Raises: InvalidRequest for a key that the file does not have and no model reads, or a value of another type than the file's;
    GgufError for a value that is out of range.
    """
    if not wanted:
        return file, ()
    metadata: dict[str, MetaValue] = dict(file.metadata)
    warnings = []
    for name, value in wanted:
        key = whole_key(file, name)
        stored = file.metadata.get(key)
        metadata[key] = _converted(key, value, stored)
        if stored is None:
            warnings.append(f"the override of {key} ({_shown(metadata[key])}) adds what the file does not say")
        elif metadata[key] != stored:
            warnings.append(_contradiction(key, metadata[key], stored))
    changed = replace(file, metadata=metadata)
    check_metadata(changed)
    return changed, tuple(warnings)


def whole_key(file: GgufFile, name: str) -> str:
    """The whole key: as it is written, or that of the architecture whose words are the same.

    Raises: InvalidRequest for a key that the file does not have and no model reads.
    """
    if name in _FIXED or name == keys.ARCHITECTURE:
        raise InvalidRequest(f"{name} cannot be overridden: it says what the file is; leave it out")
    if name in file.metadata:
        return name
    prefix = f"{file.architecture}."
    words = _words(name.removeprefix(prefix))
    known = {_words(key.removeprefix(prefix)): key for key in file.metadata if key.startswith(prefix)}
    common = {_words(key): prefix + key for key in _COMMON}
    found = known.get(words) or common.get(words)
    if found is None and name.startswith("tokenizer."):
        return name
    if found is None:
        raise InvalidRequest(f"{name[:60]} is no key of this file; `inspect --json` and its metadata tell which there are")
    return found


def _words(key: str) -> str:
    return key.replace(".", "_").replace("-", "_")


def _converted(key: str, value: Scalar, stored: MetaValue | None) -> MetaValue:
    """The value in the type that the file has, or that the key is read as."""
    if isinstance(stored, array | tuple):
        raise InvalidRequest(f"{key} is a list in this file, which cannot be overridden; leave it out")
    if stored is None:
        return float(value) if key.endswith(_REALS) and isinstance(value, int) else value
    if isinstance(stored, float) and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) is not type(stored):
        kind = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}[type(stored)]
        raise InvalidRequest(f"{key} is {kind} in this file, not {_shown(value)}; correct the value")
    return value


def _contradiction(key: str, value: MetaValue, stored: MetaValue) -> str:
    text = f"the override of {key} ({_shown(value)}) contradicts the file ({_shown(stored)})"
    if ".rope." in key:
        return f"{text}: a model that turns its heads otherwise than it was trained repeats itself or writes garbage"
    return f"{text}: answers may be wrong"


def _shown(value: MetaValue) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:,}" if isinstance(value, int) else f"{value:,g}" if isinstance(value, float) else repr(value)[:60]


def _as(kind: type[Scalar], text: str) -> Scalar | None:
    text = text.strip()
    if kind is bool:
        return {"true": True, "false": False}.get(text.lower())
    try:
        return kind(text)
    except ValueError:
        return None
