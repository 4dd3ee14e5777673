"""The facts the engine reports: one frozen dataclass each, all carrying the request they belong to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from engine.api.values import (
    EngineSample,
    FinishReason,
    HardwareSnapshot,
    HoldingInfo,
    HoldingTrend,
    ModelInfo,
    PoolMode,
    RequestId,
    Usage,
)
from engine.placement.spread import NodePolicy

if TYPE_CHECKING:
    import numpy.typing as npt
    from numpy import uint64


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
    """The request waits behind `ahead` others: when it comes, and when it is paused for lack of room in the cache."""

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


@dataclass(frozen=True, slots=True, eq=False)
class ExpertCounts:
    """How often each expert was passed since the model was loaded, exactly.

    layers: those that have experts; counts: uint64 [n_layers, n_experts]; rows: of each layer the tokens that passed its router:
    n_tokens, but for the last layer, which of a prompt only the tokens pass whose logits are wanted.
    """

    request_id: RequestId
    n_tokens: int
    layers: tuple[int, ...]
    counts: npt.NDArray[uint64]
    rows: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LayerPool:
    """The pool of one layer: passes of decoded tokens that it took, those that went to the whole set, and what it holds now."""

    layer: int
    device: str
    hits: int
    misses: int
    promotions: int
    experts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PoolStats:
    """What pools of experts have done since they were filled, in all layers and in each; no layers: the model has none.

    switched_off: promotion has ended itself, since it brought less than it cost; why: in one sentence. comparing: a comparison
    that was asked for goes on; where it no longer does and PoolsCompared did not come, it was given up.
    """

    request_id: RequestId
    hits: int
    misses: int
    promotions: int
    layers: tuple[LayerPool, ...]
    mode: PoolMode
    switched_off: bool = False
    why: str = ""
    comparing: bool = False

    @property
    def hit_rate(self) -> float | None:
        """Share of passes that pools took."""
        total = self.hits + self.misses
        return self.hits / total if total else None


@dataclass(frozen=True, slots=True)
class PoolsCompared:
    """Tokens a second of decode with `mode` and with the mode below it, means over blocks.

    gain: of the first over the second, in parts of 1, with its standard error sigma; n_pairs: blocks of each.
    """

    request_id: RequestId
    mode: PoolMode
    with_tok_s: float
    without_tok_s: float
    gain: float
    sigma: float
    n_pairs: int


@dataclass(frozen=True, slots=True)
class MigrationProgress:
    """phase `room` (memory is taken and the steps are planned), `weights` (bytes that are on their way), `warmup` (steps that are
    made ready), `switch` (caches and states follow, between two steps)."""

    request_id: RequestId
    phase: Literal["room", "weights", "warmup", "switch"]
    done_bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True)
class PlacementApplied:
    """The model lies as it was asked for, which `info` tells. moved_bytes: weights, caches, states that went to another device;
    pause_s: how long answers stood still for the switch."""

    request_id: RequestId
    info: ModelInfo
    moved_bytes: int
    pause_s: float


@dataclass(frozen=True, slots=True)
class WorkersPinned:
    """Other workers are at work; info.placement says who. pause_s: how long no step could be made; notes: what is unusual about
    the choice, one sentence each."""

    request_id: RequestId
    info: ModelInfo
    pause_s: float
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TuneProgress:
    """done of total measurements. what: `decode` with `setting` workers, `prefill` of `setting` tokens at once, each with the
    tokens a second that were just measured; `waiting` for answers to end or for weights to settle: None."""

    request_id: RequestId
    what: Literal["decode", "prefill", "waiting"]
    done: int
    total: int
    setting: int = 0
    tok_s: float | None = None


@dataclass(frozen=True, slots=True)
class TunedRate:
    """Tokens a second with one setting, the middle of n measurements; spread: how far they lie from it, in parts of it."""

    setting: int
    tok_s: float
    spread: float
    n: int


@dataclass(frozen=True, slots=True)
class WorkersTuned:
    """What was found, by number of workers and by tokens of a prompt at once, ascending; both () where it was forgotten.

    threads, chunk: the smallest setting that is as good as the fastest, 0: none. kept: whether it is used at the next load;
    why_not: one sentence where not.
    """

    request_id: RequestId
    decode: tuple[TunedRate, ...]
    prefill: tuple[TunedRate, ...]
    threads: int
    chunk: int
    seconds: float
    kept: bool
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class Holdings:
    """Answer to AskHoldings. off_node_share: of the sampled pages of each node's memory, the part that lies on another node, None
    where this cannot be told. node_pages: (node, sampled pages there). node_policy: how they come there; node_denied: why the
    system does not let them be put there, one sentence, "": it does.
    """

    request_id: RequestId
    holdings: tuple[HoldingInfo, ...]
    trends: tuple[HoldingTrend, ...]
    off_node_share: float | None = None
    node_pages: tuple[tuple[int, int], ...] = ()
    node_policy: NodePolicy = ""
    node_denied: str = ""


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
    | MigrationProgress
    | PlacementApplied
    | WorkersPinned
    | TuneProgress
    | WorkersTuned
    | Holdings
    | ExpertCounts
    | PoolStats
    | PoolsCompared
    | Counters
    | Finished
    | Failed
)
