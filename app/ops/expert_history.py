"""ExpertHistory: counts of experts that were kept with answers, and what they add up to. No widgets."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from app.log import logger
from app.store import expert_counts
from app.store.chat_store import ChatStore
from app.store.expert_counts import CountedChat
from engine.api.expert_use import ExpertUse
from engine.errors import InvalidRequest

log = logger("experts")
MOST_CHATS = 8


@dataclass(frozen=True, slots=True)
class Counted:
    """counts: by layer, of each expert; n_tokens: that were computed on the way."""

    n_tokens: int
    counts: Mapping[int, Sequence[int]]


class ExpertHistory:
    """Reads answer at once, a millisecond for three answers."""

    def __init__(self, store: ChatStore) -> None:
        self._store = store

    def note(self, message_id: int, model: str, use: ExpertUse) -> None:
        """Keeps what was counted for an answer."""
        self._store.change(partial(_keep, message_id=message_id, model=model, data=use.to_bytes()))

    def of_model(self, model: str) -> Counted | None:
        """Of its newest answers, whichever chat; None: nothing was counted."""
        return self._sum(lambda db: expert_counts.of_model(db, model))

    def of_chat(self, model: str, chat_id: int) -> Counted | None:
        """Of all answers of a chat."""
        return self._sum(lambda db: expert_counts.of_chat(db, model, chat_id))

    def of_newest(self, model: str) -> Counted | None:
        """Of the answer that was written last."""

        def found(db: sqlite3.Connection) -> tuple[bytes, ...]:
            message_id = expert_counts.newest_message(db, model)
            return () if message_id is None else expert_counts.of_message(db, model, message_id)

        return self._sum(found)

    def chats(self, model: str) -> tuple[CountedChat, ...]:
        """In which something was counted, the newest first."""
        return self._store.placement(lambda db: expert_counts.counted_chats(db, model, MOST_CHATS))

    def _sum(self, query: Callable[[sqlite3.Connection], tuple[bytes, ...]]) -> Counted | None:
        return summed(self._store.placement(query))


def _keep(db: sqlite3.Connection, *, message_id: int, model: str, data: bytes) -> None:
    expert_counts.keep_counts(db, message_id, model, data)


def summed(kept: Iterable[bytes]) -> Counted | None:
    """All together. What is damaged, or of a model with other layers than the first, is left out."""
    total = None
    first: ExpertUse | None = None
    n_tokens = 0
    for data in kept:
        try:
            use = ExpertUse.from_bytes(data)
        except InvalidRequest as error:
            log.warning("counts of experts are left out: %s", error)
            continue
        if first is None:
            first = use
        if (use.layers, use.n_experts) != (first.layers, first.n_experts):
            continue
        counts = use.counts().astype("uint64")
        total = counts if total is None else total + counts
        n_tokens += use.n_tokens
    if first is None or total is None or not n_tokens:
        return None
    return Counted(n_tokens, {layer: total[i].tolist() for i, layer in enumerate(first.layers)})
