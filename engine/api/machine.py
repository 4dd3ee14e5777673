"""What the machine is, for the application: pure questions, no commands."""

from __future__ import annotations

from engine.api.values import Topology

_LABELS = {
    "scalar": "No vector instructions",
    "avx2": "AVX2",
    "avxvnni": "AVX2 VNNI",
    "avx512": "AVX-512",
    "avx512vnni": "AVX-512 VNNI",
}


def instruction_set() -> str:
    """The instruction set that the kernels use on this machine, as people read it: `AVX-512 VNNI`."""
    # Not with the module: a window that never asks needs no kernels.
    from kernels_pyx.cpu_features import active_isa

    return isa_label(active_isa())


def isa_label(isa: str) -> str:
    """The name of one of our instruction sets as people read it; others as they are."""
    return _LABELS.get(isa, isa)


def machine_key() -> str:
    """Tells this machine from others for which placements are kept: its memories, cores and cards."""
    from engine.hardware.machine import machine_fingerprint, this_machine

    return machine_fingerprint(this_machine())


def this_topology() -> Topology:
    """What this machine is made of, for the calling thread. Read once, in some milliseconds, and kept."""
    from engine.hardware.topology_read import topology

    return topology()
