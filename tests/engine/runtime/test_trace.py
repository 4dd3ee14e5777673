"""Where a step's time went: labels, merging, clocks of cards brought to the host's, real steps on one device and several."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import groupby, pairwise
from typing import Any, cast

import numpy as np
import pytest

from engine.arch.units import UnitId
from engine.hardware.work import TokenTrace, TraceSpan
from engine.placement.placement import Device, Gpu
from engine.program.lane_ops import LaneNorm
from engine.program.lane_transfer import LaneRecv, LaneSend
from engine.program.plan import Exchange, Lane, Plan
from engine.runtime.measured import waited
from engine.runtime.stamps import Beside, CardStamps, Piece, Stamps, card_offsets
from engine.runtime.trace import MAX_SPANS, Outlines, label_of_all, trace_of
from tests.helpers.golden_models import LLAMAS, batch, golden
from tests.helpers.placed import CPU, GPU, hybrid, need_torch, on_cpu, open_placed, split, whole

MS = 1_000_000


def op(kind: Any, layer: int) -> LaneNorm:
    return LaneNorm(UnitId(kind, layer), cast(Any, None), cast(Any, None), cast(Any, None), 1, False)


def send(flag: int, layer: int, to: Device) -> LaneSend:
    return LaneSend(UnitId("ffn", layer), (), to, flag, False)


def recv(flag: int, layer: int, source: Device) -> LaneRecv:
    return LaneRecv(UnitId("ffn", layer), (), source, flag, False)


def lane(device: Device, *ops: Any) -> Lane:
    return Lane(device, ops, (True,) * len(ops), {}, 0, None)


def of_device(trace: TokenTrace, device: str) -> list[TraceSpan]:
    return [span for span in trace.spans if span.device == device]


def sound(trace: TokenTrace) -> None:
    """Spans are in order by device, inside the step, and do not overlap."""
    assert len(trace.spans) <= MAX_SPANS
    for _, found in groupby(trace.spans, lambda span: span.device):
        spans = list(found)
        assert all(span.ms > 0 and span.start_ms >= 0 for span in spans)
        assert all(span.start_ms + span.ms <= trace.total_ms * 1.0001 for span in spans)
        assert all(before.start_ms + before.ms <= after.start_ms + 1e-6 for before, after in pairwise(spans))
    devices = [device for device, _ in groupby(trace.spans, lambda span: span.device)]
    assert len(set(devices)) == len(devices)


def test_neighbours_of_one_kind_and_layer_are_one_span() -> None:
    cpu = lane(
        CPU, op("embed", -1), op("mixer", 0), op("mixer", 0), op("ffn", 0), op("experts", 0), op("experts", 1), op("head", -1)
    )
    marks = np.array([0, 1, 3, 5, 6, 16, 26, 30]) * MS
    trace = trace_of(Stamps(0, 30 * MS, (Piece(cpu, 0, 7, marks),)), Outlines())
    assert [(one.kind, one.layer, one.start_ms, one.ms) for one in trace.spans] == [
        ("other", None, 0.0, 1.0),
        ("attention", 0, 1.0, 4.0),
        ("ffn", 0, 5.0, 1.0),
        ("experts", 0, 6.0, 10.0),
        ("experts", 1, 16.0, 10.0),
        ("other", None, 26.0, 4.0),
    ]
    assert (trace.total_ms, trace.time_s) == (30.0, 0.0)
    sound(trace)


def test_many_layers_stay_few_spans_and_no_time_is_lost() -> None:
    rng = random.Random(1)
    ops = [op(kind, layer) for layer in range(500) for kind in ("mixer", "ffn", "experts", "shared")]
    marks = np.cumsum([0, *(rng.choice((5, 500, 1500)) * 1000 for _ in ops)])
    trace = trace_of(Stamps(0, int(marks[-1]), (Piece(lane(CPU, *ops), 0, len(ops), marks),)), Outlines())
    sound(trace)
    assert sum(span.ms for span in trace.spans) == pytest.approx(trace.total_ms)


def test_what_nobody_timed_is_named_only_where_it_can_be() -> None:
    assert label_of_all([op("ffn", 3), op("mixer", 4), op("ffn", 4)]) == ("attention", 4)
    assert label_of_all([op("shared", 4)]) == ("ffn", 4)
    assert label_of_all([op("mixer", layer) for layer in range(30)]) == ("other", None)
    assert label_of_all([]) == ("other", None)


def beside(skew: int, jitter: int = 0) -> tuple[Beside, int, int]:
    """Two layers whose experts the CPU computes, on a card whose clock is `skew` ahead. The true times are known."""
    rng = random.Random(jitter)
    gpu = lane(
        GPU, op("mixer", 0), send(0, 0, CPU), recv(1, 0, CPU), op("mixer", 1), send(2, 1, CPU), recv(3, 1, CPU), op("head", -1)
    )
    cpu = lane(CPU, recv(0, 0, GPU), op("experts", 0), send(1, 0, GPU), recv(2, 1, GPU), op("experts", 1), send(3, 1, GPU))
    exchanges = (Exchange(0, 0, 1, 1, 0), Exchange(1, 1, 2, 0, 2), Exchange(2, 0, 4, 1, 3), Exchange(3, 1, 5, 0, 5))
    plan = Plan("decode", 1, False, (gpu, cpu), exchanges, ())
    hop = [2000 + rng.randint(0, jitter) for _ in range(4)]
    base = 5_000_000_000
    sent0 = base + 1 * MS
    got0 = sent0 + hop[0]
    sent1 = got0 + 4 * MS
    got1 = sent1 + hop[1]
    sent2 = got1 + 2 * MS
    got2 = sent2 + hop[2]
    sent3 = got2 + 4 * MS
    got3 = sent3 + hop[3]
    host = np.array([[base + 100, got0], [sent1, sent1], [sent1 + 50, got2], [sent3, sent3]])
    card = np.array([[sent0, sent0], [sent0 + 500, got1], [sent2, sent2], [sent2 + 500, got3]]) + skew
    return Beside(plan, host, (CardStamps(0, base + 8000 + skew, card),)), base, got3 + MS


@pytest.mark.parametrize("skew", [0, 10**15, -(10**12)])
@pytest.mark.parametrize("jitter", [0, 3000])
def test_a_cards_clock_is_brought_to_the_hosts(skew: int, jitter: int) -> None:
    noted, began, ended = beside(skew, jitter)
    offset = card_offsets(noted, began, ended)[0]
    assert abs(offset + skew) < 5000
    trace = trace_of(Stamps(began, ended, (), noted), Outlines())
    sound(trace)
    gpu = of_device(trace, "gpu0")
    assert [(span.kind, span.layer) for span in gpu] == [
        ("attention", 0), ("wait", 0), ("attention", 1), ("wait", 1), ("other", None)
    ]  # fmt: skip
    assert [span.ms for span in gpu] == pytest.approx([1.0, 4.0, 2.0, 4.0, 1.0], abs=0.02)
    assert waited(noted.plan, noted.cards[0]) == pytest.approx(8e-3, abs=2e-5)


def test_cards_that_only_meet_each_other_are_in_order_too() -> None:
    first = lane(Gpu(0), op("mixer", 0), send(0, 0, Gpu(1)))
    second = lane(Gpu(1), recv(0, 0, Gpu(0)), op("mixer", 1))
    plan = Plan("decode", 1, False, (first, second), (Exchange(0, 0, 1, 1, 0),), ())
    base, late, early = 10**9, 10**14, -(10**14)
    sent, got = base + 3 * MS, base + 3 * MS + 4000
    cards = (
        CardStamps(0, base + 9000 + late, np.array([[sent, sent]]) + late),
        CardStamps(1, base + 9000 + early, np.array([[base + 12000, got]]) + early),
    )
    trace = trace_of(Stamps(base, base + 6 * MS, (), Beside(plan, np.zeros((1, 2), np.int64), cards)), Outlines())
    sound(trace)
    assert [(span.device, span.kind) for span in trace.spans] == [("gpu0", "attention"), ("gpu1", "wait"), ("gpu1", "attention")]
    assert trace.spans[0].ms == pytest.approx(3.0, abs=0.05)
    assert trace.spans[2].start_ms == pytest.approx(3.0, abs=0.05)


def measured(model: Any) -> TokenTrace:
    """A trace of one real decode step."""
    ids = np.arange(3, 9, dtype=np.int32)
    model.step(batch(ids))
    executor = model.executor
    executor.measure = True
    model.step(replace(batch(ids[:1], 6), phase="decode"))
    executor.measure = False
    assert executor.measured.stamps is not None
    return trace_of(executor.measured.stamps, Outlines())


@pytest.mark.parametrize("where", [on_cpu, hybrid, whole, split])
def test_real_steps(where: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    if where is not on_cpu:
        need_torch()
    monkeypatch.setenv("LAYERDECK_GPU", "none" if where is on_cpu else "emulate:2")
    model = open_placed(golden(LLAMAS[0]).path, where)
    try:
        trace = measured(model)
        took_ms = 1e3 * model.executor.last_step_s
    finally:
        model.close()
    sound(trace)
    assert trace.total_ms == pytest.approx(took_ms, rel=1e-3)
    assert sum(span.ms for span in trace.spans) > 0.5 * trace.total_ms
    devices = {on_cpu: {"numa0"}, hybrid: {"numa0", "gpu0"}, whole: {"gpu0"}, split: {"gpu0", "gpu1"}}[where]
    assert {span.device for span in trace.spans} == devices
    assert {"attention", "ffn"} <= {span.kind for span in trace.spans}
    layers = [span.layer for span in trace.spans if span.kind == "attention"]
    assert layers == sorted(layers)
