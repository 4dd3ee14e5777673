"""Headers without files, for tests of model families."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass
class Tensor:
    """A tensor of which only the shape is known, ne0 first."""

    shape: tuple[int, ...]


@dataclass
class File:
    """Metadata and tensors, as families see them."""

    metadata: dict[str, Any]
    tensors: dict[str, Tensor]
