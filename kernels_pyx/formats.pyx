"""The weight formats that the kernels know: the rows of c/formats.def, as Python values."""

from typing import NamedTuple

from libc.stdint cimport int8_t, uint16_t

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
    #include "iq_tables.h"
    typedef struct { const char *name; const uint16_t *rows; int n_rows, width, bits; const int8_t *levels; } ld_grid;
    #define LD_GRID(symbol, n_rows, width, bits) {#symbol, ld_rows_of_##symbol, n_rows, width, bits, ld_levels_##symbol},
    static const ld_grid ld_grids[] = {LD_GRIDS};
    #undef LD_GRID
    #define ld_n_grids ((int)(sizeof ld_grids / sizeof *ld_grids))
    """
    ctypedef struct ld_format_row:
        const char *name
        int ggml_id, block, type_size, act, is_exact
    const ld_format_row *ld_format_rows
    int ld_n_format_rows
    ctypedef struct ld_grid:
        const char *name
        const uint16_t *rows
        int n_rows, width, bits
        const int8_t *levels
    const ld_grid *ld_grids
    int ld_n_grids


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


def _grid(int index):
    cdef const ld_grid *grid = &ld_grids[index]
    cdef int row, i
    mask = (1 << grid.bits) - 1
    return tuple(
        tuple(grid.levels[grid.rows[row] >> grid.bits * i & mask] for i in range(grid.width)) for row in range(grid.n_rows)
    )


def grids() -> dict[str, tuple[tuple[int, ...], ...]]:
    """The rows of values that define the IQ1, IQ2 and IQ3 formats, by format: c/iq_tables.h."""
    return {ld_grids[i].name.decode().upper(): _grid(i) for i in range(ld_n_grids)}
