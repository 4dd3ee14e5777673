"""What the machine is made of: sockets, NUMA nodes, groups of cores with a common L3 cache, cores, their threads, graphics cards;
and what this process may use of it. Values only; `topology_read` fills them from /proc and /sys.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from engine.hardware.snapshot import GpuMaker

CoreKind = Literal["performance", "efficient"]


@dataclass(frozen=True, slots=True)
class Core:
    """A physical core. cpus: its threads that are on, ascending. index, l3: its place in Topology.cores and .l3_groups."""

    index: int
    cpus: tuple[int, ...]
    socket: int
    node: int
    l3: int
    kind: CoreKind = "performance"


@dataclass(frozen=True, slots=True)
class L3Group:
    """Cores with one L3 cache, a chiplet of AMD's. cores: their indices. size_bytes: None where the system does not tell."""

    index: int
    node: int
    cores: tuple[int, ...]
    size_bytes: int | None


@dataclass(frozen=True, slots=True)
class Node:
    """A NUMA node. cpus: none on a node of memory alone (CXL). distances: to each of Topology.nodes, 10 = itself.

    allowed: whether this process may take memory of it. memory_bytes: all of its memory, None where that is unknown.
    """

    node: int
    cpus: tuple[int, ...]
    memory_bytes: int | None
    distances: tuple[int, ...]
    allowed: bool = True

    @property
    def memory_only(self) -> bool:
        """Memory without cores beside it, slower than that of other nodes."""
        return not self.cpus


@dataclass(frozen=True, slots=True)
class PciGpu:
    """A graphics card on the PCI bus. node: None where the system does not know. asleep: switched off to save power.

    may_sleep: the system may switch it off when nobody uses it. Of the link: generation and lanes now and at most, None where
    they are not told, as in sleep.
    """

    pci: str
    maker: GpuMaker
    device: str
    node: int | None
    asleep: bool = False
    may_sleep: bool = False
    link_generation: int | None = None
    link_generation_max: int | None = None
    link_width: int | None = None
    link_width_max: int | None = None

    @property
    def narrow(self) -> bool:
        """Fewer lanes than card and slot could use. That does not come from idling."""
        return self.link_width is not None and self.link_width_max is not None and self.link_width < self.link_width_max


@dataclass(frozen=True, slots=True)
class CpuFacts:
    """How the system runs its processors, for whoever judges it. Each None where the system does not tell.

    instruction_set: the widest of avx2, avx512, avx512_vnni, avx512_bf16 that it has, or `none`.
    package_power: whether the energy counter of the sockets can be read; `hidden`: by root alone.
    """

    name: str
    instruction_set: str
    frequency_driver: str | None
    governor: str | None
    energy_preference: str | None
    numa_balancing: bool | None
    on_battery: bool
    package_power: Literal["readable", "hidden", "absent"]

    @property
    def held_slow(self) -> bool:
        """Whether the system keeps the clock low. Under drivers in active mode (*pstate*) `powersave` is the normal governor."""
        active = self.frequency_driver is not None and "pstate" in self.frequency_driver
        if active:
            return self.energy_preference == "power"
        return self.governor in ("powersave", "conservative")


@dataclass(frozen=True, slots=True)
class Topology:
    """The machine, and this process's share of it.

    nodes: by number, those without cores too. cores: by node, L3 group and number. cpus: logical processors that are on; n_cpus
    counts those that are off too. allowed_cpus: those this process may run on. quota_cores: processors' worth of time that its
    control group may take, None: no limit. memory_limit_bytes: of its control group.
    degraded: what could not be read and was guessed, one sentence each; () when nothing was.
    """

    sockets: int
    nodes: tuple[Node, ...]
    l3_groups: tuple[L3Group, ...]
    cores: tuple[Core, ...]
    cpus: tuple[int, ...]
    n_cpus: int
    allowed_cpus: tuple[int, ...]
    quota_cores: float | None
    memory_limit_bytes: int | None
    cgroup_version: int | None
    container: bool
    gpus: tuple[PciGpu, ...]
    facts: CpuFacts
    degraded: tuple[str, ...] = ()

    @property
    def smt(self) -> bool:
        """Whether cores run several threads."""
        return any(len(core.cpus) > 1 for core in self.cores)

    @property
    def usable_cores(self) -> tuple[Core, ...]:
        """Cores of which this process may use at least one thread."""
        allowed = frozenset(self.allowed_cpus)
        return tuple(core for core in self.cores if not allowed.isdisjoint(core.cpus))

    @property
    def usable_nodes(self) -> tuple[int, ...]:
        """Nodes with cores that this process may use."""
        return tuple(sorted({core.node for core in self.usable_cores}))

    @property
    def memory_nodes(self) -> tuple[int, ...]:
        """Nodes whose memory this process may take; one whose size is not told counts."""
        return tuple(one.node for one in self.nodes if one.allowed and one.memory_bytes != 0)

    def memory_of(self, number: int) -> int:
        """The node whose memory is nearest to the cores of a node: its own, unless it has none that this process may take."""
        node, there = self.node(number), self.memory_nodes
        if node is None or number in there or not there:
            return number
        far = dict(zip((one.node for one in self.nodes), node.distances, strict=False))
        return min(there, key=lambda one: (far.get(one, max(far.values(), default=0)), one))

    def node(self, number: int) -> Node | None:
        """The node with this number."""
        return next((one for one in self.nodes if one.node == number), None)
