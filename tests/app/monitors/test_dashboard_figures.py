"""What the cards of the dashboard say: every value with its unit, every missing one with its reason."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.monitors.gpu_card import GpuFigures
from app.monitors.gpu_figures import gpu_figures, titles
from app.monitors.machine_figures import alarm, machine_text, short_name, span_seconds, tiles
from app.monitors.node_card import NodeFigures
from app.monitors.node_figures import cores_note, node_figures
from app.monitors.reading import Reading
from app.monitors.trace_figures import GPU_EXPERTS, time_by_kind, trace_figures
from app.shots import monitors_machine as machine
from app.telemetry.shown import Shown
from app.telemetry.timeline import Timeline
from engine.api.values import CpuSample, DeviceWork, EngineSample, GpuSample, HardwareSnapshot, NodeSample, TokenTrace, TraceSpan

MACHINE = machine.topology()
FACTS = machine.facts(MACHINE)


def shown(snapshot: HardwareSnapshot, work: EngineSample | None = None, watts: int = 0) -> Shown:
    """One reading, as the monitors hold it."""
    line = Timeline(1800.0, 0.5, {core.index: core.node for core in MACHINE.cores})
    line.push(snapshot, work)
    return Shown(line, snapshot, work, None if work is None else work.trace).judged(watts)


def cards(*gpus: GpuSample, work: EngineSample | None = None) -> tuple[GpuFigures, ...]:
    return gpu_figures(shown(machine.snapshot(1.0, MACHINE, gpus=gpus), work), FACTS)


def nodes(snapshot: HardwareSnapshot, work: EngineSample | None = None) -> tuple[NodeFigures, ...]:
    return node_figures(shown(snapshot, work), FACTS, 300.0, "last 5 minutes")


def test_a_card_at_work_says_what_the_engine_counts_and_what_the_driver_says() -> None:
    card = gpu_figures(shown(machine.snapshot(1.0, MACHINE), machine.sample(1.0)), FACTS)[0]
    assert (card.title, card.name, card.link.text) == ("GPU 0", "RTX 4090", "Gen4 ×16")
    assert card.working.label == "Working"
    assert card.working.key == "device/gpu0/working_percent"
    assert "The driver says busy" in card.working.tip
    assert card.memory.text == "14.2 / 24 GB"
    assert [token for _, token in card.segments] == ["attn", "ffn", "kv", "buffers"]
    assert sum(share for share, _ in card.segments) == pytest.approx(14.2 / 24, abs=0.004)
    assert (card.power.unit, card.clock.unit, card.traffic.unit) == ("W", "MHz", "GB/s")
    assert "counted by itself" in card.traffic.tip
    assert (card.pill, card.line, card.faded) == (None, "line", False)


def test_a_card_that_nobody_works_on_is_busy_or_not() -> None:
    card = cards(*machine.cards(1.0))[0]
    assert card.working.label == "Busy"
    assert "The model does not use this card" in card.working.tip
    assert (card.traffic.text, card.traffic.tip) == ("n/a", "the engine does not use this card")


def test_every_missing_value_of_a_card_says_why() -> None:
    names = (
        "busy_percent", "memory_used_bytes", "temperature_c", "power_w", "core_clock_mhz", "fan_percent", "link_generation",
        "link_read_bytes_per_s",
    )  # fmt: skip
    bare = GpuSample("GPU-x", "0000:01:00.0", "Card", "nvidia", missing=tuple((name, f"why {name}") for name in names))
    card = cards(bare)[0]
    for reading in card.readings:
        assert "why " in reading.tip, reading
        assert not reading.key or reading.is_known
        assert "n/a" in reading.sentence
        assert "why " in reading.sentence


@pytest.mark.parametrize(
    ("change", "pill", "line"),
    [
        ({"temperature_c": 84.0}, "Warm", "warn"),
        ({"slow_bits": 0x80, "slow_reasons": ("the power supply or its cable asks for less power",)}, "Slowed", "warn"),
        ({"temperature_c": 91.0}, "Hot", "err"),
        ({"state": "lost", "problem": "it fell off the bus"}, "Lost", "err"),
        ({"state": "silent", "problem": "no answer", "age_s": 12.2}, "12 s ago", "line"),
        ({"state": "asleep", "problem": "it sleeps"}, "Asleep", "line"),
    ],
)
def test_what_is_wrong_with_a_card_stands_at_its_top(change: dict[str, object], pill: str, line: str) -> None:
    card = cards(replace(machine.cards(1.0)[0], **change))[0]  # type: ignore[arg-type]
    assert card.pill is not None
    assert (card.pill.text, card.line) == (pill, line)
    assert card.faded == (change.get("state", "ok") != "ok")
    assert card.pill.tip


def test_a_low_clock_says_why() -> None:
    clock = cards(machine.hot(machine.cards(1.0))[2])[0].clock
    assert clock.tone == "warn"
    assert "Slow because: the driver lowers it because of heat" in clock.tip


def test_few_lanes_are_a_finding_and_a_low_generation_is_not() -> None:
    first, third = machine.cards(1.0, busy=False)[0], machine.cards(1.0)[2]
    idle, narrow = cards(first, third)
    assert (idle.link.text, idle.link.tone) == ("Gen1 ×16", "text3")
    assert (narrow.link.text, narrow.link.tone) == ("Gen4 ×8", "warn")
    assert "8 of 16 lanes" in narrow.link.tip


def test_cards_are_numbered_as_the_engine_does() -> None:
    work = EngineSample(1.0, 1.0, devices=(DeviceWork("gpu0", 50.0, card="GPU-2"), DeviceWork("gpu1", 20.0, card="GPU-0")))
    state = shown(machine.snapshot(1.0, MACHINE), work)
    assert titles(state) == {"GPU-0": "GPU 1", "GPU-1": "GPU 2", "GPU-2": "GPU 0", "GPU-3": "GPU 3"}
    assert [card.working.label for card in gpu_figures(state, FACTS)] == ["Working", "Busy", "Working", "Busy"]


def test_a_node_reads_so_much_of_what_was_measured() -> None:
    first, second = nodes(machine.snapshot(1.0, MACHINE), machine.sample(1.0))
    assert (first.title, first.cores, second.cores) == ("NUMA 0", "cores 0–63", "cores 64–127")
    assert first.read.text.endswith(" of 204")
    assert first.read.unit == "GB/s"
    assert 0.7 < first.read_bar[0][0] < 0.95
    assert (first.remote.text, first.remote_bar) == ("2.1 %", ((0.021, "ok"),))
    assert first.memory.text == "188 / 256 GB" or first.memory.text == "169 / 256 GB"
    assert sum(cell.owned for cell in first.cells) == 48
    assert len({cell.group for cell in first.cells}) == 8
    assert all(len(cell.loads) == 2 for cell in first.cells)


def test_a_node_without_measurement_or_model_says_so() -> None:
    state = shown(machine.snapshot(1.0, MACHINE), machine.sample(1.0))
    unmeasured = node_figures(state, replace(FACTS, ceilings={}), 300.0, "")[0]
    assert "calibrate" in unmeasured.read.tip
    idle = node_figures(shown(machine.snapshot(1.0, MACHINE)), replace(FACTS, model=None, off_node=None), 300.0, "")[0]
    assert (idle.read.text, idle.read.tip) == ("n/a", "no model is loaded")
    assert idle.remote.tip.startswith("no model is loaded")


def test_a_machine_that_tells_little_has_one_node() -> None:
    snapshot = HardwareSnapshot(
        1.0, CpuSample("QEMU", (50.0, 10.0), None, missing=(("frequency_mhz", "the host hides it"),)), 8 << 30, 16 << 30, 1 << 30
    )
    (node,) = node_figures(shown(snapshot), replace(FACTS, topology=None, worker_cpus=frozenset({1})), 60.0, "")
    assert [cell.owned for cell in node.cells] == [False, True]
    assert (node.clock.text, node.clock.tip) == ("n/a", "the host hides it")
    assert (node.remote.text, node.remote.tip) == ("n/a", "this machine has one node of memory")
    assert node.use.text == "30 %"


def test_memory_of_a_node_belongs_to_somebody() -> None:
    snapshot = machine.snapshot(1.0, MACHINE)
    first = replace(snapshot, nodes=(NodeSample(0, 256 * machine.GB, 68 * machine.GB, 169 * machine.GB, 19 * machine.GB),))
    (node,) = node_figures(shown(first), FACTS, 60.0, "")
    assert [token for _, token in node.memory_bar] == ["attn", "buffers", "line2"]
    assert sum(share for share, _ in node.memory_bar) == pytest.approx(188 / 256, abs=0.004)
    assert "The model: 150 GB" in node.memory.tip


def test_tiles_say_what_is_of_now_and_what_is_of_the_last_answer() -> None:
    now = tiles(shown(machine.snapshot(1.0, MACHINE), machine.sample(1.0)), FACTS, 300.0)
    assert now["decode"].value.unit == "tok/s"
    assert not now["decode"].faded
    assert (now["vram"].value.text, now["vram"].value.unit) == ("71.2", "of 96 GB")
    assert now["ram"].note == "no swap"
    assert now["power"].note.startswith("GPUs ")
    state = shown(machine.snapshot(1.0, MACHINE), machine.sample(1.0))
    state.timeline.push(machine.snapshot(2.0, MACHINE), None)
    later = tiles(replace(state, work=None), FACTS, 300.0)
    assert later["decode"].faded
    assert later["decode"].value.unit == "tok/s, last"


def test_tiles_of_a_bare_machine_give_their_reasons() -> None:
    bare = machine.snapshot(1.0, MACHINE, gpus=())
    bare = replace(
        bare, gpu_problem="no driver", cpu=replace(bare.cpu, package_power_w=None, missing=(("package_power_w", "root alone"),))
    )
    found = tiles(shown(bare), replace(FACTS, prompt_tokens=None, first_token_p95_s=None), 300.0)
    reasons = {name: one.value.tip for name, one in found.items() if not one.value.is_known}
    assert reasons["vram"] == "no driver"
    assert reasons["power"] == "root alone"
    assert set(reasons) == {"decode", "prefill", "first_token", "vram", "power"}
    assert all(reasons.values())


def test_old_values_of_silent_cards_are_faded_in_the_sums() -> None:
    silent = machine.snapshot(1.0, MACHINE, gpus=machine.silent(machine.cards(1.0)))
    found = tiles(shown(silent), FACTS, 300.0)
    assert (found["vram"].faded, found["power"].faded, found["ram"].faded) == (True, True, False)


def test_memory_of_which_nothing_is_told_is_not_none_at_all() -> None:
    untold = replace(machine.snapshot(1.0, MACHINE), ram_total_bytes=0, ram_used_bytes=0)
    found = tiles(shown(untold), FACTS, 300.0)["ram"].value
    assert found.text == "n/a" and "does not tell" in found.tip


def test_the_worst_is_said_across_the_page() -> None:
    fine = shown(machine.snapshot(1.0, MACHINE))
    assert alarm(fine, titles(fine)) == ("", "")
    hot = shown(machine.snapshot(1.0, MACHINE, gpus=machine.hot(machine.cards(1.0))))
    names = titles(hot)
    assert alarm(hot, names, frozenset(names.values())) == ("", "")  # where the page says it already
    text, tone = alarm(hot, names)
    assert text == "GPU 2, RTX 3090: 91 °C, the driver lowers its clock because of heat."
    assert tone == "err"
    tight = shown(machine.snapshot(1.0, MACHINE), watts=1000)
    assert alarm(tight, {})[1] == "warn"


def test_the_machine_in_a_line() -> None:
    assert machine_text(machine.snapshot(1.0, MACHINE), FACTS) == "homelab-01   4 GPUs, 2 × EPYC 7763, 512 GB"
    assert cores_note(machine.snapshot(1.0, MACHINE), FACTS) == "128 cores, one square each; the 96 outlined work for the model"
    assert short_name("Intel(R) Core(TM) i9-14900K CPU @ 3.20GHz") == "i9-14900K"
    assert short_name("NVIDIA H200") == "H200"


def test_all_reaches_back_as_far_as_is_remembered() -> None:
    line = Timeline(1800.0, 0.5)
    assert span_seconds("300", line) == 300.0
    assert span_seconds("all", line) == 60.0
    for i in range(200):
        line.push(machine.snapshot(float(i), MACHINE, gpus=()), None)
    assert span_seconds("all", line) == 199.0


def test_the_time_of_a_token_adds_up() -> None:
    trace = machine.trace(1.0)
    sums = time_by_kind(trace)
    assert sum(sums.values()) == pytest.approx(trace.total_ms)
    assert sums["attention"] == pytest.approx(61 * 0.16)
    assert sums[GPU_EXPERTS] == pytest.approx(6 * 0.25)
    figures = trace_figures(trace)
    assert [lane.name for lane in figures.lanes] == ["GPU 0", "GPU 1", "GPU 2", "GPU 3", "NUMA 0", "NUMA 1"]
    labels = [reading.label for _, reading in figures.parts]
    assert labels[:2] == ["Experts on NUMA 0 and 1", "Experts on GPU 2 and 3"]


def test_devices_that_work_at_once_share_the_time() -> None:
    spans = (
        TraceSpan("gpu0", "attention", 0, 0.0, 4.0),
        TraceSpan("numa0", "experts", 0, 2.0, 4.0),
        TraceSpan("numa0", "wait", 0, 0.0, 2.0),
        TraceSpan("gpu0", "transfer", 0, 6.0, 1.0),
    )
    sums = time_by_kind(TokenTrace(0.0, 8.0, spans))
    assert sums == pytest.approx({"attention": 3.0, "experts": 3.0, "transfer": 2.0})


def test_without_a_token_it_says_what_to_do() -> None:
    assert trace_figures(None).note == "No token was measured yet: ask something"
    assert trace_figures(None, again=True).note == "Tokens are not kept with a message"
    assert trace_figures(machine.trace(1.0), "14:02:11").note == "last run, 14:02:11"


def test_a_reading_is_spoken_with_its_reason() -> None:
    assert Reading("Power", "148 / 450", "W").sentence == "Power 148 / 450 W"
    assert Reading("Fan", "n/a", tip="it has none").sentence == "Fan n/a: it has none"
