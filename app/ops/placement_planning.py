"""What the placement desk asks arithmetic for: the seam between the editor and the estimate, and the devices of a machine."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, Protocol, TypeVar

from app.i18n import filled, tr
from engine.api.pure import Calibration, Device, Gpu, Machine, ModelOutline, Numa, Placement, Prediction, UnitId
from engine.api.values import LoadOptions

T = TypeVar("T")
MAX_NAME = 28


class PlacementPlanner(Protocol):
    """`engine.api.pure.Planner`, or a scripted one in tests. It is used by one thread at a time."""

    @property
    def n_ctx(self) -> int:
        """Tokens of context that everything is planned for."""

    def default(self) -> Placement:
        """What loading without a placement gives."""

    def set_counts(self, counts: Mapping[int, Sequence[int]]) -> None:
        """How often experts were passed, by layer: what pools of them are worth is predicted, and they are filled, by it."""

    def set_rates(self, rates: Calibration) -> None:
        """What was measured of the machine meanwhile."""

    def fit(self) -> Placement:
        """The best found. Raises: PlacementError, with the arithmetic, where nothing fits."""

    def estimate(self, placement: Placement) -> Prediction:
        """What a placement takes and how fast it is."""

    def move(self, placement: Placement, units: tuple[UnitId, ...], device: Device) -> Placement:
        """The placement with some units elsewhere, and what follows them."""

    def into_memory(self, placement: Placement, units: tuple[UnitId, ...]) -> Placement:
        """The placement with some units split over all memory nodes, as far as there are several, and what follows them."""

    def off_nodes(self, placement: Placement, units: tuple[UnitId, ...]) -> Placement:
        """The placement with some units on the first of their nodes alone."""

    def nodes_refusal(self, placement: Placement, units: tuple[UnitId, ...]) -> str:
        """Why units cannot be split over memory nodes, a sentence with what to do; empty: they can."""

    def refusal(self, placement: Placement, units: tuple[UnitId, ...], device: Device) -> str:
        """Why units cannot lie on a device, a sentence; empty: they can."""

    def fix(self, placement: Placement, held: Collection[UnitId] = ()) -> tuple[str, Placement] | None:
        """What to do about one that does not fit, and how it lies then. held: what stays where it is."""

    def unit_bytes(self, placement: Placement) -> dict[UnitId, int]:
        """Bytes of every unit, caches and states among them."""

    def unit_ms(self, unit: UnitId, device: Device) -> float:
        """Milliseconds of a token that a unit takes there."""


DeskState = Literal["no model", "estimating", "ready", "does not fit", "applying", "failed"]
"""What the placement desk is at."""
MakePlanner = Callable[[ModelOutline, LoadOptions, Machine], PlacementPlanner]


class Remembered(Generic[T]):
    """The newest answer, so that asking the same again, as drags do for every pixel, costs nothing."""

    def __init__(self) -> None:
        self._answer: tuple[object, T] | None = None

    def of(self, key: object, make: Callable[[], T]) -> T:
        """The answer to a question that is told from others by its key."""
        if self._answer is None or self._answer[0] != key:
            self._answer = (key, make())
        return self._answer[1]


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """A column of the board. hardware: as its maker calls it; lost: it went away, what lay there is kept where it was."""

    device: Device
    name: str
    hardware: str
    lost: bool = False


def device_name(device: Device) -> str:
    """As people call it: `GPU 1`, `NUMA 0`."""
    if isinstance(device, Gpu):
        return filled(tr("Placement", "GPU %1"), device.index)
    return filled(tr("Placement", "NUMA %1"), device.node)


def nodes_text(nodes: Sequence[int]) -> str:
    """`NUMA 0 + 1`."""
    return filled(tr("Placement", "NUMA %1"), " + ".join(str(node) for node in nodes))


def cards_text(n: int) -> str:
    """`1 card`, `3 cards`."""
    return tr("Placement", "1 card") if n == 1 else tr("Placement", "%n cards", n)


def device_rows(machine: Machine, used: Iterable[Device], lost: frozenset[Device]) -> tuple[DeviceRow, ...]:
    """The devices of a machine, cards before nodes, and those that are in use although they are not there: they are lost."""
    rows = {
        Gpu(one.index): DeviceRow(Gpu(one.index), device_name(Gpu(one.index)), _short(one.name), Gpu(one.index) in lost)
        for one in machine.gpus
    } | {
        Numa(one.node): DeviceRow(Numa(one.node), device_name(Numa(one.node)), _node_text(one.name, one.n_cores), False)
        for one in machine.nodes
    }
    for device in used:
        if device not in rows:
            rows[device] = DeviceRow(device, device_name(device), tr("Placement", "not in this machine"), True)
    return tuple(rows[device] for device in sorted(rows, key=lambda one: (isinstance(one, Numa), one)))


def _node_text(name: str, n_cores: int) -> str:
    cores = tr("Placement", "%n cores", n_cores)
    return f"{_short(name)} · {cores}" if name else cores


def _short(name: str) -> str:
    """A processor or card without what every such name has."""
    for word in ("NVIDIA ", "GeForce ", "AMD ", "Intel(R) ", "Xeon(R) ", "(R)", "(TM)", " Processor", " CPU"):
        name = name.replace(word, "")
    return name.split(" @ ")[0].strip()[:MAX_NAME]
