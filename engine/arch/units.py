"""What can be moved: the smallest parts of a model that a placement gives a place."""

from __future__ import annotations

from typing import Literal, NamedTuple

UnitKind = Literal["embed", "mixer", "ffn", "experts", "shared", "head", "kv", "state"]


class UnitId(NamedTuple):
    """`embed` and `head` stand once (layer -1); the others once a layer.

    `mixer`: norm and attention; `kv`: its cache; `state`: that of a recurrent mixer, which has no cache; `ffn`: norm, router,
    dense FFN; `experts`: the experts of a layer that has them; `shared`: the expert that every row passes.

    A tuple because estimates look units up by the thousand while a card is dragged: five times as fast as a class of our own.
    """

    kind: UnitKind
    layer: int = -1

    def __str__(self) -> str:
        return self.kind if self.layer < 0 else f"{self.kind}.{self.layer}"
