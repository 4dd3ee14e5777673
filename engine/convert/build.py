"""A model in the making: its keys, and how each of its tensors comes from the checkpoint. Families fill it; nothing is read
yet."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.convert.config import Config
from engine.convert.safetensors import F32, Checkpoint
from engine.errors import ConversionError

CHUNK_VALUES = 16 << 20
"""Values of one tensor that are in memory at once, where it is read by rows."""

_AHEAD = r"(^|\.)mtp(\.|_block\.|_emb_norm\.|_hidden_norm\.|_linear_proj\.)|\.(eh_proj|enorm|hnorm|shared_head)\b"
_SKIPPED = (
    ("vision tensors", re.compile(r"(^|\.)(visual|vision_tower|vision_model|multi_modal_projector|embed_vision|audio_tower)\.")),
    ("tensors that predict several tokens", re.compile(_AHEAD)),
    ("", re.compile(r"rotary_emb\.inv_freq$|_scale_inv$|\.masked_bias$")),
)
"""What text does not pass; those without a name are not worth a word."""


@dataclass(frozen=True, slots=True)
class Made:
    """A tensor to come. shape: contiguous axis last; parts: its values in order, a piece of the first axis at a time, in f32, or
    bytes of blocks where type_name says of which."""

    name: str
    shape: tuple[int, ...]
    parts: Callable[[], Iterator[npt.NDArray[Any]]] = field(repr=False)
    type_name: str | None = None


class Model:
    """What a family fills."""

    def __init__(self, architecture: str, config: Config, checkpoint: Checkpoint) -> None:
        self.architecture = architecture
        self.config = config
        self.checkpoint = checkpoint
        self.metadata: dict[str, Any] = {}
        self.tensors: list[Made] = []
        self.notes: list[str] = []
        self._used: set[str] = set()
        self.prefix = self._find_prefix()

    def keys(self, **values: Any) -> None:
        """Adds keys of the architecture; `_` of the names stands as it is, `__` for a dot."""
        for name, value in values.items():
            self.metadata[f"{self.architecture}.{name.replace('__', '.')}"] = value

    def rows(self, name: str, source: str) -> None:
        """A tensor that is taken as it is, by rows."""
        entry = self._use(source)
        per_row = max(1, entry.n_elements // (entry.shape or (1,))[0])
        step = max(1, CHUNK_VALUES // per_row)

        def parts() -> Iterator[F32]:
            for start in range(0, entry.shape[0], step):
                yield self.checkpoint.read(source, start, start + step)

        self.tensors.append(Made(name, entry.shape, parts))

    def made(self, name: str, source: str, change: Callable[[F32], F32], shape: Sequence[int] | None = None) -> None:
        """A tensor that is read whole and changed. shape: of the result, where it is not that of the source."""
        entry = self._use(source)

        def parts() -> Iterator[F32]:
            yield change(self.checkpoint.read(source))

        self.tensors.append(Made(name, entry.shape if shape is None else tuple(shape), parts))

    def constant(self, name: str, values: F32) -> None:
        """A tensor that no checkpoint holds."""
        self.tensors.append(Made(name, values.shape, lambda: iter((values,))))

    def stack(self, name: str, sources: Sequence[str]) -> None:
        """One tensor of many of the same shape, such as the experts of a layer."""
        shapes = {self._use(source).shape for source in sources}
        if len(shapes) != 1:
            raise ConversionError(f"the tensors {sources[0]} to {sources[-1]} differ in shape; the model is damaged")
        self.tensors.append(
            Made(name, (len(sources), *shapes.pop()), lambda: (self.checkpoint.read(source) for source in sources))
        )

    def slices(self, name: str, source: str, change: Callable[[F32], F32], shape: Sequence[int]) -> None:
        """A tensor of many matrices, each changed by itself. change: one matrix of the source to one of the result."""
        entry = self._use(source)

        def parts() -> Iterator[F32]:
            for i in range(entry.shape[0]):
                yield change(self.checkpoint.read(source, i, i + 1)[0])

        self.tensors.append(Made(name, (entry.shape[0], *shape), parts))

    def blocks(self, name: str, type_name: str, sources: Sequence[str], shape: Sequence[int], make: Any) -> None:
        """A tensor that is quantised already: make(i) gives the bytes of its i-th matrix."""
        for source in sources:
            self._use(source)
        self.tensors.append(Made(name, tuple(shape), lambda: (make(i) for i in range(shape[0])), type_name))

    def renamed(self, layer: int, names: Mapping[str, str], changes: Mapping[str, Callable[[F32], F32]] | None = None) -> None:
        """Weights and biases of a layer that change only their names, and those that a function of the same shape changes."""
        for theirs, ours in names.items():
            for ending in (".weight", ".bias"):
                source = f"{self.at(layer)}{theirs}{ending}"
                if source not in self.checkpoint:
                    continue
                change = (changes or {}).get(ours)
                target = f"blk.{layer}.{ours}{ending}"
                if change is None:
                    self.rows(target, source)
                else:
                    self.made(target, source, change)

    def at(self, layer: int) -> str:
        """How the names of a layer's tensors begin in the checkpoint."""
        return f"{self.prefix}layers.{layer}."

    def finish(self) -> None:
        """Raises: ConversionError when the checkpoint holds tensors that the family does not know; notes what is left out."""
        left = [name for name in self.checkpoint.entries if name not in self._used]
        skipped: dict[str, int] = {}
        unknown = []
        for name in left:
            reason = self._why_skipped(name)
            if reason is None:
                unknown.append(name)
            else:
                skipped[reason] = skipped.get(reason, 0) + 1
        if unknown:
            shown = ", ".join(unknown[:3]) + (" ..." if len(unknown) > 3 else "")
            raise ConversionError(
                f"{len(unknown)} tensors are not known to the family {self.architecture} ({shown}); "
                "this is another kind of model than its config.json says"
            )
        self.notes += [f"{n} {reason} are left out" for reason, n in skipped.items() if reason]

    def _why_skipped(self, name: str) -> str | None:
        layer = re.match(re.escape(self.prefix) + r"layers\.(\d+)\.", name)
        if layer is not None and int(layer[1]) >= self.config.n_layers:
            return "tensors of layers that predict several tokens"
        if name.endswith("lm_head.weight"):
            return ""  # tied: the embedding is used
        return next((reason for reason, pattern in _SKIPPED if pattern.search(name)), None)

    def _use(self, source: str) -> Any:
        self._used.add(source)
        return self.checkpoint.entry(source)

    def _find_prefix(self) -> str:
        ending = "embed_tokens.weight"
        # The shortest name: layers that predict several tokens have embeddings of their own.
        found = min((name for name in self.checkpoint.entries if name.endswith(ending)), key=len, default=None)
        if found is None:
            raise ConversionError(f"no tensor is named *.{ending}; this checkpoint is not of a language model that is converted")
        return found.removesuffix(ending)


def plus_one(values: F32) -> F32:
    """Norm weights that are stored around zero."""
    return values + np.float32(1)
