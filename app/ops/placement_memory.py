"""Which placement a model file was loaded with last on this machine. Asked for at each load, so it imports no arithmetic."""

from __future__ import annotations

from app.store import placements
from app.store.chat_store import ChatStore
from engine.api.machine import machine_key


def remembered_placement(store: ChatStore, path: str) -> str:
    """The text of its file, "" for none."""
    if not store.placement(lambda db: placements.is_used(db, path)):
        return ""  # without a look at the GPUs, which takes a driver a moment
    return store.placement(lambda db: placements.used(db, path, machine_key()))
