"""PlacementMeasure: two placements of the loaded model, measured in turn on the same prompt; then the first one is restored.

A, B, B, A, A, B, ...: what drifts, such as temperature, falls on both alike. Each run applies its placement and answers greedily;
prompts differ in their first words, so that no run finds the cache of another.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from PySide6.QtCore import QObject, Signal

from app.bridge.engine_bridge import EngineBridge
from app.bridge.op import Op
from app.i18n import filled, tr
from app.ops.two_samples import Sample, p_value, sample
from engine.api.commands import ApplyPlacement, Generate
from engine.api.events import Failed, Finished, PlacementApplied
from engine.api.pure import Placement
from engine.api.values import RequestId, SamplingParams, Usage

N_TOKENS = 48
_WORDS = (
    "The layers of a model lie on several devices, and what is read for one token decides how fast it answers. Weights that lie"
    " in the memory of a card are read at its speed, others at that of the machine. Write down what follows from this. "
)
N_REPEATS = 8
"""Of the text above: about 400 tokens, enough for a rate of prefill."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What both reached, decode and prefill in tokens a second, in the order of runs. done of total runs are finished."""

    decode: tuple[tuple[float, ...], tuple[float, ...]] = ((), ())
    prefill: tuple[tuple[float, ...], tuple[float, ...]] = ((), ())
    done: int = 0
    total: int = 0

    def samples(self, what: str) -> tuple[Sample, Sample]:
        """Of `decode` or `prefill`."""
        pair = self.decode if what == "decode" else self.prefill
        return sample(pair[0]), sample(pair[1])

    def p_value(self, what: str) -> float | None:
        """See `two_samples.p_value`."""
        return p_value(*self.samples(what))


def order(rounds: int) -> tuple[int, ...]:
    """Which placement each run measures: 0, 1, 1, 0, 0, 1, ..."""
    return tuple(side for i in range(rounds) for side in ((0, 1) if i % 2 == 0 else (1, 0)))


def prompt_of(run: int) -> str:
    """The prompt of a run: the same work each time, no common beginning."""
    return f"Run {run:03d}. " + _WORDS * N_REPEATS


class PlacementMeasure(QObject):
    """progress(Measured) after each run; applied(ModelInfo) after each change; ended(Measured) when the first placement is back;
    failed(sentence), likewise after it was tried to be put back."""

    progress = Signal(object)
    applied = Signal(object)
    ended = Signal(object)
    failed = Signal(str)

    def __init__(self, bridge: EngineBridge, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._bridge = bridge
        self._sides: tuple[Placement, Placement] | None = None
        self._first: Placement | None = None
        self._plan: tuple[int, ...] = ()
        self._measured = Measured()
        self._request: RequestId | None = None
        self._stopping = False
        self._failure = ""

    @property
    def running(self) -> bool:
        """Whether it measures."""
        return self._sides is not None

    @property
    def measured(self) -> Measured:
        """What is known so far, or of the last time."""
        return self._measured

    def start(self, a: Placement, b: Placement, present: Placement, rounds: int) -> None:
        """Begins. present: as the model lies now, put back in the end. All with the workers that the model has now: where things
        lie is compared, not who works on them."""
        if self.running:
            return
        running = self._bridge.state.model
        if running is not None and running.placement is not None:
            a, b, present = (replace(one, workers=running.placement.workers) for one in (a, b, present))
        self._sides, self._first, self._plan = (a, b), present, order(rounds)
        self._measured = Measured(total=len(self._plan))
        self._stopping, self._failure = False, ""
        self.progress.emit(self._measured)
        self._next()

    def stop(self) -> None:
        """Ends after putting the first placement back; what was measured stays."""
        if self.running and not self._stopping:
            self._stopping = True
            if self._request is not None:
                self._bridge.cancel(self._request)

    def _next(self) -> None:
        if self._sides is None:
            return
        if self._stopping or self._measured.done >= len(self._plan):
            self._restore()
            return
        self._apply(self._sides[self._plan[self._measured.done]], self._answer)

    def _apply(self, placement: Placement, then: Callable[[], None]) -> None:
        command = ApplyPlacement(self._bridge.new_id(), placement)
        op = Op(self._bridge, command).on(PlacementApplied, lambda event: self.applied.emit(event.info))
        self._request = op.success(lambda _event: then()).failure(self._on_failed).run()

    def _answer(self) -> None:
        if self._stopping:
            self._next()
            return
        sampling = SamplingParams(temperature=0.0, top_k=1, max_tokens=N_TOKENS)
        prompt = prompt_of(self._measured.done)
        command = Generate(self._bridge.new_id(), prompt=prompt, sampling=sampling, ignore_eog=True)
        self._request = Op(self._bridge, command).success(self._on_answered).failure(self._on_failed).run()

    def _on_answered(self, event: Finished) -> None:
        if event.reason != "cancelled":
            self._take(event.usage)
        self._next()

    def _take(self, usage: Usage) -> None:
        side, measured = self._plan[self._measured.done], self._measured
        self._measured = replace(
            measured,
            decode=_added(measured.decode, side, usage.decode_tok_s),
            prefill=_added(measured.prefill, side, usage.prefill_tok_s),
            done=measured.done + 1,
        )
        self.progress.emit(self._measured)

    def _on_failed(self, event: Failed) -> None:
        if event.kind != "Cancelled":
            self._failure = filled(tr("Placement", "Measuring ended early: %1"), event.message)
        self._stopping = True
        self._next()

    def _restore(self) -> None:
        first = self._first
        if first is None:
            self._finish()
            return
        self._first = None
        self._apply_last(first)

    def _apply_last(self, first: Placement) -> None:
        def failed(event: Failed) -> None:
            self._failure = filled(tr("Placement", "The placement from before could not be put back: %1"), event.message)
            self._finish()

        op = Op(self._bridge, ApplyPlacement(self._bridge.new_id(), first))
        op.on(PlacementApplied, lambda event: self.applied.emit(event.info))
        # Not to be cancelled: the model shall lie as it did.
        self._request = None
        op.success(lambda _event: self._finish()).failure(failed).run()

    def _finish(self) -> None:
        self._sides, self._request = None, None
        if self._failure:
            self.failed.emit(self._failure)
        else:
            self.ended.emit(self._measured)


def _added(
    pair: tuple[tuple[float, ...], tuple[float, ...]], side: int, value: float | None
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    if value is None:
        return pair
    return ((*pair[0], value), pair[1]) if side == 0 else (pair[0], (*pair[1], value))
