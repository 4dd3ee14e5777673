"""The facts the engine reports: one frozen dataclass each, all carrying the request they belong to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from engine.api.values import EngineSample, FinishReason, HardwareSnapshot, ModelInfo, RequestId, Usage


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """phase `header`, `weights` (bytes really mapped or copied), `warmup`."""

    request_id: RequestId
    phase: Literal["header", "weights", "warmup"]
    done_bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True)
class ModelReady:
    """The model answers from now on."""

    request_id: RequestId
    info: ModelInfo


@dataclass(frozen=True, slots=True)
class ModelUnloaded:
    """No model is loaded."""

    request_id: RequestId


@dataclass(frozen=True, slots=True)
class Queued:
    """The request waits behind `ahead` others."""

    request_id: RequestId
    ahead: int


@dataclass(frozen=True, slots=True)
class PrefillProgress:
    """done of total prompt tokens are in the cache (reused ones counted as done)."""

    request_id: RequestId
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class AnswerOpened:
    """The chat template has begun the answer with this text (`<think>` and a line break): the model goes on inside it. It
    belongs to the answer, before the first TokenDelta, and is counted as prompt."""

    request_id: RequestId
    text: str


@dataclass(frozen=True, slots=True)
class TokenDelta:
    """New text: whole characters only. n_tokens it stands for; decode_tok_s is a short moving average."""

    request_id: RequestId
    text: str
    n_tokens: int
    n_generated: int
    decode_tok_s: float | None


@dataclass(frozen=True, slots=True)
class TokenCount:
    """Answer to CountTokens."""

    request_id: RequestId
    n_tokens: int
    n_ctx: int


@dataclass(frozen=True, slots=True)
class Notice:
    """Something went otherwise than people expect, and the request goes on. message: one sentence for people."""

    request_id: RequestId
    message: str


@dataclass(frozen=True, slots=True)
class Sensors:
    """One snapshot of the machine."""

    request_id: RequestId
    snapshot: HardwareSnapshot


@dataclass(frozen=True, slots=True)
class Counters:
    """What the engine itself did since the Counters before; sent with Sensors, on the same clock."""

    request_id: RequestId
    sample: EngineSample


@dataclass(frozen=True, slots=True)
class Finished:
    """The request ended as asked (or was cancelled)."""

    request_id: RequestId
    reason: FinishReason
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True, slots=True)
class Failed:
    """The request ended in an error. message: one sentence for people; kind: class name of the error; is_bug: our fault."""

    request_id: RequestId
    kind: str
    message: str
    is_bug: bool = False
    usage: Usage = field(default_factory=Usage)


Event = (
    LoadProgress
    | ModelReady
    | ModelUnloaded
    | Queued
    | PrefillProgress
    | AnswerOpened
    | TokenDelta
    | TokenCount
    | Notice
    | Sensors
    | Counters
    | Finished
    | Failed
)
