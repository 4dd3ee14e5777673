"""What is dragged: cards by name in a MIME type of our own. What comes from elsewhere is checked, never trusted."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import get_args

from PySide6.QtCore import QByteArray, QMimeData

from app.ops.placement_cards import CardId, HotSet
from engine.api.pure import Gpu, UnitId, UnitKind

MIME = "application/x-layerdeck-cards+json"
MAX_BYTES = 1 << 20
_UNIT = re.compile(r"([a-z]+)(?:\.(\d{1,6}))?")
_HOT = re.compile(r"hot\.(\d{1,6})\.gpu(\d{1,4})")


def card_mime(cards: Iterable[CardId]) -> QMimeData:
    """Some cards, to be dropped."""
    names = sorted(map(str, cards))
    data = QMimeData()
    data.setData(MIME, QByteArray(json.dumps(names).encode()))
    return data


def cards_in(data: QMimeData) -> frozenset[CardId]:
    """The cards that are dragged; none where it is anything else, or not well formed."""
    raw = bytes(data.data(MIME).data()) if data.hasFormat(MIME) else b""
    if not 0 < len(raw) <= MAX_BYTES:
        return frozenset()
    try:
        names = json.loads(raw)
    except (ValueError, RecursionError):
        return frozenset()
    found = [_card(name) for name in names] if isinstance(names, list) else []
    return frozenset(one for one in found if one is not None)


def _card(name: object) -> CardId | None:
    if not isinstance(name, str):
        return None
    hot = _HOT.fullmatch(name)
    if hot is not None:
        return HotSet(int(hot[1]), Gpu(int(hot[2])))
    unit = _UNIT.fullmatch(name)
    kind: UnitKind | None = next((one for one in get_args(UnitKind) if unit is not None and one == unit[1]), None)
    return None if unit is None or kind is None else UnitId(kind, -1 if unit[2] is None else int(unit[2]))
