"""Each rule by windows that make it speak and windows that look alike and must not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.advice.diagnosis.diagnose import balance, diagnose
from engine.advice.diagnosis.finding import ORDER
from engine.advice.diagnosis.rule import Rule
from engine.advice.diagnosis.table import RULES
from engine.advice.diagnosis.window import Facts, Invalid, Lost, Pace, Refused, Window
from engine.api.values import (
    Astray,
    CoreSample,
    CpuSample,
    DiskSample,
    EngineSample,
    HardwareSnapshot,
    HoldingInfo,
    PressureSample,
    ProcessSample,
    StrayWorker,
)
from engine.hardware.topology import Node
from tests.helpers.windows import (
    BROWSER,
    EVEN,
    GB,
    N_CORES,
    TWO,
    card,
    device,
    facts,
    hog,
    hybrid,
    info,
    memory,
    snapshot,
    thread,
    topology,
    trace,
    window,
    with_cards,
    work,
)

WORKERS = ProcessSample(7.7, tuple(thread(n, waiting=8.0, taken=90.0) for n in range(N_CORES)))
CALM = ProcessSample(7.7, tuple(thread(n) for n in range(N_CORES)))
READING = work(0, (device("numa0", 0.97, token_ms=None),), n_decode_steps=0, n_decoded=0, step_ms=None, n_prefilled=500)
HOT = ((card(slow_bits=0x40, temperature_c=84.0, core_clock_mhz=1980.0),), hybrid(0.5, 0.4))


def prompt(i: int, **changes: object) -> object:
    """A prompt of 20 000 tokens that is being read."""
    found = replace(READING, time_s=100.0 + i, prompt_tokens=20_000, prompt_done=4000, prefill_tok_s=380.0)
    return replace(found, **changes)  # type: ignore[arg-type]


def frequency(slow: float) -> tuple[CoreSample, ...]:
    """Half of the cores at another clock."""
    return tuple(CoreSample(n, (n,), (97.0,), slow if n >= N_CORES // 2 else 3400.0) for n in range(N_CORES))


def hot_cpu(i: int, celsius: float, mhz: float) -> object:
    """A processor whose clock fell within the window."""
    cores = tuple(CoreSample(n, (n,), (97.0,), 3400.0 if i < 2 else mhz) for n in range(N_CORES))
    return snapshot(i, cpu=CpuSample("A CPU", (97.0,) * N_CORES, celsius, steal_percent=0.0), cores=cores)


def starved(i: int, pressure: PressureSample, limit: int | None = 180_269_056) -> HardwareSnapshot:
    """Weights of 96 MB in a control group with room for half of them: measured, after four readings in which they had room."""
    short = i >= 4
    here = memory(process_major_faults_per_s=180.0 if short else 0.0, limit_bytes=limit, available_bytes=60_000_000)
    reading = DiskSample(process_read_bytes_per_s=900e6 if short else 0.0)
    return snapshot(i, use=40.0, own=2.4, memory=here, pressure=pressure if short else PressureSample(), disk=reading)


def starved_work(i: int) -> EngineSample:
    """So few tokens are decoded meanwhile."""
    return work(i) if i < 4 else work(i, n_decode_steps=7, n_decoded=7, decode_tok_s=7.0, step_ms=130.0)


FAR_MEMORY = replace(topology(), nodes=(*topology().nodes, Node(1, (), 64 * GB, (28, 10))))
"""A second node of memory alone."""
CHIPLETS = replace(topology(), cores=tuple(replace(core, l3=core.index // 2) for core in topology().cores))
"""Four of them with two cores each."""


def slow_read(i: int) -> EngineSample:
    """The CPU has nearly all of a step, at seven tenths of what memory gives."""
    return work(i, (device("numa0", 0.9, read_bytes_per_s=29 * GB),))


NODES = (device("numa0", 0.9), device("numa1", 0.3))
MAPPED = replace(info(), holdings=(HoldingInfo("numa0", "weights", 87 * GB, mapped=True),))


FIRES: list[tuple[str, Window]] = [
    ("R-LOST", window(known=facts(lost=Lost("gpu1", "14:02", "Xid 79")))),
    ("R-LOST", window(with_cards(card(), card(1, state="lost", problem="it fell off the bus")), hybrid(0.5, 0.4), facts(2))),
    ("R-LOST", window(with_cards(card(), card(1, state="lost", problem="it fell off the bus")), hybrid(0.5, 0.4), facts(1))),
    ("R-NAN", window(works=lambda i: work(i, n_invalid=1 if i == 9 else 0))),
    ("R-NAN", window(known=facts(invalid=Invalid(105.0, "layer 7")))),
    ("R-NAN", window(lambda i: snapshot(i, use=97.0, process=BROWSER), known=facts(invalid=Invalid(105.0, "layer 7")))),
    ("R-NAN", window(works=lambda i: work(i, n_repeated=21 + i))),
    ("R-SWAP", window(lambda i: snapshot(i, memory=memory(swap_in_bytes_per_s=38e6, process_swap_bytes=6 * GB)))),
    ("R-SWAP", window(lambda i: snapshot(i, memory=memory(process_swap_bytes=i * 20_000_000)))),
    (
        "R-DISK",
        window(
            lambda i: snapshot(
                i,
                use=30.0,
                own=2.0,
                memory=memory(process_major_faults_per_s=900.0),
                disk=DiskSample(process_read_bytes_per_s=1.9 * GB, ceiling_bytes_per_s=3.4 * GB),
            ),
            known=facts(info=MAPPED, n_answers=0),
        ),
    ),
    ("R-DISK", window(lambda i: starved(i, PressureSample(1.0, 13.4, 13.4)), starved_work)),
    # Kernels and containers without pressure, and with a limit that nobody tells.
    ("R-DISK", window(lambda i: starved(i, PressureSample(), limit=None), starved_work)),
    ("R-PSI", window(lambda i: snapshot(i, pressure=PressureSample(1.0, 20.0, 12.0)))),
    ("R-THERM-G", window(with_cards(*HOT[0]), HOT[1], facts(1))),
    ("R-THERM-G", window(with_cards(card(slow_bits=0x20)), HOT[1], facts(1))),
    ("R-BRAKE", window(with_cards(card(slow_bits=0x80)), HOT[1], facts(1))),
    ("R-POWER", window(with_cards(card(slow_bits=0x4, power_limit_w=250.0)), hybrid(0.2, 0.75), facts(1))),
    ("R-THERM-C", window(lambda i: hot_cpu(i, 97.0, 2600.0))),  # type: ignore[arg-type,return-value]
    ("R-CLK", window(known=facts(topology=topology(energy_preference="power")))),
    ("R-CLK", window(known=facts(topology=topology(frequency_driver="acpi-cpufreq", governor="powersave")))),
    ("R-PCIE-W", window(with_cards(card(link_width=4)), hybrid(0.4, 0.3, trace=trace(transfer=10.5)), facts(1))),
    ("R-PCIE-G", window(with_cards(card(link_generation=1)), hybrid(0.4, 0.5), facts(1))),
    ("R-XFER", window(with_cards(card()), hybrid(0.4, 0.3, trace=trace(transfer=15.5)), facts(1))),
    ("R-NUMA-1", window(works=lambda i: work(i, EVEN), known=facts(topology=TWO, off_node_share=0.28))),
    ("R-NUMA-1", window(works=lambda i: work(i, EVEN, astray=Astray(0.48, 1, 0)), known=facts(topology=TWO))),
    ("R-NUMA-1", window(works=lambda i: work(i, astray=Astray(0.48, 0, 1)), known=facts(topology=FAR_MEMORY))),
    ("R-NUMA-1", window(works=lambda i: work(i, NODES), known=facts(topology=TWO))),
    (
        "R-NUMA-2",
        window(with_cards(card(node=1)), hybrid(0.6, 0.3), facts(topology=TWO, info=info(1, workers=(0, 1, 2, 3)))),
    ),
    ("R-PIN", window(works=lambda i: work(i, strays=(StrayWorker(6, (1,)),)), known=facts(topology=TWO))),
    ("R-PIN", window(works=lambda i: work(i, strays=tuple(StrayWorker(n, tuple(range(8))) for n in range(1, 8))))),
    ("R-SMT", window(lambda i: snapshot(i, process=WORKERS), known=facts(info=info(workers=(-1,) * 16)))),
    ("R-SMT", window(known=facts(info=info(workers=(0, 1)), topology=replace(topology(), quota_cores=1.0)))),
    ("R-CONT", window(lambda i: snapshot(i, use=97.0, process=BROWSER))),
    ("R-CONT", window(lambda i: snapshot(i, cpu=CpuSample("A CPU", (97.0,) * 8, 60.0, steal_percent=22.0)))),
    ("R-CPU-BW", window(works=lambda i: work(i, (device("numa0", 0.9, read_bytes_per_s=38 * GB),)))),
    (
        "R-CPU-EFF",
        window(lambda i: snapshot(i, use=50.0, own=3.9), lambda i: work(i, (device("numa0", 0.9, read_bytes_per_s=17 * GB),))),
    ),
    ("R-CPU-COMP", window(works=prompt, known=facts(chunk=512))),  # type: ignore[arg-type]
    ("R-IMB", window(lambda i: snapshot(i, cores=frequency(2100.0)), known=facts(topology=TWO))),
    ("R-IMB", window(works=lambda i: work(i, (device("numa0", 0.9), device("numa1", 0.7))), known=facts(topology=TWO))),
    ("R-IMB", window(works=slow_read, known=facts(topology=CHIPLETS, info=info(workers=(0, 1, 2, 3))))),
    ("R-GPU-BOUND", window(with_cards(card()), hybrid(0.2, 0.75), facts(1))),
    ("R-GPU-STARVE", window(with_cards(card(busy_percent=18.0)), lambda i: work(i, (device("gpu0", 0.5),)), facts(1))),
    ("R-GPU-IMB", window(with_cards(card(), card(1)), hybrid(0.1, 0.6, 0.2), facts(2))),
    ("R-VRAM", window(with_cards(card(memory_free_bytes=400_000_000)), hybrid(0.5, 0.4), facts(1))),
    (
        "R-VRAM-EXT",
        window(with_cards(card(memory_used_bytes=6 * GB)), hybrid(0.5, 0.4), facts(1, foreign_bytes={"GPU-0": 800_000_000})),
    ),
    ("R-KV-1", window(works=lambda i: work(i, kv_used_tokens=26_100))),
    (
        "R-KV-SPD",
        window(
            works=lambda i: work(i, kv_used_tokens=20_000, decode_tok_s=12.0, trace=trace(attention=19.0, experts=25.0)),
            known=facts(fresh=Pace(20.0, 400, 0.05)),
        ),
    ),
    ("R-FRAG", window(known=facts(1, refused=Refused("gpu0", 2 * GB, 3 * GB, 105.0)))),
    ("R-PREFILL", window(works=prompt)),  # type: ignore[arg-type]
    (
        "R-COLD",
        window(
            lambda i: snapshot(i, memory=memory(process_major_faults_per_s=900.0 / (i + 1))),
            known=facts(loaded_s=95.0, n_answers=0),
        ),
    ),
    ("R-QUEUE", window(works=lambda i: work(i, n_waiting=3))),
    ("R-SENS", window(late_s=3.5)),
    ("R-SENS", window(with_cards(card(state="silent", problem="it did not answer", age_s=5.0)), hybrid(0.5, 0.4), facts(1))),
]

SILENT: list[tuple[str, Window]] = [
    ("R-LOST", window(with_cards(card(), card(1, state="silent", problem="late")), hybrid(0.5, 0.4))),
    ("R-NAN", window(known=facts(invalid=Invalid(99.0, "layer 7")))),
    ("R-NAN", window(works=lambda i: work(i, n_repeated=20))),
    ("R-NAN", window(works=lambda i: work(i, n_decoded=0, n_repeated=40))),
    ("R-SWAP", window(lambda i: snapshot(i, memory=memory(swap_in_bytes_per_s=38e6, process_swap_bytes=0)))),
    ("R-SWAP", window(lambda i: snapshot(i, memory=memory(process_swap_bytes=300_000_000)))),
    (
        "R-DISK",
        window(
            lambda i: snapshot(i, memory=memory(process_major_faults_per_s=900.0), disk=DiskSample(process_read_bytes_per_s=None))
        ),
    ),
    (
        "R-DISK",
        window(
            lambda i: snapshot(i, memory=memory(process_major_faults_per_s=2.0), disk=DiskSample(process_read_bytes_per_s=300e6))
        ),
    ),
    # A limit that is lowered once drops what nobody reads, and the weights come back within a reading.
    ("R-DISK", window(lambda i: starved(i, PressureSample()) if i == 6 else snapshot(i))),
    ("R-PSI", window(lambda i: snapshot(i, pressure=PressureSample(1.0, 30.0, 4.0)))),
    ("R-THERM-G", window(lambda i: with_cards(card(slow_bits=0x40 if i == 5 else 0))(i), HOT[1], facts(1))),
    ("R-THERM-G", window(with_cards(card(slow_bits=0x1)), HOT[1], facts(1))),
    ("R-THERM-G", window(with_cards(card(slow_bits=0x40, age_s=9.0)), HOT[1], facts(1))),
    ("R-BRAKE", window(with_cards(card(slow_bits=0x4)), HOT[1], facts(1))),
    ("R-POWER", window(with_cards(card(slow_bits=0x4)), hybrid(0.2, 0.75), facts(1))),
    ("R-POWER", window(with_cards(card(slow_bits=0x4, power_limit_w=250.0)), hybrid(0.7, 0.3), facts(1))),
    ("R-THERM-C", window(lambda i: hot_cpu(i, 97.0, 3300.0))),  # type: ignore[arg-type,return-value]
    ("R-THERM-C", window(lambda i: hot_cpu(i, 80.0, 2600.0))),  # type: ignore[arg-type,return-value]
    ("R-CLK", window()),
    ("R-PCIE-W", window(with_cards(card(link_width=4)), hybrid(0.4, 0.3, trace=trace(transfer=2.0)), facts(1))),
    ("R-PCIE-G", window(lambda i: with_cards(card(link_generation=1 if i < 9 else 4))(i), hybrid(0.4, 0.5), facts(1))),
    ("R-PCIE-G", window(with_cards(card(link_generation=1)), hybrid(0.9, 0.05), facts(1))),
    ("R-XFER", window(with_cards(card()), hybrid(0.4, 0.3, trace=trace(transfer=5.0)), facts(1))),
    ("R-NUMA-1", window(works=lambda i: work(i, EVEN), known=facts(topology=TWO, off_node_share=0.02))),
    ("R-NUMA-1", window(known=facts(off_node_share=0.4))),
    # It was put back: the last look counts.
    (
        "R-NUMA-1",
        window(works=lambda i: work(i, EVEN, astray=Astray(0.4, 1, 0) if i < 10 else Astray(0.0)), known=facts(topology=TWO)),
    ),
    # A node takes longer because others are on its cores, or because its worker is not there any more.
    ("R-NUMA-1", window(hog, lambda i: work(i, (device("numa0", 0.5), device("numa1", 0.95))), facts(topology=TWO))),
    (
        "R-NUMA-1",
        window(works=lambda i: work(i, NODES, strays=(StrayWorker(6, (1,)),)), known=facts(topology=TWO)),
    ),
    ("R-NUMA-2", window(with_cards(card(node=1)), hybrid(0.6, 0.3), facts(1, topology=TWO))),
    ("R-NUMA-2", window(with_cards(card(node=None)), hybrid(0.6, 0.3), facts(topology=TWO, info=info(1, workers=(0, 1))))),
    ("R-PIN", window()),
    ("R-PIN", window(works=lambda i: work(i, strays=(StrayWorker(6, (1,)),) if i < 9 else ()))),
    ("R-SMT", window()),
    ("R-SMT", window(known=facts(info=info(workers=(-1,) * 16), tuned="Works with 16 threads"))),
    ("R-CONT", window(lambda i: snapshot(i, use=97.0, own=7.3))),
    # A burst of four seconds, which would be felt, were it to last.
    ("R-CONT", window(lambda i: snapshot(i, use=97.0, process=BROWSER if 3 <= i < 7 else CALM))),
    # Helpers of ours keep the workers waiting: their time is in that of this program.
    ("R-CONT", window(lambda i: snapshot(i, use=97.0, process=replace(BROWSER, cores=7.7, foreign=())))),
    ("R-CONT", window(lambda i: snapshot(i, use=97.0, process=ProcessSample(None)))),
    ("R-CONT", window(lambda i: snapshot(i, process=BROWSER), lambda i: None)),
    ("R-CPU-BW", window(works=lambda i: work(i, (device("numa0", 0.9, read_bytes_per_s=38 * GB),)), known=facts(ceilings={}))),
    ("R-CPU-BW", window(works=lambda i: work(i, (device("numa0", 0.4, read_bytes_per_s=38 * GB),)))),
    ("R-CPU-EFF", window(works=lambda i: work(i, (device("numa0", 0.9, read_bytes_per_s=17 * GB),)))),
    ("R-CPU-COMP", window(works=prompt, known=facts(chunk=16))),  # type: ignore[arg-type]
    ("R-IMB", window(lambda i: snapshot(i, cores=frequency(3200.0)), known=facts(topology=TWO))),
    ("R-IMB", window(works=lambda i: work(i, EVEN), known=facts(topology=TWO))),
    ("R-IMB", window(hog, lambda i: work(i, (device("numa0", 0.7), device("numa1", 0.95))), facts(topology=TWO))),
    # One worker on each chiplet; few workers where memory gives all it can; workers that run anywhere.
    ("R-IMB", window(works=slow_read, known=facts(topology=CHIPLETS, info=info(workers=(0, 2, 4, 6))))),
    ("R-IMB", window(known=facts(topology=CHIPLETS, info=info(workers=(0, 1, 2, 3)), ceilings={"numa0": 30.0 * GB}))),
    ("R-IMB", window(works=slow_read, known=facts(topology=CHIPLETS, info=info(workers=(-1,) * 4)))),
    ("R-GPU-BOUND", window(with_cards(card()), hybrid(0.5, 0.45), facts(1))),
    ("R-GPU-BOUND", window(with_cards(card()), lambda i: work(i, (device("gpu0", 0.98),)), facts(1))),
    ("R-GPU-STARVE", window(with_cards(card(busy_percent=90.0)), lambda i: work(i, (device("gpu0", 0.98),)), facts(1))),
    ("R-GPU-STARVE", window(with_cards(card(busy_percent=18.0)), hybrid(0.8, 0.1), facts(1))),
    ("R-GPU-IMB", window(with_cards(card(), card(1, memory_free_bytes=GB // 2)), hybrid(0.1, 0.6, 0.2), facts(2))),
    ("R-GPU-IMB", window(with_cards(card(), card(1)), hybrid(0.1, 0.4, 0.35), facts(2))),
    ("R-VRAM", window(with_cards(card(memory_free_bytes=900_000_000)), hybrid(0.5, 0.4), facts(1))),
    ("R-VRAM", window(with_cards(card(), card(1, memory_free_bytes=1000)), hybrid(0.5, 0.4), facts(1))),
    ("R-VRAM-EXT", window(with_cards(card(memory_used_bytes=6 * GB)), hybrid(0.5, 0.4), facts(1))),
    (
        "R-VRAM-EXT",
        window(with_cards(card(memory_used_bytes=5 * GB)), hybrid(0.5, 0.4), facts(1, foreign_bytes={"GPU-0": 800_000_000})),
    ),
    ("R-KV-1", window(works=lambda i: work(i, kv_used_tokens=20_000))),
    ("R-KV-1", window(works=lambda i: work(i, kv_used_tokens=30_000, n_answers=4))),
    (
        "R-KV-SPD",
        window(
            works=lambda i: work(i, kv_used_tokens=20_000, decode_tok_s=12.0, trace=trace(attention=3.0, experts=41.0)),
            known=facts(fresh=Pace(20.0, 400, 0.05)),
        ),
    ),
    ("R-FRAG", window(known=facts(1, refused=Refused("gpu0", 3 * GB, 2 * GB, 105.0)))),
    ("R-PREFILL", window(works=lambda i: prompt(i, prompt_tokens=3000))),  # type: ignore[arg-type,return-value]
    (
        "R-COLD",
        window(lambda i: snapshot(i, memory=memory(process_major_faults_per_s=900.0)), known=facts(loaded_s=95.0, n_answers=1)),
    ),
    ("R-QUEUE", window(works=lambda i: work(i, n_waiting=3 if i > 8 else 0))),
    ("R-SENS", window(late_s=2.5)),
]


@pytest.mark.parametrize(("rule", "found"), FIRES, ids=[f"{rule}-{i}" for i, (rule, _) in enumerate(FIRES)])
def test_a_rule_is_first_to_name_its_fault(rule: str, found: Window) -> None:
    findings = diagnose(found)
    assert findings[0].id == rule, findings
    assert findings[0].sentence.endswith((".", "?"))
    assert findings[0].why


@pytest.mark.parametrize(("rule", "found"), SILENT, ids=[f"{rule}-{i}" for i, (rule, _) in enumerate(SILENT)])
def test_a_rule_is_silent_where_it_only_looks_like_its_fault(rule: str, found: Window) -> None:
    assert rule not in {one.id for one in diagnose(found)}


def test_every_rule_has_a_window_of_each_kind() -> None:
    ids = {rule.id for rule in RULES}
    assert ids == {rule for rule, _ in FIRES} == {rule for rule, _ in SILENT}
    assert len(FIRES) + len(SILENT) >= 60


@pytest.mark.parametrize(
    "found", [window(), window(with_cards(card()), hybrid(0.5, 0.45), facts(1)), window(works=lambda i: None), Window(())]
)
def test_healthy_machines_hear_nothing(found: Window) -> None:
    assert diagnose(found) == ()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_what_is_missing_never_makes_a_rule_speak(rule: Rule) -> None:
    for rule_id, found in FIRES:
        if rule.id != rule_id:
            continue
        bare = tuple(
            replace(
                one,
                snapshot=replace(
                    snapshot(i),
                    cores=(),
                    memory=type(memory())(),
                    pressure=PressureSample(),
                    disk=DiskSample(),
                    process=ProcessSample(),
                ),
                work=None,
            )
            for i, one in enumerate(found.readings)
        )
        assert rule.judge(Window(bare, Facts(), bare[-1].snapshot.time_s)) is None


def test_old_readings_silence_what_is_said_of_speed() -> None:
    for _, found in FIRES:
        late = replace(found, now_s=found.now_s + 60)
        assert {one.id for one in diagnose(late)} <= {"R-SENS", "R-LOST", "R-NAN"}


def test_what_matters_most_comes_first_and_consequences_are_not_said() -> None:
    found = window(
        with_cards(card(slow_bits=0x40, memory_free_bytes=100_000_000, memory_used_bytes=6 * GB)),
        hybrid(0.2, 0.75, n_waiting=3, n_invalid=1),
        facts(1, foreign_bytes={"GPU-0": 0}),
    )
    findings = diagnose(found)
    assert [one.id for one in findings] == ["R-NAN", "R-THERM-G", "R-VRAM-EXT", "R-QUEUE"]
    levels = [ORDER.index(one.level) for one in findings]
    assert levels == sorted(levels)


def test_balance_is_told_by_shares() -> None:
    found = window(with_cards(card()), hybrid(0.48, 0.45, trace=trace(transfer=3.5)), facts(1))
    assert balance(found) == "Balanced: CPU 48 %, GPU 45 %, copies 7 %."
    assert balance(window()) == "Balanced: CPU 97 %."
    assert balance(window(late_s=9.0)) == ""
    assert balance(window(works=lambda i: None)) == ""
