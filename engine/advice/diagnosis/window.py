"""The last seconds of readings and what is known beside them: what rules judge. Values and sums over them; nothing here reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from engine.api.values import Astray, CoreSample, DeviceWork, EngineSample, GpuSample, HardwareSnapshot, ModelInfo, Topology

SPAN_S = 10.0
LEAST_READINGS = 4
"""Fewer say nothing about a share or a mean."""
STALE_S = 2.0
"""A reading may be so much older than the time between readings."""
CARD_STALE_S = 3.0
DISTURBED_PERCENT = 3.0
"""Of time for which workers were ready and had no core."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The machine, and the engine beside it; None without a model."""

    snapshot: HardwareSnapshot
    work: EngineSample | None = None


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast decoding was with so many tokens in the cache, and the share of attention in a step, where it was measured."""

    tok_s: float
    kv_tokens: int
    attention: float | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """A card that had no room for `asked` bytes though `free` were free; time_s: monotonic."""

    device: str
    asked: int
    free: int
    time_s: float


@dataclass(frozen=True, slots=True)
class Lost:
    """A device that stopped answering. clock: as people read it, `14:02`; sentence: the engine's own, or "". info: of the model
    that lay there, which may be gone by now."""

    device: str
    clock: str
    sentence: str = ""
    info: ModelInfo | None = None


@dataclass(frozen=True, slots=True)
class Invalid:
    """An answer that was ended because values became no numbers. time_s: monotonic; sentence: the engine's own."""

    time_s: float
    sentence: str


@dataclass(frozen=True, slots=True)
class Facts:
    """What changes rarely. All of it may be missing; then what needs it does not fire.

    loaded_s: monotonic, when the model was ready; n_answers: finished since. ceilings: bytes a second by device that calibration
    measured, assumed ones are not here. chunk: tokens of a prompt at once. off_node_share: of the
    sampled pages, see `Holdings`. foreign_bytes: by card key what others held of its memory when the model was loaded.
    invalid: the last answer that ended so.
    fresh: the pace with a short cache, since the placement is as it is. tuned: what TuneWorkers
    found, a sentence, "" without.
    """

    topology: Topology | None = None
    info: ModelInfo | None = None
    loaded_s: float | None = None
    n_answers: int = 0
    ceilings: Mapping[str, float] = field(default_factory=dict)
    chunk: int = 0
    off_node_share: float | None = None
    foreign_bytes: Mapping[str, int] = field(default_factory=dict)
    fresh: Pace | None = None
    refused: Refused | None = None
    lost: Lost | None = None
    invalid: Invalid | None = None
    tuned: str = ""


@dataclass(frozen=True, slots=True)
class Window:
    """readings: of the last SPAN_S, oldest first. now_s: monotonic; later than the newest reading where readings stopped."""

    readings: tuple[Reading, ...]
    facts: Facts = Facts()
    now_s: float = 0.0

    @property
    def newest(self) -> HardwareSnapshot | None:
        """The last reading of the machine."""
        return self.readings[-1].snapshot if self.readings else None

    @property
    def age_s(self) -> float:
        """Of the newest reading."""
        return 0.0 if self.newest is None else max(0.0, self.now_s - self.newest.time_s)

    @property
    def is_stale(self) -> bool:
        """Whether nothing may be said of speed any more."""
        snapshot = self.newest
        if snapshot is None:
            return False
        period = 1.0 if snapshot.cost is None else max(1.0, snapshot.cost.period_s)
        return self.age_s > period + STALE_S

    @property
    def is_enough(self) -> bool:
        """Whether there are readings enough for shares and means."""
        return len(self.readings) >= LEAST_READINGS

    @property
    def works(self) -> tuple[EngineSample, ...]:
        """What the engine did."""
        return tuple(one.work for one in self.readings if one.work is not None)

    @property
    def decoding(self) -> tuple[EngineSample, ...]:
        """Of the periods in which tokens were decoded; () where most of the window had none."""
        found = tuple(one for one in self.works if one.n_decode_steps and one.step_ms)
        return found if len(found) >= max(LEAST_READINGS, len(self.readings) // 2) else ()

    @property
    def is_prefilling(self) -> bool:
        """Whether most of the window went into reading prompts."""
        found = [one for one in self.works if (one.n_prefilled or one.prompt_tokens) and not one.n_decode_steps]
        return len(found) >= max(LEAST_READINGS, len(self.readings) // 2)

    @property
    def is_working(self) -> bool:
        """Whether the engine made steps in most of the window."""
        return bool(self.decoding) or self.is_prefilling

    def mean(self, of: Callable[[HardwareSnapshot], float | None]) -> float | None:
        """The mean of a gauge; None where it is missing in half of the readings or more."""
        values = [value for one in self.readings if (value := of(one.snapshot)) is not None]
        return sum(values) / len(values) if values and 2 * len(values) > len(self.readings) else None

    def works_mean(self, of: Callable[[EngineSample], float | None], works: Iterable[EngineSample] | None = None) -> float | None:
        """The mean of a counter over periods of decoding, or over `works`; None where there is none."""
        values = [value for one in (self.decoding if works is None else works) if (value := of(one)) is not None]
        return sum(values) / len(values) if values else None

    # --- a step ------------------------------------------------------------------------------------------------------

    def share(self, device: str) -> float | None:
        """The share of a decode step in which a device computed, 0..1."""

        def of(sample: EngineSample) -> float | None:
            work = device_of(sample, device)
            return None if work is None or work.token_ms is None or not sample.step_ms else work.token_ms / sample.step_ms

        return self.works_mean(of)

    def waits(self, device: str) -> float | None:
        """The share of a decode step in which a device waited for others, 0..1."""

        def of(sample: EngineSample) -> float | None:
            work = device_of(sample, device)
            return None if work is None or work.waiting_ms is None or not sample.step_ms else work.waiting_ms / sample.step_ms

        return self.works_mean(of)

    def token_ms(self, device: str) -> float | None:
        """Milliseconds of a decode step in which a device computed."""
        return self.works_mean(lambda one: None if (work := device_of(one, device)) is None else work.token_ms)

    @property
    def devices(self) -> tuple[str, ...]:
        """Those that took part in decoding, nodes first."""
        return tuple(one.device for one in self.decoding[-1].devices if one.token_ms) if self.decoding else ()

    @property
    def nodes(self) -> tuple[str, ...]:
        """Nodes of memory that took part in decoding."""
        return tuple(one for one in self.devices if one.startswith("numa"))

    @property
    def cards(self) -> tuple[str, ...]:
        """Cards that took part in decoding."""
        return tuple(one for one in self.devices if one.startswith("gpu"))

    @property
    def cpu_share(self) -> float | None:
        """Of the busiest node."""
        return max((share for one in self.nodes if (share := self.share(one)) is not None), default=None)

    @property
    def copy_share(self) -> float | None:
        """Of the last measured step, the part in which rows crossed between devices; None where no step was measured."""
        trace = self.decoding[-1].trace if self.decoding else None
        if trace is None or trace.total_ms <= 0:
            return None
        by_device: dict[str, float] = {}
        for span in trace.spans:
            if span.kind == "transfer":
                by_device[span.device] = by_device.get(span.device, 0.0) + span.ms
        return max(by_device.values(), default=0.0) / trace.total_ms

    @property
    def attention_share(self) -> float | None:
        """Of the last measured step, the part of attention on the device where it took most."""
        trace = self.decoding[-1].trace if self.decoding else None
        if trace is None or trace.total_ms <= 0:
            return None
        by_device: dict[str, float] = {}
        for span in trace.spans:
            if span.kind == "attention":
                by_device[span.device] = by_device.get(span.device, 0.0) + span.ms
        return max(by_device.values(), default=0.0) / trace.total_ms

    def achieved(self, device: str) -> float | None:
        """Bytes a second that a device read while it computed."""
        return self.works_mean(lambda one: None if (work := device_of(one, device)) is None else work.read_bytes_per_s)

    @property
    def astray(self) -> Astray | None:
        """How much of the model lies on other nodes of memory than it should, by the last look; None where that is not told."""
        found = self.works[-1].astray if self.works else None
        share = self.facts.off_node_share
        return Astray(share) if found is None and share is not None else found

    # --- the machine -------------------------------------------------------------------------------------------------

    @property
    def worker_cpus(self) -> tuple[int, ...]:
        """The logical processors that the model's workers run on; those of this process where they are not pinned."""
        info, topology = self.facts.info, self.facts.topology
        placement = None if info is None else info.placement
        pinned = () if placement is None else tuple(one for one in placement.workers.cores if one >= 0)
        return pinned or (() if topology is None else topology.allowed_cpus)

    @property
    def n_workers(self) -> int:
        """Of the model, 0 where they are not known."""
        info = self.facts.info
        return 0 if info is None or info.placement is None else info.placement.workers.n_workers

    def use(self, snapshot: HardwareSnapshot) -> float | None:
        """Percent in use of the processors that the workers run on."""
        wanted = frozenset(self.worker_cpus)
        found = [
            percent for core in snapshot.cores for cpu, percent in zip(core.cpus, core.use_percent, strict=False) if cpu in wanted
        ]
        return sum(found) / len(found) if found else None

    def is_disturbed(self, node: str) -> bool:
        """Whether the workers of `numa1` take long because others have their cores, or have moved them: not for their part."""
        topology = self.facts.topology
        if self.works and self.works[-1].strays:
            return True
        if topology is None:
            return False
        cpus = frozenset(cpu for core in topology.cores if f"numa{topology.memory_of(core.node)}" == node for cpu in core.cpus)

        def of(snapshot: HardwareSnapshot) -> float | None:
            mine = [one.waiting_percent for one in snapshot.process.threads if one.cpu in cpus]
            return sum(mine) / len(mine) if mine else None

        waited = self.mean(of)
        return waited is not None and waited >= DISTURBED_PERCENT

    def worker_cores(self, snapshot: HardwareSnapshot) -> tuple[CoreSample, ...]:
        """The cores that workers run on."""
        wanted = frozenset(self.worker_cpus)
        return tuple(core for core in snapshot.cores if not wanted.isdisjoint(core.cpus))

    def card(self, device: str) -> GpuSample | None:
        """The last reading of the card of `gpu1`, None where it is emulated, unknown, or its values are old."""
        snapshot = self.newest
        work = next((work for one in reversed(self.works) if (work := device_of(one, device)) is not None), None)
        if snapshot is None or work is None or not work.card:
            return None
        found = next((one for one in snapshot.gpus if one.key == work.card), None)
        return found if found is not None and is_fresh(found) else None

    @property
    def fresh_cards(self) -> tuple[tuple[str, GpuSample], ...]:
        """(what it is called, last reading) of each card that answers."""
        snapshot = self.newest
        return () if snapshot is None else tuple((self.name(one), one) for one in snapshot.gpus if is_fresh(one))

    def device_name(self, gpu: GpuSample) -> str:
        """`gpu1` of a card: as the engine calls it, else by its place."""
        for sample in reversed(self.works):
            for work in sample.devices:
                if work.card and work.card == gpu.key:
                    return work.device
        snapshot = self.newest
        keys = () if snapshot is None else tuple(one.key for one in snapshot.gpus)
        return f"gpu{keys.index(gpu.key)}" if gpu.key in keys else "gpu"

    def name(self, gpu: GpuSample) -> str:
        """`GPU 1` of a card."""
        return spoken(self.device_name(gpu))

    def history(self, key: str) -> tuple[GpuSample, ...]:
        """The readings of one card, those alone that are of their time."""
        found = (next((gpu for gpu in one.snapshot.gpus if gpu.key == key), None) for one in self.readings)
        return tuple(one for one in found if one is not None and is_fresh(one))


def is_fresh(gpu: GpuSample) -> bool:
    """Whether a card answers, so that its values are of now."""
    return gpu.state == "ok" and gpu.age_s <= CARD_STALE_S


def device_of(sample: EngineSample, device: str) -> DeviceWork | None:
    """What one device did."""
    return next((one for one in sample.devices if one.device == device), None)


def spoken(device: str) -> str:
    """`gpu1` as `GPU 1`, `numa0` as `memory node 0`."""
    for prefix, word in (("gpu", "GPU"), ("numa", "memory node")):
        if device.startswith(prefix) and device[len(prefix) :].isdigit():
            return f"{word} {device[len(prefix) :]}"
    return device


def bytes_text(n: float) -> str:
    """`5.1 GB`, `380 MB`: decimal, as makers count."""
    return f"{n / 1e9:.1f} GB" if n >= 0.95e9 else f"{n / 1e6:.0f} MB"


def rate_text(n: float) -> str:
    """`1.9 GB/s`."""
    return f"{bytes_text(n)}/s"


def percent_text(share: float) -> str:
    """`41 %` of 0..1."""
    return f"{100 * share:.0f} %"
