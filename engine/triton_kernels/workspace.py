"""Memory that kernels need for themselves between two launches: the same piece again and again, grown when it is too small."""

from __future__ import annotations

import math

from torch import Tensor

from engine.triton_kernels.kernels import Allocate


class Workspace:
    """Pieces by name. What was handed out stays where it is: graphs that were captured over it may run on."""

    def __init__(self, allocate: Allocate) -> None:
        self._allocate = allocate
        self._pieces: dict[tuple[str, str], list[Tensor]] = {}

    def of(self, name: str, shape: tuple[int, ...], dtype: str = "float32") -> Tensor:
        """A tensor that is free until `name` is asked for again; what is in it is whatever was left there.

        Raises:
            OutOfMemory: the device has no room for more.
        """
        pieces, size = self._pieces.setdefault((name, dtype), []), math.prod(shape)
        if not pieces or pieces[-1].numel() < size:
            pieces.append(self._allocate((size,), dtype))
        return pieces[-1][:size].view(shape)

    def zeros(self, name: str, size: int) -> Tensor:
        """int32 counters that begin at zero; whoever counts leaves zeros behind."""
        before = len(self._pieces.get((name, "int32"), ()))
        found = self.of(name, (size,), "int32")
        if len(self._pieces[name, "int32"]) > before:
            found.zero_()
        return found
