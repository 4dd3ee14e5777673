"""The kernel tables: owns dispatch.c, fills the tables at import and hands them to the other extensions by cimport.

`LAYERDECK_ISA` caps the instruction set: the best one at or below it that this machine has is used.
"""

import os

from kernels_pyx.isas import ISAS


cdef extern from "dispatch.h":
    const ld_table *ld_table_active() noexcept nogil
    const ld_table *ld_table_for(ld_isa isa) noexcept nogil
    ld_isa ld_isa_detected() noexcept nogil
    void ld_dispatch_init(ld_isa cap) noexcept nogil


cdef const ld_table *active_table() noexcept nogil:
    return ld_table_active()


cdef const ld_table *table_for(ld_isa isa) noexcept nogil:
    return ld_table_for(isa)


cdef ld_isa detected() noexcept nogil:
    return ld_isa_detected()


def _cap():
    name = os.environ.get("LAYERDECK_ISA") or ISAS[-1]
    if name not in ISAS:
        raise ValueError(f"LAYERDECK_ISA={name}: no such instruction set; use one of {', '.join(ISAS)}, or unset it")
    return ISAS.index(name)


ld_dispatch_init(<ld_isa><int>_cap())


def kernels_of(isa: str) -> dict[str, tuple[str, str]]:
    """For each format the ISAs that serve `few` and `many` when `isa` is the cap; empty where this machine lacks it."""
    from kernels_pyx.formats import FORMATS

    cdef const ld_table *table = ld_table_for(<ld_isa><int>ISAS.index(isa))
    cdef int row
    served = {}
    if table == NULL:
        return served
    for fmt in FORMATS:
        row = fmt.ggml_id
        served[fmt.name] = (ISAS[<int>table.formats[row].few_isa], ISAS[<int>table.formats[row].many_isa])
    return served
