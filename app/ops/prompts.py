"""Rows of the store as the values a request carries: the conversation, the sampling, the title of a new chat. No Qt, no SQL."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from app.store.rows import MessageRow
from engine.api.errors import InvalidRequest
from engine.api.values import ChatMessage, SamplingParams

TITLE_LENGTH = 60
_PARAMS = {field.name for field in fields(SamplingParams)}


def conversation(system_prompt: str, rows: Sequence[MessageRow]) -> tuple[ChatMessage, ...]:
    """The messages of a branch. Empty answers (failed, stopped at once) are left out; neighbours of one role become one message,
    since templates may refuse two questions in a row."""
    messages: list[ChatMessage] = []
    if system_prompt.strip():
        messages.append(ChatMessage("system", system_prompt))
    for row in rows:
        if row.role == "assistant" and not row.text:
            continue
        if messages and messages[-1].role == row.role:
            messages[-1] = ChatMessage(row.role, f"{messages[-1].content}\n\n{row.text}")
        else:
            messages.append(ChatMessage(row.role, row.text))
    return tuple(messages)


def sent_rows(rows: Sequence[MessageRow], seen_from: int | None) -> tuple[MessageRow, ...]:
    """The rows of a branch that the model is given: those from the message `seen_from` on, all when it is not among them."""
    start = next((i for i, row in enumerate(rows) if row.id == seen_from), 0)
    return tuple(rows[start:])


def sampling_of(defaults: SamplingParams, sampling_json: str) -> SamplingParams:
    """The sampling of a chat: its overrides over the defaults. Overrides that are not understood are left out."""
    try:
        read = json.loads(sampling_json)
    except json.JSONDecodeError:
        return defaults
    if not isinstance(read, dict):
        return defaults
    overrides: dict[str, Any] = {key: value for key, value in read.items() if key in _PARAMS}
    if isinstance(overrides.get("stop"), list):
        overrides["stop"] = tuple(overrides["stop"])
    values = {field.name: getattr(defaults, field.name) for field in fields(SamplingParams)}
    try:
        return SamplingParams(**(values | overrides))
    except (InvalidRequest, TypeError):
        return defaults


def overrides_json(defaults: SamplingParams, chosen: SamplingParams) -> str:
    """What a chat stores: only what differs from the defaults, so that later changes of a default reach it."""
    names = sorted(name for name in _PARAMS if getattr(chosen, name) != getattr(defaults, name))
    return json.dumps({name: getattr(chosen, name) for name in names})


def title_of(text: str) -> str:
    """The title of a chat that begins with this message: its first line, cut at a word."""
    line = next((" ".join(line.split()) for line in text.splitlines() if line.strip()), "")
    if len(line) <= TITLE_LENGTH:
        return line or "…"
    cut = line[:TITLE_LENGTH]
    at = cut.rfind(" ")
    return (cut[:at] if at > TITLE_LENGTH // 2 else cut).rstrip(" ,.;:") + "…"
