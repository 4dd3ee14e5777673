"""What people are told in guides for this kind of machine to check, to set or to suspect, and where each is answered: by a row of
the doctor, by another part of the program, or not at all, with the reason. `README.md` beside this file shows it as a table."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Covered:
    """item: what one is told. by: ids of rows. note: what is done instead or besides; never empty where there are no rows."""

    item: str
    by: tuple[str, ...] = ()
    note: str = ""


DIAGNOSIS = "while a model works: the live diagnosis"
FIRMWARE = "a firmware setting that the system does not tell"

COVERAGE = (
    Covered("Firmware: power saving off", ("D-CPU-4", "D-CPU-6", "D-PCI-4"), "what of it the system tells"),
    Covered("Fan curve against 95 °C", ("D-CPU-5", "D-GPU-6"), "fans are shown in percent, never set"),
    Covered(
        "Bridges between cards: state, matrix, loose or of another kind", ("D-PCI-7", "D-PCI-6"), "most desktop cards have none"
    ),
    Covered("Two cards on each processor", ("D-NUMA-4",), "the placement page groups cards by node"),
    Covered(
        "Memory at a higher speed than sold",
        ("D-MEM-2", "D-MEM-3"),
        "speed of the modules and what reading gave; no advice to overclock",
    ),
    Covered("Firmware: memory frequency; board and version", ("D-SYS-6", "D-MEM-2", "D-MEM-3")),
    Covered(
        "Firmware: interleaving over all dies",
        ("D-NUMA-1", "D-MEM-3"),
        "one node less or more, and whether nodes read equally fast",
    ),
    Covered("Firmware: gear-down mode", (), f"{FIRMWARE}; it belongs to overclocked desktop memory and is best left alone"),
    Covered(
        "Firmware: sleep states",
        ("D-CPU-8",),
        "shown; deep ones leave power to the cores that work, so no advice to switch them off",
    ),
    Covered(
        "Firmware: preferred cores",
        ("D-CPU-4",),
        "the clock policy is judged; which core works is decided by pinning, not by this",
    ),
    Covered(
        "Firmware: error reporting of links", ("D-PCI-3",), "its counters are read; switching it off would only hide a bad riser"
    ),
    Covered(
        "Settings that did not take effect", ("D-MEM-3", "D-NUMA-1"), "measure before and after; nothing has to be erased for it"
    ),
    Covered("Memory modules: which slots, how many channels", ("D-MEM-2", "D-NUMA-1")),
    Covered("Nodes with their memory and processors", ("D-NUMA-1",), "also `layerdeck topology`"),
    Covered(
        "Packages, other package sources, compilers",
        ("D-GPU-11", "D-SYS-3"),
        "a compiler is looked for only where cards need one",
    ),
    Covered("Instruction set by counting lines", ("D-CPU-1", "D-SYS-8"), "flags once, and which kernels are active"),
    Covered("Which version was checked out", ("D-SYS-8",)),
    Covered(
        "An environment of its own with its packages",
        ("D-GPU-2", "D-GPU-3"),
        "whether torch is there and fits; `make run` makes the rest",
    ),
    Covered("Version after the build", ("D-SYS-8",), "also `layerdeck --version` and `layerdeck selftest`"),
    Covered(
        "Base of the rotary embedding set by hand",
        ("D-FIL-1",),
        "it is read from the file, and what contradicts the file is told",
    ),
    Covered(
        "Header and architecture of the file, one token as a test",
        ("D-FIL-1", "D-FIL-4"),
        "each load runs one step before it is ready",
    ),
    Covered("Use and memory of cards each second", ("D-GPU-4", "D-GPU-6"), "the monitors sample and record it"),
    Covered("Card's memory nearly full: too many layers there", ("D-GPU-4",), DIAGNOSIS),
    Covered(
        "Card hardly busy: the processor is the limit",
        (),
        f"{DIAGNOSIS}; how busy a card is depends on the split, so no fixed figure",
    ),
    Covered("Which cores work", ("D-CPU-2", "D-CPU-3"), "the monitors show every core by chiplet and node"),
    Covered("The other socket is loaded", ("D-NUMA-3", "D-NUMA-4"), DIAGNOSIS),
    Covered("Memory used by node", ("D-NUMA-1", "D-NUMA-3", "D-MEM-1"), "cached files are told apart from what is used"),
    Covered("Some cores busy, others not", ("D-CPU-2", "D-MEM-4"), DIAGNOSIS),
    Covered(
        "A list of processors by hand", ("D-CPU-2", "D-CPU-3"), "workers are spread over chiplets; `-t 0-7,16-23` takes a list"
    ),
    Covered("Other programs on the card, resets", ("D-GPU-4", "D-SYS-2"), "they are listed; nothing is ended, nothing is reset"),
    Covered("Warming up with empty requests", (), "each load runs one step by itself"),
    Covered("Power saving of links (ASPM)", ("D-PCI-4",)),
    Covered("Disk scheduler", ("D-DSK-2", "D-DSK-1")),
    Covered("Swappiness", ("D-MEM-5",)),
    Covered(
        "Address translation of devices (IOMMU), CUDA errors with it", ("D-PCI-6",), "CUDA needs none; errors are shown in words"
    ),
    Covered("Segmentation fault", ("D-SYS-7", "D-GPU-1", "D-FIL-1"), "the crash report names the place; threads align nothing"),
    Covered("Card's memory grows until it is full", ("D-GPU-4",), "what the model holds is counted by owner, and growth is told"),
    Covered("First word late and irregular", ("D-PCI-1", "D-PCI-2", "D-PCI-3", "D-DSK-1", "D-SYS-2"), DIAGNOSIS),
    Covered("Processor idle while the card is full", (), f"{DIAGNOSIS}: that is what a card at its limit looks like"),
    Covered("Garbled or repeated text", ("D-PCI-6", "D-MEM-8", "D-GPU-8", "D-FIL-1", "D-FIL-4"), DIAGNOSIS),
    Covered("Link with fewer lanes, measured copies", ("D-PCI-1", "D-PCI-2")),
    Covered("Heat of the processor slows the cards", ("D-CPU-5", "D-GPU-6"), DIAGNOSIS),
    Covered("Power mode and fans of cards by a desktop tool", ("D-GPU-5", "D-GPU-6"), "shown; nothing is set"),
    Covered("Download of a tokenizer hangs", ("D-NET-1",), "loading needs no network: the tokenizer is in the file"),
    Covered("Load test with many users", (), "a test of the server, not of the machine"),
    Covered("Size of the prompt's pieces", (), "the engine chooses it for each machine; no setting of the machine"),
    Covered("Automatic balancing or two threads a core cost speed", ("D-NUMA-2", "D-CPU-2", "D-CPU-8")),
    Covered("Pages move between chiplets", ("D-NUMA-2", "D-MEM-4"), "pages move between nodes only; how many is counted"),
    Covered("Balancing off", ("D-NUMA-2",), "only where memory has no policy of its own"),
    Covered(
        "Dropping the page cache before loading",
        ("D-NUMA-3", "D-MEM-1"),
        "it throws away what is cached; weights are placed anew without it",
    ),
    Covered("Firmware: nodes per socket", ("D-NUMA-1",), "measured, not prescribed"),
    Covered("All memory channels filled", ("D-MEM-2", "D-MEM-3")),
    Covered("Experts spread over all channels", ("D-NUMA-1", "D-NUMA-3"), "checked by where pages lie"),
    Covered("Threads as many as cores", ("D-CPU-2",)),
    Covered("Two sockets slower than one", ("D-NUMA-2", "D-NUMA-3", "D-NUMA-5"), DIAGNOSIS),
    Covered("Audit before the start", ("D-NUMA-1", "D-MEM-1", "D-GPU-4"), "the quick rows, in less than two seconds"),
    Covered("Flush before the start", (), "not done: see dropping the page cache"),
)


def as_markdown() -> str:
    """The table of `README.md`."""
    lines = ["| What one is told to check, set or suspect | Rows | Besides, or why not |", "|---|---|---|"]
    lines += [f"| {one.item} | {', '.join(one.by) or 'none'} | {one.note} |" for one in COVERAGE]
    return "\n".join(lines) + "\n"
