"""What a model's bytes are spent on, by the names of its tensors alone: attention, experts, embeddings and so on; and the formats
they are stored in. Works for architectures that this version does not run, too."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from engine.gguf import keys
from engine.gguf.info import GgufFile, TensorInfo
from engine.gguf.types import EXACT_TYPES, FAST_TYPES

GROUPS = (
    *("embeddings", "attention", "DeltaNet", "feed-forward", "routers", "shared experts", "experts", "output"),
    *("extra layers", "vision", "other"),
)
"""In the order in which a token meets them; then what text does not pass."""

_LAYER = re.compile(r"blk\.(\d+)\.(.+)")
_PARTS = (
    ("shared experts", re.compile(r"ffn_\w+_shexp\b")),
    ("experts", re.compile(r"ffn_(gate|up|down|gate_up)_exps\b|ffn_(gate|up|down)\.\d+\.")),
    ("routers", re.compile(r"ffn_gate_inp\b|exp_probs")),
    ("feed-forward", re.compile(r"ffn_|post_ffw|layer_output")),
)
_OUTSIDE = (
    ("vision", re.compile(r"(v|mm|a)\.")),
    ("output", re.compile(r"output|cls")),
    ("embeddings", re.compile(r"token_|position_embd|per_layer|rope_|embed")),
)
_MIXER = re.compile(r"(attn_(q|k|v|qkv|gate|output|q_a|q_b|kv_a_mqa|kv_b|k_b|v_b)|ssm_(in|out|ba|alpha|beta))\.weight")
"""The matrices of attention and of gated DeltaNet, without norms and convolutions."""


@dataclass(frozen=True, slots=True)
class GroupTotal:
    """The tensors of one group, in numbers; types: bytes by type, the largest share first."""

    name: str
    n_tensors: int
    n_params: int
    nbytes: int
    types: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class FormatTotal:
    """The tensors of one type. path: `fast` kernels, the `exact` path (f32, several times slower), or `none`: not run."""

    name: str
    n_tensors: int
    nbytes: int
    bits_per_weight: float
    path: Literal["fast", "exact", "none"]


def layer_counts(file: GgufFile) -> tuple[int, int]:
    """Layers that text passes, and the extra ones behind them that predict further tokens. 0 where the file does not say."""
    blocks = file.metadata.get(keys.of(file.architecture, keys.BLOCK_COUNT), 0)
    extra = file.metadata.get(keys.of(file.architecture, keys.NEXTN_LAYERS), 0)
    assert isinstance(blocks, int) and isinstance(extra, int)  # checked by the reader
    return (blocks - extra, extra) if extra < blocks else (blocks, extra)


def group_totals(file: GgufFile) -> tuple[GroupTotal, ...]:
    """The groups that occur, in the order of `GROUPS`."""
    members: dict[str, list[TensorInfo]] = {}
    for info, group in grouped(file):
        members.setdefault(group, []).append(info)
    return tuple(_total(name, members[name]) for name in GROUPS if name in members)


def format_totals(file: GgufFile) -> tuple[FormatTotal, ...]:
    """The types that occur, the largest share of the bytes first."""
    members: dict[str, list[TensorInfo]] = {}
    for info in file.tensors.values():
        members.setdefault(info.type_name, []).append(info)
    totals = [
        FormatTotal(
            name=name,
            n_tensors=len(infos),
            nbytes=sum(info.nbytes for info in infos),
            bits_per_weight=8 * sum(info.nbytes for info in infos) / sum(info.n_elements for info in infos),
            path="exact" if name in EXACT_TYPES else "fast" if name in FAST_TYPES else "none",
        )
        for name, infos in members.items()
    ]
    return tuple(sorted(totals, key=lambda total: -total.nbytes))


def exact_formats(file: GgufFile) -> tuple[str, ...]:
    """The types that are multiplied exactly, as f32, and so several times slower; the largest share of the bytes first."""
    return tuple(total.name for total in format_totals(file) if total.path == "exact")


def grouped(file: GgufFile) -> Iterator[tuple[TensorInfo, str]]:
    """Every tensor with the name of its group."""
    n_layers, _ = layer_counts(file)
    split = [(info, _LAYER.fullmatch(info.name)) for info in file.tensors.values()]
    recurrent = {int(match[1]) for _, match in split if match is not None and match[2].startswith("ssm_")}
    for info, match in split:
        if match is None:
            yield info, next((group for group, pattern in _OUTSIDE if pattern.match(info.name)), "other")
        elif (n_layers and int(match[1]) >= n_layers) or match[2].startswith("nextn"):
            yield info, "extra layers"
        else:
            mixer = "DeltaNet" if int(match[1]) in recurrent else "attention"
            yield info, next((group for group, pattern in _PARTS if pattern.match(match[2])), mixer)


def mixer_matrices(file: GgufFile) -> Iterator[tuple[TensorInfo, str, int]]:
    """The matrices of attention and DeltaNet: tensor, group, layer."""
    for info, group in grouped(file):
        match = _LAYER.fullmatch(info.name)
        if match is not None and group in ("attention", "DeltaNet") and _MIXER.fullmatch(match[2]):
            yield info, group, int(match[1])


def _total(name: str, infos: list[TensorInfo]) -> GroupTotal:
    types: dict[str, int] = {}
    for info in infos:
        types[info.type_name] = types.get(info.type_name, 0) + info.nbytes
    return GroupTotal(
        name=name,
        n_tensors=len(infos),
        n_params=sum(info.n_elements for info in infos),
        nbytes=sum(types.values()),
        types=tuple(sorted(types.items(), key=lambda item: -item[1])),
    )
