"""The diagnosis over the monitors' readings: findings, gains worked out beside the window, previews, scores."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from app.bridge.ui_thread import UiThread
from app.ops.diagnosis_facts import Asked
from app.ops.diagnosis_ops import DiagnosisOps, Preview
from engine.advice.diagnosis.finding import Gain, gain_sentence
from engine.api.commands import AskHoldings
from engine.api.events import Counters, Failed, Holdings, ModelReady, ModelUnloaded, PlacementApplied, Sensors
from engine.api.values import EngineSample, HardwareSnapshot, RequestId
from engine.arch.units import UnitId
from engine.placement.placement import Gpu
from tests.app.ops.conftest import Bench
from tests.helpers import windows
from tests.helpers.windows import GB, card, device, info, with_cards, work

ID = RequestId("sensors")
LOADED = info(1)
assert LOADED.placement is not None
THERE = replace(
    LOADED.placement,
    units=tuple((unit, Gpu(0) if unit == UnitId("experts", 3) else where) for unit, where in LOADED.placement.units),
)
GAIN = Gain(20.0, 1.0, THERE, "Move 1 more layer's experts to GPU 0 (18.0 GB free)", 1, Gpu(0), GB)


class Scripted:
    """Proposals that are known beforehand."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.answer: Gain | None = GAIN

    def gain(self, asked: Asked) -> Gain | None:
        self.asked.append(asked)
        return self.answer

    def ceilings(self) -> tuple[Mapping[str, float], int]:
        return {"numa0": 41.0 * GB}, 512


class Desk:
    """The operation, its readings and what it told."""

    def __init__(self, bench: Bench, folder: Path, pool: ThreadPoolExecutor) -> None:
        self.bench, self.scripted = bench, Scripted()
        self.ui = UiThread()
        self.ops = DiagnosisOps(bench.bridge, bench.monitors, self.ui, pool, folder, lambda: self.scripted)
        self.previews: list[Preview] = []
        self.ops.preview_requested.connect(self.previews.append)
        bench.monitors._topology = windows.topology()
        bench.monitors.set_watching("page", 1.0)
        self.at = time.monotonic() + 100

    def load(self) -> None:
        self.bench.engine.tell(ModelReady(ID, LOADED))
        self.bench.qtbot.waitUntil(lambda: bool(self.ops._facts.now.ceilings))

    def read(self, n: int, sample: EngineSample, each: HardwareSnapshot) -> None:
        """n readings, a second apart."""
        for _ in range(n):
            self.at += 1.0
            here = replace(each, time_s=self.at)
            self.bench.engine.tell(Sensors(ID, here), Counters(ID, replace(sample, time_s=self.at)))
            self.bench.qtbot.waitUntil(lambda at=self.at: getattr(self.bench.monitors.now.snapshot, "time_s", 0) == at)


@pytest.fixture
def desk(bench: Bench, tmp_path: Path) -> Iterator[Desk]:
    pool = ThreadPoolExecutor(1)
    made = Desk(bench, tmp_path / "data", pool)
    yield made
    made.ui.close()
    pool.shutdown()


BOUND = work(0, (device("numa0", 0.8, read_bytes_per_s=38 * GB), device("gpu0", 0.15)))
SNAPSHOT = with_cards(card())(0)


def ids(desk: Desk) -> list[str]:
    return [one.id for one in desk.ops.findings]


def test_a_limit_is_told_with_what_is_to_be_gained_previewed_and_scored(desk: Desk) -> None:
    desk.load()
    desk.read(12, BOUND, SNAPSHOT)
    desk.bench.qtbot.waitUntil(lambda: ids(desk) == ["R-CPU-BW"] and desk.ops.findings[0].gain is not None)
    finding = desk.ops.findings[0]
    assert finding.gain == GAIN
    assert finding.action.text
    assert desk.scripted.asked[0].action.device == "numa0"
    assert desk.scripted.asked[0].tok_s == pytest.approx(19.5)
    desk.ops.act(finding)
    assert desk.previews == [Preview(LOADED.path, THERE, GAIN.text, gain_sentence(GAIN), LOADED)]
    desk.bench.engine.tell(PlacementApplied(ID, replace(LOADED, placement=THERE), GB, 0.1))
    desk.read(12, replace(BOUND, decode_tok_s=23.4, kv_used_tokens=2000), SNAPSHOT)
    desk.bench.qtbot.waitUntil(lambda: len(desk.ops.scores.all) == 1)
    score = desk.ops.scores.all[0]
    assert score.predicted == 20.0
    assert score.real == pytest.approx(20.0)
    assert desk.ops.scores.sentence() == "The last prediction was off by 0 %."


def test_where_nothing_is_to_be_gained_there_is_no_button(desk: Desk) -> None:
    desk.scripted.answer = None
    desk.load()
    desk.read(12, BOUND, SNAPSHOT)
    assert ids(desk) == ["R-CPU-BW"]
    assert desk.ops.findings[0].action.text == ""


def test_what_is_dismissed_stays_quiet_and_balance_is_told(desk: Desk) -> None:
    desk.load()
    desk.read(12, BOUND, SNAPSHOT)
    desk.ops.dismiss(desk.ops.findings[0])
    desk.read(2, BOUND, SNAPSHOT)
    assert desk.ops.findings == ()
    assert desk.ops.line == "Balanced: CPU 80 %, GPU 15 %."


def test_a_lost_device_is_told_at_once(desk: Desk) -> None:
    desk.load()
    desk.bench.engine.tell(
        Failed(RequestId("a"), "DeviceLost", "gpu0 (A card) stopped working (CUDA error); load the model again")
    )
    desk.read(1, BOUND, SNAPSHOT)
    assert ids(desk) == ["R-LOST"]
    assert "GPU 0 stopped answering at" in desk.ops.line


def test_the_placement_without_a_lost_card_is_proposed_after_the_model_went_with_it(desk: Desk) -> None:
    desk.load()
    desk.bench.engine.tell(Failed(RequestId("a"), "DeviceLost", "gpu0 (A card) stopped working; load the model again"))
    desk.bench.engine.tell(ModelUnloaded(ID))
    desk.read(1, replace(BOUND, devices=(), n_decode_steps=0, decode_tok_s=None, step_ms=None), SNAPSHOT)
    desk.bench.qtbot.waitUntil(lambda: bool(desk.ops.findings) and desk.ops.findings[0].gain is not None)
    asked = desk.scripted.asked[-1]
    assert (asked.info, asked.action.does, asked.action.device, asked.measured) == (LOADED, "without", "gpu0", None)
    desk.ops.act(desk.ops.findings[0])
    assert desk.previews[-1].lost == "gpu0" and desk.previews[-1].info == LOADED
    desk.bench.engine.tell(ModelReady(ID, replace(LOADED, placement=THERE)))
    desk.read(12, BOUND, SNAPSHOT)
    assert desk.ops.scores.all == ()  # it was no matter of speed


def test_where_pages_lie_is_asked_beside_the_chat_too(desk: Desk) -> None:
    desk.bench.monitors._topology = windows.topology(2)
    desk.load()
    desk.read(3, BOUND, SNAPSHOT)
    assert len(desk.bench.engine.sent(AskHoldings)) == 1
    desk.bench.engine.tell(Holdings(ID, (), (), 0.4))
    desk.read(8, BOUND, SNAPSHOT)
    assert "R-NUMA-1" in ids(desk) and len(desk.bench.engine.sent(AskHoldings)) == 1
    # After the placement was applied once more it is asked at once.
    desk.bench.engine.tell(PlacementApplied(ID, LOADED, GB, 0.0))
    desk.read(2, BOUND, SNAPSHOT)
    assert len(desk.bench.engine.sent(AskHoldings)) == 2 and "R-NUMA-1" not in ids(desk)


FULL = with_cards(card(memory_free_bytes=400_000_000))(0)


def test_a_full_card_asks_for_as_much_room_as_it_lacks(desk: Desk) -> None:
    desk.load()
    desk.read(12, replace(BOUND, devices=(device("numa0", 0.5), device("gpu0", 0.4))), FULL)
    desk.bench.qtbot.waitUntil(lambda: ids(desk) == ["R-VRAM"] and desk.ops.findings[0].gain is not None)
    asked = desk.scripted.asked[-1]
    assert (asked.action.does, asked.action.device, asked.action.nbytes) == ("make room", "gpu0", 300_000_000)
    assert asked.measured is not None


def test_where_no_placement_helps_the_button_is_another_one(desk: Desk) -> None:
    desk.scripted.answer = None
    desk.load()
    requested: list[str] = []
    desk.ops.action_requested.connect(lambda finding: requested.append(finding.action.does))
    desk.read(12, replace(BOUND, devices=(device("numa0", 0.5), device("gpu0", 0.4))), FULL)
    desk.bench.qtbot.waitUntil(lambda: ids(desk) == ["R-VRAM"] and bool(desk.ops.findings[0].action.text))
    assert desk.ops.findings[0].action.does == "model"
    desk.ops.act(desk.ops.findings[0])
    assert requested == ["model"] and not desk.previews


def test_a_prompt_that_waits_for_the_cpu_asks_for_a_placement_that_reads_faster(desk: Desk) -> None:
    desk.load()
    reading = work(
        0,
        (device("numa0", 0.97, token_ms=None),),
        n_decode_steps=0,
        n_decoded=0,
        step_ms=None,
        decode_tok_s=None,
        n_prefilled=500,
        prompt_tokens=20_000,
        prompt_done=4000,
        prefill_tok_s=380.0,
    )
    desk.read(12, reading, windows.snapshot(0))
    desk.bench.qtbot.waitUntil(lambda: "R-CPU-COMP" in ids(desk) and desk.ops.findings[0].gain is not None)
    asked = desk.scripted.asked[-1]
    assert (asked.action.does, asked.action.target) == ("rebalance", "prompts")
    assert asked.measured is not None and asked.measured.shares["numa0"] == pytest.approx(0.97)


def test_invalid_numbers_that_no_reading_counted_are_told_first(desk: Desk) -> None:
    desk.load()
    desk.at = time.monotonic() - 15
    desk.read(12, BOUND, SNAPSHOT)
    desk.bench.engine.tell(Failed(RequestId("a"), "InvalidNumbers", "the model computed non-finite values in layer 7 (ffn)"))
    desk.bench.qtbot.waitUntil(lambda: desk.ops._facts.now.invalid is not None)
    desk.read(1, BOUND, SNAPSHOT)
    assert ids(desk)[0] == "R-NAN"
    assert "layer 7" in desk.ops.findings[0].why
    assert desk.ops.line.startswith("The model produced invalid numbers.")
    desk.read(4, BOUND, SNAPSHOT)
    assert ids(desk)[0] == "R-NAN"
    desk.bench.engine.tell(ModelReady(ID, LOADED))
    desk.bench.qtbot.waitUntil(lambda: ids(desk) == [])
