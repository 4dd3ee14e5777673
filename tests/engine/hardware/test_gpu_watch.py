"""Whatever happens to cards, their driver or the sensor process: the others go on, and the reason is told within 3 s."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.hardware import gpu_card, gpu_rounds
from engine.hardware.gpu_watch import GpuWatch
from engine.hardware.snapshot import GpuSample, why
from tests.helpers.nvml import Cards, build, wait_for

TOLD_S = 3.0
START_S = 20.0
"""Until the first process is up, on a machine that is busy with other tests."""


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def cards(tmp_path: Path, library: Path, monkeypatch: pytest.MonkeyPatch) -> Cards:
    return Cards(tmp_path, library, monkeypatch)


@pytest.fixture
def watch(cards: Cards) -> Iterator[GpuWatch]:
    made = GpuWatch(cards.root)
    yield made
    made.close()


def all_ok(samples: tuple[GpuSample, ...]) -> bool:
    return len(samples) == 4 and all(one.state == "ok" and one.age_s < 1 for one in samples)


def started(watch: GpuWatch, period_s: float = 0.1) -> tuple[GpuSample, ...]:
    watch.start(period_s)
    return wait_for(watch, all_ok, START_S)


def but_one_ok(samples: tuple[GpuSample, ...], index: int) -> bool:
    """All others answer, with values of now."""
    return all(one.state == "ok" and one.age_s < 1 for i, one in enumerate(samples) if i != index)


def test_healthy_cards_tell_all_there_is(watch: GpuWatch) -> None:
    one = started(watch)[1]
    assert (one.key, one.pci) == ("GPU-00000000-0000-0000-0000-000000000001", "0000:02:00.0")
    assert (one.name, one.maker, one.problem) == ("NVIDIA GeForce RTX 4090", "nvidia", "")
    assert (one.busy_percent, one.memory_busy_percent) == (12, 6)
    mib = 1 << 20
    assert (one.memory_total_bytes, one.memory_used_bytes) == (24564 * mib, 4000 * mib)
    assert (one.memory_reserved_bytes, one.memory_free_bytes) == (388 * mib, (24564 - 4388) * mib)
    assert (one.temperature_c, one.slowdown_temperature_c, one.margin_c) == (54, 97, 43)
    assert (one.power_w, one.power_limit_w, one.power_limit_default_w) == (210, 450, 450)
    assert (one.core_clock_mhz, one.core_clock_max_mhz, one.memory_clock_mhz) == (2520, 3105, 10501)
    assert (one.performance_state, one.slow_reasons, one.fan_percent) == (2, (), 44)
    assert (one.link_generation, one.link_width, one.link_width_max, one.link_replays) == (4, 16, 16, 3)
    assert why(one.missing, "ecc_errors") == "this card does not offer it"
    assert why(one.missing, "memory_temperature_c") == "this card does not offer it"
    assert "details" in why(one.missing, "processes")
    # Every gauge has a value or a reason, never both.
    for name in GpuSample.__slots__:
        if name not in ("node", "missing"):
            assert (getattr(one, name) is None) == bool(why(one.missing, name)), name
    assert watch.cost_ms is not None


def test_reasons_for_a_low_clock_are_told_in_words(cards: Cards, watch: GpuWatch) -> None:
    started(watch)
    cards.become("gpus 4", "set reasons 36")
    samples = wait_for(watch, lambda found: found[0].slow_bits == 36, TOLD_S)
    assert samples[0].slow_reasons == ("it is at its power limit", "it is hot: the driver slows it down")


def test_details_are_told_only_while_they_are_wanted(watch: GpuWatch) -> None:
    started(watch)
    watch.adjust(details=True)
    samples = wait_for(watch, lambda found: found[0].processes is not None and found[0].link_read_bytes_per_s is not None, TOLD_S)
    (process,) = samples[0].processes or ()
    assert (process.pid, process.memory_bytes) == (watch.pid, 4000 << 20)
    assert (samples[0].link_read_bytes_per_s, samples[0].link_write_bytes_per_s) == (150e6, 90e6)
    watch.adjust(details=False)
    wait_for(watch, lambda found: all(one.processes is None and one.link_read_bytes_per_s is None for one in found), TOLD_S)


def test_what_one_card_does_not_offer_is_never_asked_again(cards: Cards, watch: GpuWatch) -> None:
    cards.become("gpus 4", "fails nvmlDeviceGetPowerUsage", "fails nvmlDeviceGetNumFans", "fails nvmlDeviceGetFanSpeed")
    one = started(watch)[0]
    assert (one.power_w, why(one.missing, "power_w")) == (None, "this card does not offer it")
    assert why(one.missing, "fan_percent") == "this card has no fan of its own"
    assert one.temperature_c == 54
    cards.become("gpus 4", "set temp 61")
    one = wait_for(watch, lambda found: found[0].temperature_c == 61, TOLD_S)[0]
    assert one.power_w is None


@pytest.mark.parametrize(("setting", "field"), [("total0", "memory_total_bytes"), ("junk", "busy_percent")])
def test_what_cannot_be_is_no_value(cards: Cards, watch: GpuWatch, setting: str, field: str) -> None:
    cards.become("gpus 4", f"set {setting} 1")
    one = started(watch)[0]
    assert getattr(one, field) is None
    assert why(one.missing, field)
    assert one.temperature_c == 54


def test_the_older_question_for_memory_serves_an_older_driver(cards: Cards, watch: GpuWatch) -> None:
    cards.become("gpus 4", "set v1 1")
    one = started(watch)[0]
    assert one.memory_used_bytes == 4388 << 20
    assert (one.memory_reserved_bytes, why(one.missing, "memory_reserved_bytes")) == (
        None,
        "the installed driver does not offer it",
    )


@pytest.mark.parametrize("line", ["lost 1", "unknown 1"])
def test_a_lost_card_is_told_and_found_again(cards: Cards, watch: GpuWatch, monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    monkeypatch.setattr(gpu_card, "LOST_AGAIN_S", (1.0, 1.0))
    started(watch)
    cards.become("gpus 4", line)
    samples = wait_for(watch, lambda found: found[1].state == "lost" and but_one_ok(found, 1), TOLD_S)
    assert "fell off the bus" in samples[1].problem
    assert samples[1].temperature_c is None
    assert why(samples[1].missing, "temperature_c") == samples[1].problem
    cards.become("gpus 4", "set temp 70")
    samples = wait_for(watch, lambda found: all_ok(found) and found[1].temperature_c == 70, 10)
    assert samples[1].key.endswith("1")


def test_cards_keep_their_values_when_numbers_move(cards: Cards, watch: GpuWatch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_card, "LOST_AGAIN_S", (0.5,))
    keys = [one.key for one in started(watch)]
    cards.become("gpus 4", "gone 1")
    time.sleep(1.5)  # the library is opened anew at least once, and counts three cards
    samples = wait_for(watch, lambda found: found[1].state == "lost" and but_one_ok(found, 1), TOLD_S)
    assert [one.key for one in samples] == keys
    assert [one.pci for one in samples] == [f"0000:0{i}:00.0" for i in (1, 2, 3, 4)]
    cards.become("gpus 4")
    assert [one.key for one in wait_for(watch, all_ok, 10)] == keys


@pytest.mark.parametrize(
    ("error", "words"),
    [(18, "was updated"), (9, "not loaded"), (12, "no NVIDIA driver"), (999, "container"), (6, "does not answer")],
)
def test_a_library_that_does_not_open_is_told(cards: Cards, watch: GpuWatch, error: int, words: str) -> None:
    cards.become(f"init {error}")
    watch.start(0.1)
    until = time.monotonic() + START_S
    while words not in watch.problem and time.monotonic() < until:
        time.sleep(0.02)
    assert words in watch.problem
    assert watch.samples() == ()


def test_a_driver_that_is_updated_and_loaded_again_is_found(
    cards: Cards, watch: GpuWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_rounds, "PROBLEMS", {18: (0.5, "updated")})
    cards.become("init 18")
    watch.start(0.1)
    time.sleep(0.3)
    cards.become("gpus 4")
    wait_for(watch, all_ok, START_S)
    assert watch.problem == ""


def test_a_driver_that_comes_later_is_found_and_until_then_no_process_waits(
    tmp_path: Path, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cards = Cards(tmp_path, library, monkeypatch)
    driver = tmp_path / "proc/driver/nvidia/version"
    driver.unlink()
    _pci_card(tmp_path, "0000:01:00.0", asleep=False)
    cards.become("init 12")
    watch = GpuWatch(tmp_path)
    try:
        watch.start(0.05)
        one = wait_for(watch, lambda found: watch.problem != "" and watch.pid is None, START_S)[0]
        assert (one.state, one.problem) == ("silent", gpu_rounds.NO_DRIVER)
        time.sleep(0.3)
        assert watch.pid is None
        cards.become("gpus 1")
        driver.write_text("580\n")
        wait_for(watch, lambda found: found[0].state == "ok", START_S)
    finally:
        watch.close()


def test_a_card_that_hangs_is_told_and_left_out_while_the_others_go_on(cards: Cards, watch: GpuWatch) -> None:
    started(watch)
    cards.become("gpus 4", "hang 2 5000", "set temp 66")
    began = time.monotonic()
    samples = wait_for(watch, lambda found: found[2].state == "silent", TOLD_S)
    assert samples[2].problem in (gpu_card.HUNG, gpu_card.LATE)
    assert samples[2].temperature_c == 54
    assert samples[2].age_s >= time.monotonic() - began - 0.5
    wait_for(watch, lambda found: but_one_ok(found, 2) and found[0].temperature_c == 66 and found[2].problem == gpu_card.HUNG, 10)
    cards.become("gpus 4", "set temp 67")
    wait_for(watch, lambda found: all_ok(found) and found[2].temperature_c == 67, 30)


def test_a_card_whose_library_crashes_is_told_and_left_out(cards: Cards, watch: GpuWatch) -> None:
    started(watch)
    cards.become("gpus 4", "crash 3", "set temp 66")
    samples = wait_for(watch, lambda found: found[3].state == "silent", TOLD_S)
    assert samples[3].problem in (gpu_card.CRASHED, gpu_card.LATE)
    wait_for(watch, lambda found: but_one_ok(found, 3) and found[0].temperature_c == 66, 10)
    cards.become("gpus 4")
    wait_for(watch, all_ok, 30)


def test_a_card_that_crashes_again_and_again_is_not_asked_any_more(
    cards: Cards, watch: GpuWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_card, "AGAIN_S", (0.1,))
    monkeypatch.setattr(gpu_rounds, "RESTART_S", (0.1,))
    cards.become("gpus 4", "crash 3")
    watch.start(0.1)
    samples = wait_for(watch, lambda found: len(found) == 4 and found[3].state == "off" and but_one_ok(found, 3), 60)
    assert "not asked again" in samples[3].problem
    assert [one.state for one in samples] == ["ok", "ok", "ok", "off"]
    wait_for(watch, lambda found: watch.pid is not None, START_S)
    pid = watch.pid
    time.sleep(1)
    assert watch.pid == pid


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_sensor_process_may_be_killed_fifty_times(cards: Cards, watch: GpuWatch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_rounds, "RESTART_S", (0.1,))
    started(watch)
    slowest = 0.0
    for _ in range(50):
        pid = watch.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        killed = time.monotonic()
        wait_for(watch, lambda found, pid=pid: watch.pid not in (pid, None) and all_ok(found), 15)  # type: ignore[misc]
        slowest = max(slowest, time.monotonic() - killed)
    assert slowest < 15
    assert all(one.state == "ok" for one in watch.samples())


def test_closing_does_not_wait_for_a_card_that_hangs(cards: Cards) -> None:
    watch = GpuWatch(cards.root)
    started(watch)
    cards.become("gpus 4", "hang 0 20000")
    time.sleep(0.5)
    began = time.monotonic()
    watch.close()
    assert time.monotonic() - began < 1.5
    assert watch.pid is None


def test_a_sleeping_card_is_not_woken_and_no_process_is_started(
    tmp_path: Path, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cards = Cards(tmp_path, library, monkeypatch)
    status = _pci_card(tmp_path, "0000:01:00.0", asleep=True)
    watch = GpuWatch(tmp_path)
    try:
        watch.start(0.05)
        one = wait_for(watch, lambda found: bool(found) and found[0].state == "asleep", TOLD_S)[0]
        time.sleep(0.3)
        assert watch.pid is None
        assert why(one.missing, "temperature_c") == gpu_card.ASLEEP
        status.write_text("active\n")
        cards.become("gpus 1")
        wait_for(watch, lambda found: found[0].state == "ok" and found[0].node == 1, START_S)
        status.write_text("suspended\n")
        wait_for(watch, lambda found: found[0].state == "asleep" and watch.pid is None, TOLD_S)
    finally:
        watch.close()


def test_a_card_that_may_sleep_is_left_alone_while_nobody_computes_on_it(
    tmp_path: Path, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Cards(tmp_path, library, monkeypatch).become("gpus 1")
    _pci_card(tmp_path, "0000:01:00.0", asleep=False)
    watch = GpuWatch(tmp_path, rest_after_s=1.0)
    try:
        watch.adjust(in_use=True)
        watch.start(0.05)
        wait_for(watch, lambda found: found[0].state == "ok", START_S)
        watch.adjust(in_use=False)
        wait_for(watch, lambda found: found[0].state == "resting" and watch.pid is None, TOLD_S)
        watch.adjust(in_use=True)
        wait_for(watch, lambda found: found[0].state == "ok", START_S)
    finally:
        watch.close()


def test_dear_answers_are_asked_for_less_often(cards: Cards, watch: GpuWatch) -> None:
    cards.become("gpus 1", "hang 0 2")
    watch.start(0.1)
    wait_for(watch, lambda found: "asked every" in watch.note, START_S)


def test_a_machine_without_cards_starts_nothing(tmp_path: Path) -> None:
    watch = GpuWatch(tmp_path)
    watch.start(0.02)
    time.sleep(0.2)
    assert (watch.samples(), watch.pid, watch.problem) == ((), None, "")
    watch.close()


def _pci_card(root: Path, address: str, *, asleep: bool) -> Path:
    device = root / "sys/bus/pci/devices" / address
    (device / "power").mkdir(parents=True)
    for name, text in {"vendor": "0x10de", "class": "0x030000", "numa_node": "1", "power/control": "auto"}.items():
        (device / name).write_text(text + "\n")
    status = device / "power/runtime_status"
    status.write_text("suspended\n" if asleep else "active\n")
    return status
