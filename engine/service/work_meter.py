"""Counts what steps do: tokens, seconds, and seconds by device, for whoever watches the engine work.

A step that nobody watches costs two readings of a clock. While somebody does, one step a second is measured by device and op;
what it shows is taken for the steps around it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from engine.api.values import DeviceWork, EngineSample, OpTime, TokenTrace
from engine.errors import InvalidNumbers
from engine.estimate.reads import TokenReads
from engine.runtime.cache_groups import CacheGroup
from engine.runtime.choices import Chosen
from engine.runtime.loaded_model import LoadedModel
from engine.runtime.measured import Crossed, StepTimes
from engine.runtime.step import StepBatch
from engine.runtime.tally import ExpertTally
from engine.runtime.trace import Outlines, trace_of

Phase = Literal["prefill", "decode"]
MEASURE_EVERY_S = 1.0
FOLLOWS_S = 0.1
"""A step that begins later than this behind another one was not waited for: nobody had asked for it."""
HOME = "numa0"


@dataclass(slots=True)
class _Counts:
    """Since the last reading. outside_s: between steps of which one followed the other; depth: tokens before each decoded one.

    decode_s, prefill_s: of steps that ended since; busy_s: by phase, of all steps, also of one that is still under way.
    """

    began: float
    decode_steps: int = 0
    decoded: int = 0
    prefilled: int = 0
    decode_s: float = 0.0
    prefill_s: float = 0.0
    outside_s: float = 0.0
    n_outside: int = 0
    depth: int = 0
    invalid: int = 0
    crossed: dict[str, tuple[int, int]] = field(default_factory=dict)
    busy_s: dict[Phase, float] = field(default_factory=lambda: {"prefill": 0.0, "decode": 0.0})


class WorkMeter:
    """Steps a model in its stead (`engine.session.generate.StepModel`). Steps come from one thread, readings from another."""

    def __init__(
        self, model: LoadedModel, reads: Callable[[], Mapping[str, TokenReads]], cards: Callable[[], Mapping[str, str]] = dict
    ) -> None:
        """reads: what a token reads, by device; cards: the UUID of each GPU. Both are asked for when somebody watches, and again
        when the model lies elsewhere."""
        self._model = model
        self._ask_reads, self._ask_cards = reads, cards
        self._cards: Mapping[str, str] = {}
        self._reads: Mapping[str, TokenReads] | None = None
        self._placement = model.placement
        self._lock = threading.Lock()
        self._counts = _Counts(time.monotonic())
        self._watched = False
        self._due: dict[Phase, float] = {"prefill": 0.0, "decode": 0.0}
        self._measured: dict[Phase, StepTimes] = {}
        self._outlines = Outlines()
        self._trace: tuple[StepTimes, TokenTrace | None] | None = None
        self._ended: float | None = None
        self._under_way: tuple[Phase, float] | None = None
        """The phase of the step that the engine is in, and since when its time is not yet counted."""

    @property
    def n_ctx(self) -> int:
        """See `StepModel`."""
        return self._model.n_ctx

    @property
    def cache_groups(self) -> tuple[CacheGroup, ...]:
        """See `StepModel`."""
        return self._model.cache_groups

    @property
    def state_slots(self) -> tuple[int, int]:
        """See `StepModel`."""
        return self._model.state_slots

    @property
    def experts(self) -> ExpertTally | None:
        """See `StepModel`."""
        return self._model.experts

    @property
    def chosen(self) -> tuple[Chosen, ...]:
        """See `StepModel`."""
        return self._model.chosen

    def watch(self, *, watched: bool) -> None:
        """Whether anybody wants to know."""
        with self._lock:
            self._watched = watched
            self._counts = _Counts(time.monotonic())
            self._due = {"prefill": 0.0, "decode": 0.0}

    def step(self, batch: StepBatch) -> npt.NDArray[np.float32]:
        """The model's step. Raises: see `LoadedModel.step`."""
        phase: Phase = "decode" if batch.phase == "decode" else "prefill"
        began = time.monotonic()
        executor = self._model.executor
        measured = self._watched and executor is not None and began >= self._due[phase]
        if measured and executor is not None:
            executor.measure, executor.measured = True, None
        with self._lock:
            self._under_way = phase, began
        try:
            logits = self._model.step(batch)
        except InvalidNumbers:
            with self._lock:
                self._counts.invalid += 1
            raise
        finally:
            with self._lock:
                self._count_busy(time.monotonic())
                self._under_way = None
            if measured and executor is not None:
                executor.measure = False
                self._due[phase] = began + MEASURE_EVERY_S
        ended = time.monotonic()
        if self._watched:
            times = executor.measured if measured and executor is not None else None
            self._count(phase, batch, began, ended, times, {} if executor is None else executor.crossed)
        self._ended = ended
        return logits

    def _count_busy(self, now: float) -> None:
        """What a step has taken so far: those of large models outlast many readings."""
        if self._under_way is not None:
            phase, since = self._under_way
            self._counts.busy_s[phase] += max(0.0, now - since)
            self._under_way = phase, now

    def _count(
        self, phase: Phase, batch: StepBatch, began: float, ended: float, times: StepTimes | None, crossed: Crossed
    ) -> None:
        with self._lock:
            if times is not None:
                self._measured[phase] = times
            counts, n_rows = self._counts, len(batch.token_ids)
            for device, (come, left) in crossed.items():
                before = counts.crossed.get(device, (0, 0))
                counts.crossed[device] = before[0] + come, before[1] + left
            if phase == "prefill":
                counts.prefilled += n_rows
                counts.prefill_s += ended - began
                return
            counts.decode_steps += 1
            counts.decoded += n_rows
            counts.decode_s += ended - began
            counts.depth += int(batch.positions.sum())
            if self._ended is not None and began - self._ended < FOLLOWS_S:
                counts.outside_s += began - self._ended
                counts.n_outside += 1

    def sample(self, n_answers: int, kv_used_tokens: int, kv_bytes_per_token: int) -> EngineSample:
        """What was done since the last reading."""
        now = time.monotonic()
        moved = self._placement is not self._model.placement
        if self._reads is None or moved:
            self._placement, self._reads, self._cards = self._model.placement, self._ask_reads(), self._ask_cards()
        if moved:
            with self._lock:
                self._measured.clear()
        with self._lock:
            self._count_busy(now)
            counts, self._counts = self._counts, _Counts(now)
            measured = dict(self._measured)
        period = max(1e-6, now - counts.began)
        decode = measured.get("decode")
        return EngineSample(
            time_s=now,
            period_s=period,
            n_answers=n_answers,
            n_decode_steps=counts.decode_steps,
            n_decoded=counts.decoded,
            n_prefilled=counts.prefilled,
            decode_tok_s=counts.decoded / (counts.decode_s + counts.outside_s) if counts.decoded else None,
            prefill_tok_s=counts.prefilled / counts.prefill_s if counts.prefilled else None,
            step_ms=1e3 * counts.decode_s / counts.decode_steps if counts.decode_steps else None,
            outside_ms=1e3 * counts.outside_s / counts.n_outside if counts.n_outside else None,
            devices=self._devices(counts, period, measured, self._reads),
            ops=() if decode is None else tuple(OpTime(device, kind, 1e3 * seconds) for device, kind, seconds in decode.ops),
            kv_used_tokens=kv_used_tokens,
            kv_total_tokens=self._model.n_ctx,
            kv_bytes_per_token=kv_bytes_per_token,
            trace=None if decode is None else self._traced(decode),
            n_invalid=counts.invalid,
        )

    def _traced(self, times: StepTimes) -> TokenTrace | None:
        """The spans of a measured step, made once."""
        if self._trace is None or self._trace[0] is not times:
            self._trace = times, None if times.stamps is None else trace_of(times.stamps, self._outlines)
        return self._trace[1]

    def _devices(
        self, counts: _Counts, period: float, measured: Mapping[Phase, StepTimes], reads: Mapping[str, TokenReads]
    ) -> tuple[DeviceWork, ...]:
        decode, prefill = shares(measured.get("decode")), shares(measured.get("prefill"))
        names = sorted({*decode, *prefill, *reads}, key=lambda name: (name.startswith("gpu"), name)) or [HOME]
        return tuple(self._device(name, counts, period, decode, prefill, reads.get(name)) for name in names)

    def _device(
        self,
        name: str,
        counts: _Counts,
        period: float,
        decode: Mapping[str, float],
        prefill: Mapping[str, float],
        reads: TokenReads | None,
    ) -> DeviceWork:
        share = decode.get(name, 0.0)
        working = counts.busy_s["decode"] * share + counts.busy_s["prefill"] * prefill.get(name, 0.0)
        crossed = counts.crossed.get(name)
        come, left = (None, None) if crossed is None else (crossed[0] / period, crossed[1] / period)
        if not counts.decode_steps:
            percent = min(100.0, 100.0 * working / period)
            return DeviceWork(name, percent, in_bytes_per_s=come, out_bytes_per_s=left, card=self._cards.get(name, ""))
        step_s = counts.decode_s / counts.decode_steps
        computing_s = share * step_s
        # Rows of one step share the weights, which is exact for one row and for layers without experts.
        nbytes = None
        if reads is not None:
            weights, rows = reads.weight_bytes + reads.state_bytes, counts.decoded / counts.decode_steps
            nbytes = weights + rows * (reads.at(counts.depth / counts.decoded) - weights)
        return DeviceWork(
            device=name,
            working_percent=min(100.0, 100.0 * working / period),
            token_ms=1e3 * computing_s,
            waiting_ms=1e3 * (step_s - computing_s),
            read_bytes_per_token=None if nbytes is None else round(nbytes),
            read_bytes_per_s=None if nbytes is None or computing_s <= 0 else nbytes / computing_s,
            in_bytes_per_s=come,
            out_bytes_per_s=left,
            card=self._cards.get(name, ""),
        )


def shares(times: StepTimes | None) -> dict[str, float]:
    """Of a step's time, the share in which each device computed; without any, all of it is the CPU's."""
    if times is None or not times.parts:
        return {}
    found = {}
    for part in times.parts:
        whole = part.computing_s + part.waiting_s
        found[part.device] = part.computing_s / whole if whole > 0 else 0.0
    return found
