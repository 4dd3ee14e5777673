"""Which cards would make room on a device that ran full, read from the engine's own sentence about it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from app.ops.placement_cards import Card, CardId
from engine.api.pure import Device, Gpu

_ASKED = re.compile(r"needs ([\d,]+) bytes on (?:gpu|GPU )(\d+)\b.*? and ([\d,]+) are free")
SPARE = 1.1
"""The allocator of a GPU rounds up."""
_FIRST = ("experts", "hot", "dense", "shared", "kv", "state", "attention", "recurrent", "router", "head")
"""What leaves a GPU with the least loss of speed, first."""


def missing_room(sentence: str) -> tuple[Gpu, int] | None:
    """(the device, bytes that are missing on it); None where the sentence speaks of something else."""
    found = _ASKED.search(sentence)
    if found is None:
        return None
    asked, free = (int(found[i].replace(",", "")) for i in (1, 3))
    return Gpu(int(found[2])), max(1, round((asked - free) * SPARE))


def cards_to_move(cards: Sequence[Card], device: Device, nbytes: int) -> tuple[CardId, ...]:
    """As few cards of the device as make that room; of a kind the last layers first. All there are where they do not suffice."""
    here = [card for card in cards if card.device == device and not card.pinned and card.family in _FIRST and card.nbytes]
    here.sort(key=lambda card: (_FIRST.index(card.family), -card.layer))
    chosen: list[CardId] = []
    for card in here:
        if nbytes <= 0:
            break
        chosen.append(card.id)
        nbytes -= card.nbytes
    return tuple(chosen)
