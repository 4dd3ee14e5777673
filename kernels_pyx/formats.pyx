"""The weight formats that the kernels know: the rows of c/formats.def, as Python values."""

from typing import NamedTuple

cdef extern from *:
    """
    #include "dispatch.h"
    typedef struct { const char *name; int ggml_id, block, type_size, act; } ld_format_row;
    #define LD_FORMAT(symbol, name, id, block, bytes, act) {name, id, block, bytes, act},
    static const ld_format_row ld_format_rows[] = {
    #include "formats.def"
    };
    #undef LD_FORMAT
    #define ld_n_format_rows ((int)(sizeof ld_format_rows / sizeof *ld_format_rows))
    """
    ctypedef struct ld_format_row:
        const char *name
        int ggml_id, block, type_size, act
    const ld_format_row *ld_format_rows
    int ld_n_format_rows


class Format(NamedTuple):
    """One row: `block` values in `type_size` bytes; `act` names the activation layout of its dot product."""

    name: str
    ggml_id: int
    block: int
    type_size: int
    act: str


ACTS = ("f32", "q8_32", "q8_256")


def _rows():
    for i in range(ld_n_format_rows):
        row = ld_format_rows[i]
        yield Format(row.name.decode(), row.ggml_id, row.block, row.type_size, ACTS[row.act])


FORMATS = tuple(_rows())
