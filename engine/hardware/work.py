"""What the engine itself counts while it works: bytes, tokens and time by device, exact and without asking any driver. Values
only, on the clock of `HardwareSnapshot`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class DeviceWork:
    """What one device (`numa0`, `gpu0`) did in the period. card: the key of its `GpuSample`, "" for memory and emulated ones.

    working_percent: of the period in which it computed for us: neither idle nor waiting for another device.
    token_ms, waiting_ms: of a decode step, computing and waiting for others; None without one in the period.
    read_bytes_per_token, read_bytes_per_s: weights and KV cache; the rate is of the time in which it computed.
    in_bytes_per_s, out_bytes_per_s: activations, and weights that prompts brought, that came over a GPU's link and left by it, of
    the whole period; None for others, and for a GPU that made no step.
    """

    device: str
    working_percent: float
    token_ms: float | None = None
    waiting_ms: float | None = None
    read_bytes_per_token: int | None = None
    read_bytes_per_s: float | None = None
    in_bytes_per_s: float | None = None
    out_bytes_per_s: float | None = None
    card: str = ""


@dataclass(frozen=True, slots=True)
class OpTime:
    """Milliseconds of one decode step by kind of op on one device, all layers together: `experts down` on `numa0`.

    n_bytes: of weights that these ops read.
    """

    device: str
    kind: str
    ms: float
    n_bytes: int | None = None


TraceKind = Literal["experts", "attention", "ffn", "other", "transfer", "wait"]
"""attention: with its KV cache and states. other: embedding, norms, output. transfer: rows that cross. wait: for others."""


@dataclass(frozen=True, slots=True)
class TraceSpan:
    """A stretch of a step on one device. layer: None outside layers. start_ms: since the step began."""

    device: str
    kind: TraceKind
    layer: int | None
    start_ms: float
    ms: float


@dataclass(frozen=True, slots=True)
class TokenTrace:
    """One measured decode step on one clock. time_s: monotonic, of its beginning. total_ms: from there to its logits.

    spans: by device, then in order of time; between two of a device it was idle. What a device does not tell op by op is one.
    """

    time_s: float
    total_ms: float
    spans: tuple[TraceSpan, ...]


@dataclass(frozen=True, slots=True)
class Astray:
    """Of the sampled pages of a model: the share, 0..1, that lies on another node of memory than the placement wants. meant,
    found: the node that most of them should be on, and the one that most of these are on; None where none is astray."""

    share: float
    meant: int | None = None
    found: int | None = None


@dataclass(frozen=True, slots=True)
class StrayWorker:
    """A worker that may run elsewhere than on the processor it was pinned to. cpu: that one; allowed: where it may run now."""

    cpu: int
    allowed: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class EngineSample:
    """What the engine did in the last period_s. time_s is monotonic.

    decode_tok_s, prefill_tok_s: of the time spent in such steps, all answers together; None without one.
    step_ms: a decode step from its start to its logits; outside_ms: from there to the next step (sampling, text, events).
    ops: of the last decode step that was measured op by op; trace: where its time went.
    n_waiting: requests that wait for their turn. prompt_done of prompt_tokens: of the prompts that are being read, 0: none is.
    n_invalid: steps that ended in values that are no numbers; n_repeated: the longest run of one token at the end of an answer.
    astray: of pages, by the last look, None on one node or where it cannot be told; strays: workers that others have moved.
    """

    time_s: float
    period_s: float
    n_answers: int = 0
    n_decode_steps: int = 0
    n_decoded: int = 0
    n_prefilled: int = 0
    decode_tok_s: float | None = None
    prefill_tok_s: float | None = None
    step_ms: float | None = None
    outside_ms: float | None = None
    devices: tuple[DeviceWork, ...] = ()
    ops: tuple[OpTime, ...] = ()
    kv_used_tokens: int = 0
    kv_total_tokens: int = 0
    kv_bytes_per_token: int = 0
    trace: TokenTrace | None = None
    n_waiting: int = 0
    prompt_tokens: int = 0
    prompt_done: int = 0
    n_invalid: int = 0
    n_repeated: int = 0
    astray: Astray | None = None
    strays: tuple[StrayWorker, ...] = ()
