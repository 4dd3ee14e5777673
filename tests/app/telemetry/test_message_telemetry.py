"""What is kept with a message: small, close to what was, thinned rather than cut, and harmless when damaged."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.telemetry import keys
from app.telemetry.message_telemetry import (
    MAX_BYTES,
    Card,
    MessageTelemetry,
    TelemetryDamaged,
    packed,
    unpacked,
)
from app.telemetry.readings import kept
from app.telemetry.replay import NOT_KEPT, replayed, shown_again
from engine.api.values import why

GB = 10**9
CARD = Card("GPU-a", "0000:01:00.0", "RTX 4090", "nvidia", 24 * GB)


def telemetry(n_rows: int, n_cards: int = 1, seed: int = 1) -> MessageTelemetry:
    rng = np.random.default_rng(seed)
    cards = tuple(replace(CARD, key=f"GPU-{i}") for i in range(n_cards))
    columns = {keys.decode(): 13 + rng.random(n_rows), keys.power(): 900 + 50 * rng.random(n_rows)}
    for card in cards:
        columns[keys.gpu(card.key, "temperature_c")] = np.round(60 + 10 * rng.random(n_rows))
        columns[keys.gpu(card.key, "memory_used_bytes")] = np.full(n_rows, 20.0 * GB)
        columns[keys.gpu(card.key, "power_w")] = 150 + 30 * rng.random(n_rows)
    for i in range(n_cards):
        columns[keys.device(f"gpu{i}", "working_percent")] = 100 * rng.random(n_rows)
    columns[keys.decode()][: n_rows // 4] = np.nan
    times = np.arange(n_rows) + rng.random(n_rows) * 0.01
    return MessageTelemetry(1.7e9, 1.0, "Qwen3", "EPYC", 512 * GB, cards, times, columns)


def test_what_is_read_is_what_was_written() -> None:
    before = telemetry(40, n_cards=2)
    after = unpacked(packed(before))
    assert (after.began_s, after.period_s, after.model, after.cards) == (1.7e9, 1.0, "Qwen3", before.cards)
    assert after.times_s == pytest.approx(before.times_s, abs=1e-3)
    assert list(after.columns) == list(before.columns)
    for key, values in before.columns.items():
        span = np.nanmax(values) - np.nanmin(values)
        np.testing.assert_allclose(after.columns[key], values, atol=max(span / 65_000, 1e-9), err_msg=key)


@pytest.mark.parametrize(("n_rows", "n_cards"), [(1, 1), (60, 4), (1800, 4), (4096, 16)])
def test_it_is_small_and_whole_whatever_the_answer_took(n_rows: int, n_cards: int) -> None:
    before = telemetry(n_rows, n_cards)
    data = packed(before)
    assert len(data) <= MAX_BYTES
    after = unpacked(data)
    assert after.times_s[0] == pytest.approx(before.times_s[0], abs=1e-3)
    assert after.times_s[-1] + after.period_s >= n_rows - 1
    assert np.nanmean(after.columns[keys.power()]) == pytest.approx(np.nanmean(before.columns[keys.power()]), rel=0.01)


def test_more_gauges_than_fit_are_refused() -> None:
    wide = replace(telemetry(1), columns={f"device/{random.Random(i).random()}/x": np.zeros(1) for i in range(3000)})
    with pytest.raises(ValueError, match="3000 gauges"):
        packed(wide)


def test_only_some_gauges_are_kept() -> None:
    wanted = (
        keys.decode(),
        keys.gpu("0000:01:00.0", "power_w"),
        keys.device("numa0", "read_bytes_per_s"),
        keys.cpu("temperature_c"),
    )
    other = (keys.gpu("a", "fan_percent"), keys.node(0, "used_bytes"), keys.memory("available_bytes"))
    assert kept(dict.fromkeys((*wanted, *other), 1.0)) == dict.fromkeys(wanted, 1.0)


def test_a_continued_answer_goes_on_behind_a_gap() -> None:
    joined = telemetry(10).then(replace(telemetry(5, n_cards=2, seed=2), period_s=2.0))
    assert len(joined.times_s) == 15
    assert joined.times_s[10] - joined.times_s[9] >= 6.0
    assert (np.diff(joined.times_s) > 0).all()
    assert np.isnan(joined.columns[keys.gpu("GPU-1", "power_w")][:10]).all()
    shown = shown_again(unpacked(packed(joined)))
    _, values = shown.timeline.series(keys.power(), 1e6, 1000)
    assert np.isnan(values[10])


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300), st.integers(0, 10**6))
def test_damage_is_told_and_nothing_else_happens(junk: bytes, seed: int) -> None:
    rng = random.Random(seed)
    data = bytearray(packed(telemetry(30)))
    for _ in range(rng.randint(1, 5)):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    for damaged in (junk, bytes([1]) + junk, bytes(data[: rng.randrange(len(data))]), bytes(data)):
        try:
            unpacked(damaged)
        except TelemetryDamaged:
            continue


def test_shown_again() -> None:
    before = telemetry(40, n_cards=2)
    shown = shown_again(unpacked(packed(before))).judged(0)
    assert shown.snapshot is not None
    assert shown.work is not None
    times, values = shown.timeline.series(keys.decode(), 1000.0, 1000)
    assert len(times) == 40
    assert np.isnan(values[:10]).all()
    np.testing.assert_allclose(values[10:], before.columns[keys.decode()][10:], rtol=1e-4)
    card = shown.snapshot.gpus[1]
    assert card.temperature_c == pytest.approx(before.columns[keys.gpu("GPU-1", "temperature_c")][-1], abs=0.01)
    assert (card.fan_percent, why(card.missing, "fan_percent")) == (None, NOT_KEPT)
    assert shown.healths["GPU-1"].level == "ok"
    assert [one.device for one in shown.work.devices] == ["gpu0", "gpu1"]
    told = replayed(7, before)
    assert (told.message_id, told.model, round(told.span_s)) == (7, "Qwen3", 39)
