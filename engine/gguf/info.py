"""What a GGUF file says, as frozen values: its shards, metadata and tensor table. Nothing here reads a file."""

from __future__ import annotations

import re
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from engine.errors import GgufError
from engine.gguf import keys

MetaArray: TypeAlias = "tuple[str, ...] | tuple[bool, ...] | array[int] | array[float]"
"""An array of metadata: strings and booleans as a tuple, numbers as `array.array`, whose typecode is the stored type's."""

MetaValue: TypeAlias = "bool | int | float | str | MetaArray"


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """What tells one version of a file from another; compared before each prompt."""

    dev: int
    ino: int
    size: int
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class ShardInfo:
    """One file of a model."""

    path: Path
    identity: FileIdentity


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor. shape: ne0 (contiguous) first, as in the file; offset: absolute in the shard's file."""

    name: str
    shape: tuple[int, ...]
    type_id: int
    type_name: str
    nbytes: int
    shard: int
    offset: int

    @property
    def n_elements(self) -> int:
        """Number of weights."""
        count = 1
        for n in self.shape:
            count *= n
        return count


@dataclass(frozen=True, slots=True)
class GgufFile:
    """A checked model file: every tensor lies inside its shard, aligned, and overlaps no other."""

    shards: tuple[ShardInfo, ...]
    metadata: Mapping[str, MetaValue]
    tensors: Mapping[str, TensorInfo]
    alignment: int
    version: int
    key_offsets: Mapping[str, int]
    """Byte offset of each key in the first shard, for messages."""

    @property
    def architecture(self) -> str:
        """`general.architecture`."""
        value = self.metadata[keys.ARCHITECTURE]
        assert isinstance(value, str)  # checked by the reader
        return value

    @property
    def file_bytes(self) -> int:
        """Size of all shards."""
        return sum(shard.identity.size for shard in self.shards)

    @property
    def path(self) -> Path:
        """The first shard."""
        return self.shards[0].path

    @property
    def name(self) -> str:
        """`general.name`, or the name of the file, without the number of its part."""
        name = self.metadata.get(keys.NAME)
        return name if isinstance(name, str) and name.strip() else _PART.sub("", self.path.stem)

    def error(self, key: str, problem: str, advice: str) -> GgufError:
        """A `GgufError` about a metadata key that says where it stands in the file."""
        return GgufError(f"{self.path.name}: {key} at byte {self.key_offsets.get(key, 0)}: {problem}; {advice}")


_PART = re.compile(r"-\d{5}-of-\d{5}$")
_LAYER = re.compile(r"blk\.(\d+)\.(.+)")
_FFN_PARTS = re.compile(r"ffn_|exp_probs|post_ffw|layer_output")
_EXPERTS = re.compile(r"ffn_(gate|up|down|gate_up)_exps\.")
_SHARED = re.compile(r"ffn_(gate|up|down|gate_inp)_shexp\.")
_FFN_NORM_FAMILIES = frozenset({"gpt-oss", "glm4moe", "qwen3next", "qwen35", "qwen35moe"})


def unit_of(name: str, architecture: str) -> str:
    """The unit that a tensor belongs to, by its name: `embed`, `head`, `mixer.<layer>`, `ffn.<layer>`, `experts.<layer>`
    or `shared.<layer>`."""
    match = _LAYER.fullmatch(name)
    if match is None:
        return "head" if name.startswith("output") else "embed"
    layer, part = match.groups()
    if _EXPERTS.match(part):
        return f"experts.{int(layer)}"
    if _SHARED.match(part):
        return f"shared.{int(layer)}"
    # In these families the norm after attention is the one before the feed-forward part.
    norms_ffn = part.startswith("post_attention_norm") and architecture in _FFN_NORM_FAMILIES
    return f"ffn.{int(layer)}" if norms_ffn or _FFN_PARTS.match(part) else f"mixer.{int(layer)}"
