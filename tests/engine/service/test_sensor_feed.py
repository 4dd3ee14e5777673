"""Readings come in their rhythm whatever cards do, and end when they are to end."""

from __future__ import annotations

import threading
import time
from itertools import pairwise
from pathlib import Path

import pytest

from engine.api.events import Counters, Event, Sensors
from engine.api.values import EngineSample, RequestId
from engine.hardware.gpu_watch import GpuWatch
from engine.service.sensor_feed import SensorFeed
from tests.helpers.nvml import Cards, build


class Heard:
    """What a listener was told."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.told = threading.Event()

    def __call__(self, event: Event) -> None:
        self.events.append(event)
        self.told.set()

    @property
    def sensors(self) -> list[Sensors]:
        return [one for one in self.events if isinstance(one, Sensors)]


@pytest.fixture
def cards(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Cards:
    return Cards(tmp_path, build(tmp_path_factory.mktemp("nvml")), monkeypatch)


def until(condition: object, within_s: float = 20.0) -> None:
    for _ in range(int(within_s / 0.02)):
        if condition():  # type: ignore[operator]
            return
        time.sleep(0.02)
    raise AssertionError("waited in vain")


def test_a_card_that_hangs_stops_neither_readings_nor_their_end(cards: Cards) -> None:
    heard = Heard()
    feed = SensorFeed(heard, lambda: None, cards.root)
    feed.follow(RequestId("a"), 0.2, details=False)
    until(
        lambda: (
            heard.sensors
            and all(one.state == "ok" for one in heard.sensors[-1].snapshot.gpus)
            and heard.sensors[-1].snapshot.gpus
        )
    )
    cards.become("gpus 4", "hang 1 5000")
    hung, n = time.monotonic(), len(heard.sensors)
    until(lambda: heard.sensors[-1].snapshot.gpus[1].state == "silent")
    told = next(one.snapshot for one in heard.sensors[n:] if one.snapshot.gpus[1].state == "silent")
    assert told.gpus[1].problem
    assert told.time_s - hung < 3.0
    times = [one.snapshot.time_s for one in heard.sensors[n:]]
    assert len(times) >= 5
    assert max(after - before for before, after in pairwise(times)) < 1.0
    began = time.monotonic()
    feed.close()
    assert time.monotonic() - began < 2.0
    n = len(heard.events)
    time.sleep(0.5)
    assert len(heard.events) == n


def test_a_change_is_told_before_the_next_reading_is_due(cards: Cards) -> None:
    heard = Heard()
    gpus_told = threading.Event()
    gpus = GpuWatch(cards.root, gpus_told.set)
    feed = SensorFeed(heard, lambda: None, cards.root, gpus)
    # The feed's own watch wakes it; one that is given has its own listener.
    feed.follow(RequestId("a"), 0.1, details=False)
    until(lambda: heard.sensors and len(heard.sensors[-1].snapshot.gpus) == 4)
    assert gpus_told.is_set()
    feed.close()


def test_readings_carry_the_id_of_who_asked_last_and_the_work_beside_them(tmp_path: Path) -> None:
    heard = Heard()
    work = EngineSample(1.0, 0.1, n_decoded=3)
    feed = SensorFeed(heard, lambda: work, tmp_path)
    feed.follow(RequestId("a"), 0.1, details=False)
    until(lambda: len(heard.sensors) >= 2)
    feed.follow(RequestId("b"), 0.1, details=True)
    until(lambda: heard.sensors[-1].request_id == "b")
    assert [type(one) for one in heard.events[:4]] == [Sensors, Counters, Sensors, Counters]
    assert isinstance(heard.events[1], Counters)
    assert heard.events[1].sample is work
    feed.close()
    feed.close()


def test_readings_are_rarer_on_battery(tmp_path: Path) -> None:
    supply = tmp_path / "sys/class/power_supply/BAT0"
    supply.mkdir(parents=True)
    (supply / "status").write_text("Discharging\n")
    heard = Heard()
    feed = SensorFeed(heard, lambda: None, tmp_path)
    feed.follow(RequestId("a"), 0.1, details=False)
    until(lambda: bool(heard.sensors))
    time.sleep(0.5)
    assert len(heard.sensors) == 1
    cost = heard.sensors[0].snapshot.cost
    assert cost is not None
    assert cost.period_s == 5.0
    feed.close()
