"""What the chat store holds, as frozen rows. No Qt, no SQL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Role = Literal["user", "assistant"]
Status = Literal["done", "streaming", "interrupted", "stopped", "error"]
"""`streaming` becomes `interrupted` when the application starts and finds it; `stopped` was stopped by the user."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What an answer cost. None where nothing was measured."""

    n_tokens: int = 0
    n_prompt: int = 0
    decode_tok_s: float | None = None
    prefill_tok_s: float | None = None
    ttft_s: float | None = None


@dataclass(frozen=True, slots=True)
class ChatRow:
    """One conversation. leaf_id: the newest message of the branch that is shown. sampling_json: overrides, "{}" for none.

    seen_from: the first message the model is given, None for all; one that is not on the branch counts as None.
    """

    id: int
    title: str
    created_s: float
    updated_s: float
    leaf_id: int | None
    system_prompt: str
    sampling_json: str
    model_path: str
    seen_from: int | None = None


@dataclass(frozen=True, slots=True)
class MessageRow:
    """One message. Rows are never overwritten by another message: edits and regenerations are siblings under one parent_id.

    position: (index, count) among its siblings, counted from 0, for the `< 2/3 >` switch.
    error: the one sentence shown when status is `error`; error_kind: the engine's name of it.
    """

    id: int
    chat_id: int
    parent_id: int | None
    role: Role
    text: str
    status: Status
    created_s: float
    figures: Figures = Figures()
    error: str = ""
    position: tuple[int, int] = (0, 1)
    error_kind: str = ""
