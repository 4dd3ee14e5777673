"""One answer in the making: its tokens, the KV blocks it holds, its sampler and its clock."""

from __future__ import annotations

from array import array
from collections import deque
from dataclasses import dataclass, field
from typing import Literal

from engine.api.values import ExpertUse, FinishReason, RequestId, SamplingParams, Usage
from engine.runtime.tally import ExpertTally
from engine.sampling.chain import Sampler
from engine.session.block_manager import BlockTable
from engine.session.states import StateHold
from engine.session.stops import StopMatcher
from engine.tokenizer.stream_decoder import StreamDecoder

Phase = Literal["waiting", "prefill", "decode", "ended"]

RATE_TOKENS = 32
"""Tokens over which the shown decode rate is averaged."""


@dataclass(slots=True)
class Clock:
    """Monotonic times in seconds of what happened to a request. prefill_s: time spent in prefill steps."""

    asked: float
    prefill_s: float = 0.0
    first: float | None = None
    last: float | None = None
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=RATE_TOKENS + 1))

    def tick(self, now: float) -> None:
        """A token was generated."""
        if self.first is None:
            self.first = now
        self.last = now
        self.recent.append(now)

    @property
    def rate(self) -> float | None:
        """Tokens per second over the newest tokens; None before the second one."""
        if len(self.recent) < 2 or self.recent[-1] <= self.recent[0]:
            return None
        return (len(self.recent) - 1) / (self.recent[-1] - self.recent[0])


@dataclass(slots=True, eq=False)
class Sequence:
    """tokens: prompt, then what was generated, as int32. The table's n_tokens of them are in the cache.

    n_computed: the most that ever were; fewer are in the cache while a sequence that was paused is computed again.
    """

    request_id: RequestId
    tokens: array[int]
    sampling: SamplingParams
    sampler: Sampler
    decoder: StreamDecoder
    stops: StopMatcher
    clock: Clock
    n_prompt: int
    limit: int
    ends_at_eog: bool = True
    phase: Phase = "waiting"
    table: BlockTable = field(default_factory=BlockTable)
    hold: StateHold = field(default_factory=StateHold)
    n_reused: int = 0
    n_computed: int = 0
    n_unshown: int = 0
    reason: FinishReason | None = None
    experts: ExpertTally | None = None

    @property
    def n_generated(self) -> int:
        """Tokens drawn so far."""
        return len(self.tokens) - self.n_prompt

    @property
    def n_pending(self) -> int:
        """Tokens whose keys and values are not in the cache yet."""
        return len(self.tokens) - self.table.n_tokens

    @property
    def n_to_read(self) -> int:
        """Tokens that go through steps of prompts before the next one is drawn or decoded: first those that were computed once,
        then what is left of the prompt."""
        until = self.n_computed if self.table.n_tokens < self.n_computed else self.n_prompt
        return max(0, until - self.table.n_tokens)

    def usage(self) -> Usage:
        """The figures of the answer so far."""
        clock, n = self.clock, self.n_generated
        computed = self.n_prompt - self.n_reused
        decode_s = clock.last - clock.first if clock.first is not None and clock.last is not None else 0.0
        return Usage(
            n_prompt=self.n_prompt,
            n_reused=self.n_reused,
            n_generated=n,
            ttft_s=None if clock.first is None else clock.first - clock.asked,
            prefill_tok_s=computed / clock.prefill_s if clock.first is not None and clock.prefill_s > 0 else None,
            decode_tok_s=(n - 1) / decode_s if n > 1 and decode_s > 0 else None,
            token_ids=tuple(self.tokens[self.n_prompt :]),
            experts=_use(self.experts),
        )


def _use(tally: ExpertTally | None) -> ExpertUse | None:
    if tally is None or not tally.n_tokens:
        return None
    return ExpertUse.of(tally.moe.layers, tuple(tally.rows.tolist()), tally.counts)
