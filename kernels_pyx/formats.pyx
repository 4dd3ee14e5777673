"""The weight formats that the kernels know: the rows of c/formats.def, as Python values."""

from typing import NamedTuple

cdef extern from *:
    """
    #include "dispatch.h"
    typedef struct { const char *name; int ggml_id, block, type_size, act, is_exact; } ld_format_row;
    enum { LD_FAST, LD_EXACT };
    #define LD_FORMAT(symbol, name, id, block, bytes, act, path) {name, id, block, bytes, act, path == LD_EXACT},
    static const ld_format_row ld_format_rows[] = {
    #include "formats.def"
    };
    #undef LD_FORMAT
    #define ld_n_format_rows ((int)(sizeof ld_format_rows / sizeof *ld_format_rows))
    """
    ctypedef struct ld_format_row:
        const char *name
        int ggml_id, block, type_size, act, is_exact
    const ld_format_row *ld_format_rows
    int ld_n_format_rows


class Format(NamedTuple):
    """One row: `block` values in `type_size` bytes; `act` names the activation layout of its dot product.

    `path` is "fast", or "exact" for formats that are multiplied as f32, several times slower.
    """

    name: str
    ggml_id: int
    block: int
    type_size: int
    act: str
    path: str


ACTS = ("f32", "q8_32", "q8_256")
PATHS = ("fast", "exact")


def _rows():
    for i in range(ld_n_format_rows):
        row = ld_format_rows[i]
        yield Format(row.name.decode(), row.ggml_id, row.block, row.type_size, ACTS[row.act], PATHS[row.is_exact])


FORMATS = tuple(_rows())
