"""Which instruction set this machine has and which one the kernels use."""

from kernels_pyx.dispatch cimport active_table, detected, ld_isa, table_for
from kernels_pyx.isas import ISAS


def detected_isa() -> str:
    """The best instruction set with kernels that processor and operating system support."""
    return ISAS[<int>detected()]


def active_isa() -> str:
    """The instruction set in use: the detected one, or a lower one named by `LAYERDECK_ISA`."""
    return ISAS[<int>active_table().isa]


def available_isas() -> tuple[str, ...]:
    """All instruction sets with kernels that this machine can run, worst first."""
    return tuple(name for i, name in enumerate(ISAS) if table_for(<ld_isa><int>i) != NULL)
