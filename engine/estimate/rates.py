"""How fast a machine reads, multiplies and sends: what a calibration holds, and what is assumed where nobody measured.

Assumed figures are those of parts that people have: read rates of graphics cards by name, and for the rest what this engine
reached on machines like it. A measured rate takes the place of an assumed one; `engine.runtime.calibrate` measures.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.hardware.machine import Machine
from engine.quants.formats import BY_NAME

CORE_READ_GBPS = 20.0
"""Of memory, by one core; a few together reach what the memory gives."""
NODE_READ_GBPS = 40.0
"""Of a node of which nothing is known: two channels of DDR5."""
SUSTAINED = 0.8
"""What is read of the rate that a memory is sold with."""
CORE_FLOAT_GOPS = 75.0
MEET_US = 1.0
OP_US = 0.5
STEP_US = 60.0
EXCHANGE_US = 12.0
LINK_GBPS = 24.0
"""PCIe 4.0 x16, what copies of pinned memory reach."""
FILE_GBPS = 2.0
GPU_READ_GBPS = 450.0
GPU_TFLOPS = 60.0
NODE_US = 2.5
"""A launch within a captured graph, with what small matrices lose until all of a GPU is at work."""

CARDS: tuple[tuple[str, float, float], ...] = (
    ("H200", 4800.0, 600.0),
    ("H100 PCIE", 2000.0, 400.0),
    ("H100", 3350.0, 600.0),
    ("B200", 8000.0, 1100.0),
    ("A100", 1555.0, 230.0),
    ("L40", 864.0, 150.0),
    ("A6000", 768.0, 120.0),
    ("RTX 6000 ADA", 960.0, 150.0),
    ("RTX PRO 6000", 1792.0, 200.0),
    ("RTX 5090", 1792.0, 170.0),
    ("RTX 5080", 960.0, 90.0),
    ("RTX 5070 TI", 896.0, 75.0),
    ("RTX 5070", 672.0, 50.0),
    ("RTX 4090", 1008.0, 140.0),
    ("RTX 4080", 717.0, 85.0),
    ("RTX 4070 TI SUPER", 672.0, 70.0),
    ("RTX 4070", 504.0, 50.0),
    ("RTX 4060", 272.0, 25.0),
    ("RTX 3090", 936.0, 60.0),
    ("RTX 3080", 760.0, 50.0),
    ("RTX 3060", 360.0, 22.0),
    ("T4", 320.0, 40.0),
)
"""(part of the name, GB/s that the card is sold with, 10^12 f16 operations a second that dense products reach)."""


@dataclass(frozen=True, slots=True)
class FormatRates:
    """How the kernels of one node's cores get on with one format. stream_gbps: weights that one thread gets through with one row,
    out of memory; share: of what all threads read together, what they get through so; gops: 10^9 operations a second and thread
    with very many rows; unpack_ns: for each weight beside that, however many rows there are, a thread."""

    stream_gbps: float
    share: float
    gops: float
    unpack_ns: float


FAST = FormatRates(25.0, 0.85, 330.0, 0.06)
EXACT = FormatRates(4.0, 0.3, 40.0, 1.0)
FLOAT = FormatRates(23.0, 0.8, 105.0, 0.3)
"""Of formats with kernels of their own, of those that are multiplied exactly, of plain numbers: cores with 512-bit vectors."""


@dataclass(frozen=True, slots=True)
class NodeRates:
    """One node of memory and its cores.

    read_gbps: (threads, GB/s together), ascending; sold_gbps: what the memory is said to give, 0: nobody says; formats: by name;
    float_gops: of attention, a thread. meet_us: all threads once; op_us: an op that does hardly anything.
    """

    read_gbps: tuple[tuple[int, float], ...]
    formats: tuple[tuple[str, FormatRates], ...] = ()
    float_gops: float = CORE_FLOAT_GOPS
    meet_us: float = MEET_US
    op_us: float = OP_US
    sold_gbps: float = 0.0

    def read(self, threads: int) -> float:
        """GB/s that so many threads read together."""
        below = (0, 0.0)
        for n, rate in self.read_gbps:
            if n >= threads:
                share = (threads - below[0]) / (n - below[0])
                return below[1] + share * (rate - below[1])
            below = n, rate
        return below[1]

    @property
    def limit(self) -> float:
        """GB/s that it gives at most: as sold, else as measured."""
        return self.sold_gbps or max((rate for _, rate in self.read_gbps), default=0.0)

    def format(self, name: str) -> FormatRates:
        """The rates of a format, assumed where it was not measured."""
        known = dict(self.formats).get(name)
        if known is not None:
            return known
        form = BY_NAME[name]
        return FLOAT if form.is_float else FAST if form.path == "fast" else EXACT


@dataclass(frozen=True, slots=True)
class GpuRates:
    """One GPU. read_gbps: of its memory; tflops: dense f16 products, 10^12 operations a second; to_gbps, from_gbps: between its
    memory and the machine's; node_us: a launch within a graph."""

    read_gbps: float
    tflops: float
    to_gbps: float = LINK_GBPS
    from_gbps: float = LINK_GBPS
    node_us: float = NODE_US


@dataclass(frozen=True, slots=True)
class Corrections:
    """How much longer a step really takes than these rates say, by phase and by kind of device; 1.0: as long."""

    decode_cpu: float = 1.0
    decode_gpu: float = 1.0
    prefill_cpu: float = 1.0
    prefill_gpu: float = 1.0


@dataclass(frozen=True, slots=True)
class Calibration:
    """The rates of a machine. nodes, gpus: in its order; measured: whether they are its own and not assumed.

    exchange_us: a hand-over between two devices within a step; step_us: what a step takes beside its ops; file_gbps: of the disk.
    """

    nodes: tuple[NodeRates, ...]
    gpus: tuple[GpuRates, ...]
    exchange_us: float = EXCHANGE_US
    step_us: float = STEP_US
    file_gbps: float = FILE_GBPS
    corrections: Corrections = field(default_factory=Corrections)
    measured: bool = False


def assumed(machine: Machine) -> Calibration:
    """What is assumed of a machine, of which a file may tell the rates of its memories and links."""
    return Calibration(
        tuple(_node(one.n_cores, one.read_gbps) for one in machine.nodes),
        tuple(_gpu(one.name, one.read_gbps, one.link_gbps) for one in machine.gpus),
    )


def _node(n_cores: int, gbps: float | None) -> NodeRates:
    limit = SUSTAINED * gbps if gbps else NODE_READ_GBPS
    enough = max(1, min(n_cores, round(limit / CORE_READ_GBPS)))
    return NodeRates(tuple(dict.fromkeys(((enough, limit), (max(n_cores, enough), limit)))), sold_gbps=gbps or 0.0)


def _gpu(name: str, gbps: float | None, link: float | None) -> GpuRates:
    """Of a card by its name; what is emulated is taken for a usual card: nobody emulates for speed."""
    upper = name.upper()
    known = next((row for row in CARDS if row[0] in upper), None)
    sold = gbps or (known[1] if known else GPU_READ_GBPS)
    tflops = known[2] if known else GPU_TFLOPS
    both = link or LINK_GBPS
    return GpuRates(sold, tflops, both, both)
