# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call, misc"
"""Where a card's kernels see shared and local memory. For the probe beside this."""

from __future__ import annotations

import triton
import triton.language as tl

_SHARED = tl.constexpr("{ .reg .u64 a; mov.u64 a, 0; cvta.shared.u64 $0, a; }")
_LOCAL = tl.constexpr("{ .reg .u64 a; mov.u64 a, 0; cvta.local.u64 $0, a; }")


@triton.jit
def find_windows(out):
    """out: int64 [2], generic addresses of byte 0 of shared and of local memory."""
    shared = tl.inline_asm_elementwise(_SHARED, "=l", [], dtype=tl.int64, is_pure=False, pack=1)
    local = tl.inline_asm_elementwise(_LOCAL, "=l", [], dtype=tl.int64, is_pure=False, pack=1)
    tl.store(out, shared)
    tl.store(out + 1, local)
