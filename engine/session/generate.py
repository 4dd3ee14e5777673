"""The step loop's body: schedule, execute, sample, emit. One `Session` a loaded model; called on the engine thread only."""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable
from typing import Protocol

import numpy as np
import numpy.typing as npt

from engine.api.events import Event, Failed, Finished, PrefillProgress, Queued, TokenDelta
from engine.api.values import FinishReason, RequestId, SamplingParams
from engine.errors import Cancelled, ContextFull, EngineError, InvalidRequest
from engine.runtime.cache_groups import BLOCK, CacheGroup
from engine.runtime.choices import Chosen
from engine.runtime.step import StepBatch
from engine.runtime.tally import ExpertTally
from engine.runtime.written import Live
from engine.sampling.chain import Sampler
from engine.session.block_manager import BlockManager
from engine.session.queue import Queue, queue_of
from engine.session.rehearsal import Rehearsal
from engine.session.scheduler import Scheduler, Work
from engine.session.sequence import Clock, Sequence
from engine.session.states import NONE, StateSlots
from engine.session.stops import StopMatcher
from engine.tokenizer.build import Tokenizer
from engine.tokenizer.stream_decoder import StreamDecoder


class StepModel(Protocol):
    """The part of a loaded model that answers need."""

    @property
    def n_ctx(self) -> int:
        """Tokens that a sequence may hold."""

    @property
    def cache_groups(self) -> tuple[CacheGroup, ...]:
        """The pools of KV blocks."""

    @property
    def state_slots(self) -> tuple[int, int]:
        """Slots for the states of sequences, and how many of them are for snapshots; (0, 0): sequences have no state."""

    @property
    def experts(self) -> ExpertTally | None:
        """How often each expert was passed; None: there are none, or nobody counts."""

    @property
    def chosen(self) -> tuple[Chosen, ...]:
        """Which experts the rows of the last step passed."""

    def step(self, batch: StepBatch) -> npt.NDArray[np.float32]:
        """Logits [n_out, n_vocab]."""


class Session:
    """All answers that are being made with one model."""

    def __init__(self, model: StepModel, tokenizer: Tokenizer, prefill_chunk: int, emit: Callable[[Event], None]) -> None:
        """emit: takes every event; called within `add`, `cancel` and `step`."""
        self._model = model
        self._tokenizer = tokenizer
        self._eog = tokenizer.vocab.eog_ids
        self._emit = emit
        self._blocks = BlockManager(model.cache_groups, BLOCK)
        self._n_ctx = min((model.n_ctx, *(one.n_blocks * BLOCK for one in model.cache_groups if one.window is None)))
        self._states = StateSlots(*model.state_slots)
        self._chunk = prefill_chunk
        self._scheduler = Scheduler(self._blocks, self._states, prefill_chunk)

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do."""
        return not self._scheduler.sequences()

    def rehearsal(self) -> Rehearsal:
        """Room for steps that are no answer's, of up to a chunk of a prompt; while the session is idle.

        Raises:
            InvalidRequest: there are answers.
        """
        if not self.idle:
            raise InvalidRequest("there are answers under way; wait for their end")
        return Rehearsal(self._blocks, self._states, min(self._chunk, self._n_ctx), self._tokenizer.n_vocab)

    def live(self) -> Live:
        """What caches and states hold for answers under way, and for prompts that may begin like earlier ones."""
        blocks = tuple(np.array(one, np.int64) for one in self._blocks.live)
        return Live(blocks, np.array(list(self._states.held()), np.int64))

    @property
    def n_tokens_held(self) -> int:
        """Tokens in the cache of answers under way. Any thread."""
        return sum(one.table.n_tokens for one in self._scheduler.running())

    @property
    def queue(self) -> Queue:
        """What answers are at. Any thread."""
        return queue_of(self._scheduler.sequences())

    def active(self) -> frozenset[RequestId]:
        """Requests that have not ended."""
        return frozenset(one.request_id for one in self._scheduler.sequences())

    def add(
        self,
        request_id: RequestId,
        ids: list[int],
        sampling: SamplingParams,
        asked: float,
        ends_at_eog: bool = True,
        decoder: StreamDecoder | None = None,
    ) -> None:
        """Queues an answer to the prompt `ids`. asked: monotonic time of the request, in seconds; decoder: None: the plain one.

        Raises:
            InvalidRequest: no ids, an id outside the vocabulary, or (ContextFull) more ids than the context holds.
        """
        n_ctx, n_vocab = self._n_ctx, self._tokenizer.n_vocab
        if not ids:
            raise InvalidRequest("the prompt is empty; give at least one token")
        bad = next((one for one in ids if not 0 <= one < n_vocab), None)
        if bad is not None:
            raise InvalidRequest(f"token id {bad} is out of range; this model has the ids 0 to {n_vocab - 1}")
        if len(ids) > n_ctx:
            raise ContextFull(
                f"the prompt takes {len(ids)} tokens, the context holds {n_ctx}; shorten it or load with more context"
            )
        asked_for = n_ctx if sampling.max_tokens < 0 else sampling.max_tokens
        sequence = Sequence(
            request_id=request_id,
            tokens=array("i", ids),
            sampling=sampling,
            sampler=Sampler(sampling),
            decoder=decoder or StreamDecoder(self._tokenizer),
            stops=StopMatcher(sampling.stop),
            clock=Clock(asked),
            n_prompt=len(ids),
            limit=min(n_ctx, len(ids) + asked_for),
            ends_at_eog=ends_at_eog,
            experts=None if self._model.experts is None else ExpertTally(self._model.experts.moe),
        )
        self._emit(Queued(request_id, self._scheduler.n_ahead))
        self._scheduler.add(sequence)
        if asked_for == 0:
            self._finish(sequence, "length")

    def cancel(self, request_id: RequestId) -> bool:
        """Ends a request in Finished(cancelled), with the text held back so far. False when there is no such request."""
        sequence = self._scheduler.find(request_id)
        if sequence is None:
            return False
        self._finish(sequence, "cancelled")
        return True

    def step(self) -> None:
        """Carries out one step and reports what came of it. An error of the engine ends the sequences of the step."""
        for sequence in self._scheduler.admit():
            self._tell_read(sequence)
        work, paused = self._scheduler.next()
        for n, sequence in enumerate(reversed(paused)):
            self._emit(Queued(sequence.request_id, len(self._scheduler.running()) + n))
        if work is None:
            return
        started = time.monotonic()
        try:
            logits = self._model.step(_batch(work))
        except Cancelled:
            # One of the sequences is being cancelled: its Cancel is in the queue. The others repeat this step.
            return
        except EngineError as error:
            self.fail(work.sequences, error)
            return
        now = time.monotonic()
        for i, sequence in enumerate(work.sequences):
            if sequence.experts is not None and sequence.table.n_tokens >= sequence.n_computed:
                sequence.experts.add(self._model.chosen, i)
        if work.phase == "decode":
            self._decoded(work.sequences, logits, now)
        else:
            self._prefilled(work, logits, now, now - started)

    def fail(self, sequences: tuple[Sequence, ...], error: EngineError) -> None:
        """Ends sequences in Failed."""
        for sequence in sequences:
            self._scheduler.remove(sequence, failed=True)
            self._emit(Failed(sequence.request_id, type(error).__name__, str(error), usage=sequence.usage()))

    def _prefilled(self, work: Work, logits: npt.NDArray[np.float32], now: float, seconds: float) -> None:
        sequence = work.sequences[0]
        at = sequence.table.n_tokens
        if at >= sequence.n_computed:
            sequence.clock.prefill_s += seconds
        self._commit(sequence, sequence.tokens[at : at + work.n_tokens])
        self._tell_read(sequence)
        if sequence.n_pending == 0:
            sequence.phase = "decode"
            self._blocks.keep(sequence.table)  # regenerate goes back to here
            self._take(sequence, logits[0], now)
        elif not sequence.n_to_read:
            sequence.phase = "decode"  # as far as it was when it was paused; the last token is not computed yet

    def _decoded(self, sequences: tuple[Sequence, ...], logits: npt.NDArray[np.float32], now: float) -> None:
        for row, sequence in enumerate(sequences):
            self._commit(sequence, sequence.tokens[-1:])
            self._take(sequence, logits[row], now)

    def _commit(self, sequence: Sequence, tokens: array[int]) -> None:
        """The next tokens of a sequence were computed."""
        self._blocks.commit(sequence.table, tokens)
        self._states.advance(sequence.hold, sequence.tokens)
        sequence.n_computed = max(sequence.n_computed, sequence.table.n_tokens)

    def _tell_read(self, sequence: Sequence) -> None:
        self._emit(PrefillProgress(sequence.request_id, min(sequence.table.n_tokens, sequence.n_prompt), sequence.n_prompt))

    def _take(self, sequence: Sequence, logits: npt.NDArray[np.float32], now: float) -> None:
        """Draws the next token, reports its text, and ends the answer where it ends."""
        # Heads may be padded beyond the vocabulary; those rows have no text.
        token = sequence.sampler.sample(logits[: self._tokenizer.n_vocab], sequence.tokens)
        sequence.tokens.append(token)
        sequence.clock.tick(now)
        sequence.n_unshown += 1
        if sequence.ends_at_eog and token in self._eog:
            self._finish(sequence, "stop")
            return
        self._show(sequence, sequence.stops.push(sequence.decoder.push(token)))
        if sequence.stops.stopped:
            self._finish(sequence, "stop")
        elif sequence.n_generated == sequence.sampling.max_tokens or len(sequence.tokens) > self._n_ctx:
            self._finish(sequence, "length")

    def _show(self, sequence: Sequence, text: str) -> None:
        if not text:
            return
        n, sequence.n_unshown = sequence.n_unshown, 0
        self._emit(TokenDelta(sequence.request_id, text, n, sequence.n_generated, sequence.clock.rate))

    def _finish(self, sequence: Sequence, reason: FinishReason) -> None:
        self._show(sequence, sequence.stops.push(sequence.decoder.flush()) + sequence.stops.flush())
        self._scheduler.remove(sequence)
        self._emit(Finished(sequence.request_id, reason, sequence.usage()))


def _batch(work: Work) -> StepBatch:
    if work.phase == "prefill":
        sequence = work.sequences[0]
        first, n = sequence.table.n_tokens, work.n_tokens
        last = first + n == len(sequence.tokens)
        return StepBatch(
            phase="prefill",
            token_ids=np.array(sequence.tokens[first : first + n], np.int32),
            positions=np.arange(first, first + n, dtype=np.int32),
            seq_of_row=np.zeros(n, np.int32),
            block_tables=(np.array(sequence.table.groups, np.int32),),
            out_rows=np.array([n - 1] if last else [], np.int32),
            states=_states(work),
        )
    rows = np.arange(len(work.sequences), dtype=np.int32)
    return StepBatch(
        phase="decode",
        token_ids=np.array([one.tokens[-1] for one in work.sequences], np.int32),
        positions=np.array([one.table.n_tokens for one in work.sequences], np.int32),
        seq_of_row=rows,
        block_tables=tuple(np.array(one.table.groups, np.int32) for one in work.sequences),
        out_rows=rows,
        states=_states(work),
    )


def _states(work: Work) -> npt.NDArray[np.int32] | None:
    holds = [(one.hold, one.table.n_tokens) for one in work.sequences]
    if any(hold.next == NONE for hold, _ in holds):
        return None  # the model has none
    return np.array([(hold.now, hold.next, hold.mark, max(0, hold.mark_at - done)) for hold, done in holds], np.int32)
