"""The verbs of the engine: one frozen dataclass each. Every command ends exactly once, in `Finished` or `Failed`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from engine.api.values import ChatMessage, LoadOptions, Placement, PoolMode, RequestId, SamplingParams


@dataclass(frozen=True, slots=True)
class LoadModel:
    """Loads a GGUF file, replacing the loaded model, whose answers end as cancelled.

    path: a file, any shard of a split one, or a folder of one model. A path that holds no
    model of ours leaves the loaded one as it is; a later failure leaves none, which ModelUnloaded says.
    Events: LoadProgress*, Notice?, ModelReady.
    """

    request_id: RequestId
    path: str
    options: LoadOptions = field(default_factory=LoadOptions)


@dataclass(frozen=True, slots=True)
class UnloadModel:
    """Frees the loaded model. Events: ModelUnloaded."""

    request_id: RequestId


@dataclass(frozen=True, slots=True)
class Generate:
    """Answers. Exactly one of messages, prompt (parsed with special tokens) and ids is given.

    continue_last: the last message is an unfinished assistant message and is continued, not answered. ignore_eog: tokens that
    mark the end of generation do not end the answer.
    Events: Notice*, AnswerOpened?, Queued, PrefillProgress*, TokenDelta*; Finished carries the Usage.
    """

    request_id: RequestId
    messages: tuple[ChatMessage, ...] | None = None
    prompt: str | None = None
    ids: tuple[int, ...] | None = None
    sampling: SamplingParams = field(default_factory=SamplingParams)
    template_vars: dict[str, Any] = field(default_factory=dict)
    continue_last: bool = False
    ignore_eog: bool = False


@dataclass(frozen=True, slots=True)
class CountTokens:
    """How many tokens a conversation takes when rendered. Events: Notice*, TokenCount."""

    request_id: RequestId
    messages: tuple[ChatMessage, ...]
    template_vars: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Cancel:
    """Stops another request in any phase; that request then ends in Finished(cancelled), or Failed if it was loading."""

    request_id: RequestId
    target: RequestId


@dataclass(frozen=True, slots=True)
class WatchSensors:
    """Starts (period_s > 0) or stops (0) Sensors events, and Counters while a model is loaded. Ends at once; the events carry
    this request's id, and come from a thread of their own. details: cards also tell which programs hold their memory and what
    crosses their links, which some drivers are slow to tell."""

    request_id: RequestId
    period_s: float
    details: bool = False


@dataclass(frozen=True, slots=True)
class ApplyPlacement:
    """Moves what differs between the placement of the loaded model and this one, while answers go on; they go on in the new
    placement between two steps, with all that their caches hold. A failure or a Cancel leaves everything as it was.

    One at a time. Events: MigrationProgress*, PlacementApplied.
    """

    request_id: RequestId
    placement: Placement


@dataclass(frozen=True, slots=True)
class PinWorkers:
    """Other workers for the loaded model, between two steps, without loading it again; answers go on and do not change.

    cpus: the logical processors that work, one worker each (`0-7,16-23`), a number of workers, or "": as is good for the machine.
    A placement that is applied later brings workers of its own. A failure leaves everything as it was.
    Events: WorkersPinned.
    """

    request_id: RequestId
    cpus: str = ""


@dataclass(frozen=True, slots=True)
class TuneWorkers:
    """Tries numbers of workers, and lengths of the chunks of prompts, on the loaded model: about five seconds of steps that are
    no answer's. It rests while there are answers, with the workers from before, and leaves these behind. What was fastest is kept
    for this model on this machine and used at the next load, unless a number is asked for. forget: drops what was kept.

    One at a time. Events: TuneProgress*, WorkersTuned.
    """

    request_id: RequestId
    forget: bool = False


@dataclass(frozen=True, slots=True)
class AskHoldings:
    """What the loaded model holds by now. Events: Holdings."""

    request_id: RequestId


@dataclass(frozen=True, slots=True)
class WatchExperts:
    """Starts (period_s > 0) or stops (0) ExpertCounts and PoolStats events, of a model with experts, whenever they have changed.

    Ends at once; the events carry this request's id.
    """

    request_id: RequestId
    period_s: float


@dataclass(frozen=True, slots=True)
class UsePools:
    """What the pools of experts on GPUs do from the next step on, see `PoolMode`; promotion that switched itself off begins anew,
    a comparison under way is given up.

    Events: PoolStats.
    """

    request_id: RequestId
    mode: PoolMode


@dataclass(frozen=True, slots=True)
class ComparePools:
    """Decodes blocks of n_block tokens in turn with and without `mode`, as answers go on, until n_pairs of each are there.

    mode: `promote` is compared with `keep`, `keep` with `off`; promotion promotes then even if it had switched itself off. Ends
    at once.
    Events: PoolStats; as answers go on PoolsCompared, then the pools are as they were before.
    """

    request_id: RequestId
    mode: PoolMode = "promote"
    n_block: int = 32
    n_pairs: int = 8


Command = (
    LoadModel
    | UnloadModel
    | Generate
    | CountTokens
    | Cancel
    | WatchSensors
    | ApplyPlacement
    | PinWorkers
    | TuneWorkers
    | AskHoldings
    | WatchExperts
    | UsePools
    | ComparePools
)
