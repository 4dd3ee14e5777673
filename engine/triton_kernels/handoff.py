# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call, misc"
"""The GPU's side of the flags in kernels_pyx/c/handoff.h: kernels that send rows and set a flag, or wait for one and take rows.

Both are enqueued and captured like all others; what changes from step to step is a counter in the card's memory, the epoch,
which a kernel at the head of each step advances. Rows lie in pinned memory of the host, or in the memory of another card, in the
slots of the lane that is the other side; they are copied as 32-bit words. A wait that takes too long leaves its reason in the
stop word, and every wait ends when that is not 0, so that a graph always ends, with rows that mean nothing.

A driver may load a kernel that is new to it only when the card is idle, which it is not while one waits. So everything is
launched once before the first step: with the epoch of a reset every wait is over at once.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.triton_kernels.kernels import Allocate
from kernels_pyx.handoff import FAR, LINE_BYTES

LINE = LINE_BYTES // 4
"""Words from flag to flag; the first line is the stop word's."""
MAX_BUFFERS = 4
"""Buffers of one exchange."""

_BLOCK, _WARPS = 2048, 8
"""Words of a block: each thread has two loads of 16 bytes under way."""
_SEND_BLOCKS, _TAKE_BLOCKS = 4, 1
"""Blocks of a buffer that a program copies. Stores to the host are posted and flow from one program, which sets the flag without
counting others; a load waits for its way there and back."""
_MAX_PROGRAMS = 8
_SPINS = 1 << 28
"""Turns after which a wait ends even if the card's clock stands still."""

# The first thread of a program stores; what the others stored is seen before, for all have met. bar.sync makes it this thread's
# own past, and a release at the scope of the system carries that along.
_RELEASE_PTX = tl.constexpr(
    "{ .reg .pred first; .reg .u32 t, v; mov.u32 t, %tid.x; mov.u32 v, $2; setp.eq.u32 first, t, 0;"
    " @first st.release.sys.global.u32 [$1], v; mov.u32 $0, v; }"
)
# The first thread spins until the flag at $1 is not before the epoch $3; others go on to the barrier behind. Every 32 turns it
# looks at the stop word at $2 and at the clock. $0: 0, or 1 when it gave up, with the reason $5 where nobody had left one.
_ACQUIRE_PTX = tl.constexpr(
    "{ .reg .pred p; .reg .u32 t, v, n, m, gone; .reg .s32 d; .reg .u64 now, until;"
    " mov.u32 gone, 0; mov.u32 t, %tid.x; setp.ne.u32 p, t, 0; @p bra DONE;"
    f" mov.u64 now, %globaltimer; add.u64 until, now, $4; mov.u32 n, {_SPINS};"
    " SPIN: ld.acquire.sys.global.u32 v, [$1]; sub.s32 d, v, $3; setp.ge.s32 p, d, 0; @p bra DONE;"
    " sub.u32 n, n, 1; and.b32 m, n, 31; setp.ne.u32 p, m, 0; @p bra SPIN;"
    " ld.relaxed.sys.global.u32 v, [$2]; setp.ne.u32 p, v, 0; @p bra GONE;"
    " mov.u64 now, %globaltimer; setp.gt.u64 p, now, until; @p bra LATE;"
    " setp.ne.u32 p, n, 0; @p bra SPIN;"
    " LATE: st.release.sys.global.u32 [$2], $5;"
    " GONE: mov.u32 gone, 1;"
    " DONE: mov.u32 $0, gone; }"
)


@triton.jit
def _clock(ASM: tl.constexpr):
    """Nanoseconds of the device's clock, 0 where it cannot be read."""
    if ASM:
        return tl.inline_asm_elementwise("mov.u64 $0, %globaltimer;", "=l", [], dtype=tl.int64, is_pure=False, pack=1)
    else:
        return tl.full((), 0, tl.int64)


@triton.jit
def _release(word, value, ASM: tl.constexpr):
    if ASM:
        tl.inline_asm_elementwise(_RELEASE_PTX, "=r,l,r", [word, value], dtype=tl.int32, is_pure=False, pack=1)
    else:
        tl.store(word, value)


@triton.jit
def _acquire(word, stop, epoch, limit_ns, reason, ASM: tl.constexpr):
    """1 when the wait was given up."""
    if ASM:
        return tl.inline_asm_elementwise(
            _ACQUIRE_PTX, "=r,l,l,r,l,r", [word, stop, epoch, limit_ns, reason], dtype=tl.int32, is_pure=False, pack=1
        )
    else:
        gone = tl.full((), 0, tl.int32)
        turns = tl.full((), 0, tl.int32)
        while (tl.load(word, volatile=True) - epoch < 0) & (gone == 0):
            turns += 1
            if tl.load(stop, volatile=True) != 0:
                gone += 1
            elif turns >= limit_ns:
                tl.store(stop, reason)
                gone += 1
        return gone


@triton.jit
def _load(source, step, width, n_rows, block, FRESH: tl.constexpr, BLOCK: tl.constexpr):
    """A block of some rows; each row is cdiv(width, BLOCK) of them. FRESH: from memory that others write."""
    a_row = tl.cdiv(width, BLOCK)
    row, j = (block // a_row).to(tl.int64), block % a_row * BLOCK + tl.arange(0, BLOCK)
    return tl.load(source + row * step + j, mask=(j < width) & (row < n_rows), volatile=FRESH)


@triton.jit
def _store(target, words, step, width, n_rows, block, BLOCK: tl.constexpr):
    a_row = tl.cdiv(width, BLOCK)
    row, j = (block // a_row).to(tl.int64), block % a_row * BLOCK + tl.arange(0, BLOCK)
    tl.store(target + row * step + j, words, mask=(j < width) & (row < n_rows))


@triton.jit
def _copy(s0, s1, s2, s3, t0, t1, t2, t3, s_step0, s_step1, s_step2, s_step3, t_step0, t_step1, t_step2, t_step3,
          w0, w1, w2, w3, n_rows, n_blocks, N: tl.constexpr, FRESH: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """This program's blocks of N buffers. One of each is under way at once: a load from the host takes a microsecond."""
    for i in range(tl.program_id(0), n_blocks, tl.num_programs(0)):
        if N > 0:
            x0 = _load(s0, s_step0, w0, n_rows, i, FRESH, BLOCK)
        if N > 1:
            x1 = _load(s1, s_step1, w1, n_rows, i, FRESH, BLOCK)
        if N > 2:
            x2 = _load(s2, s_step2, w2, n_rows, i, FRESH, BLOCK)
        if N > 3:
            x3 = _load(s3, s_step3, w3, n_rows, i, FRESH, BLOCK)
        if N > 0:
            _store(t0, x0, t_step0, w0, n_rows, i, BLOCK)
        if N > 1:
            _store(t1, x1, t_step1, w1, n_rows, i, BLOCK)
        if N > 2:
            _store(t2, x2, t_step2, w2, n_rows, i, BLOCK)
        if N > 3:
            _store(t3, x3, t_step3, w3, n_rows, i, BLOCK)


@triton.jit
def _begin(counter, began, ASM: tl.constexpr):
    tl.store(counter, tl.load(counter) + 1)
    tl.store(began, _clock(ASM))


@triton.jit(do_not_specialize=["flag"])
def _send(words, counter, arrivals, stamps, flag, s0, s1, s2, s3, t0, t1, t2, t3, s_step0, s_step1, s_step2, s_step3,
          t_step0, t_step1, t_step2, t_step3, w0, w1, w2, w3, n_rows, n_blocks,
          N: tl.constexpr, LINE: tl.constexpr, BLOCK: tl.constexpr, ASM: tl.constexpr):  # fmt: skip
    _copy(s0, s1, s2, s3, t0, t1, t2, t3, s_step0, s_step1, s_step2, s_step3, t_step0, t_step1, t_step2, t_step3,
          w0, w1, w2, w3, n_rows, n_blocks, N, False, BLOCK)  # fmt: skip
    tl.debug_barrier()
    last = tl.num_programs(0) - 1
    before = last
    if last > 0:
        before = tl.atomic_add(arrivals + flag, 1, sem="acq_rel", scope="gpu")
    if before == last:  # what the other programs stored is the past of this one too
        tl.store(arrivals + flag, 0)
        _release(words + (1 + flag) * LINE, tl.load(counter), ASM)
        now = _clock(ASM)
        tl.store(stamps + 2 * flag, now)
        tl.store(stamps + 2 * flag + 1, now)


@triton.jit(do_not_specialize=["flag", "limit_ns"])
def _take(words, counter, stamps, flag, limit_ns, s0, s1, s2, s3, t0, t1, t2, t3, s_step0, s_step1, s_step2, s_step3,
          t_step0, t_step1, t_step2, t_step3, w0, w1, w2, w3, n_rows, n_blocks,
          N: tl.constexpr, LINE: tl.constexpr, BLOCK: tl.constexpr, FAR: tl.constexpr, ASM: tl.constexpr):  # fmt: skip
    began = _clock(ASM)
    _acquire(words + (1 + flag) * LINE, words, tl.load(counter), limit_ns.to(tl.int64), FAR + flag, ASM)
    tl.debug_barrier()
    ended = _clock(ASM)
    _copy(s0, s1, s2, s3, t0, t1, t2, t3, s_step0, s_step1, s_step2, s_step3, t_step0, t_step1, t_step2, t_step3,
          w0, w1, w2, w3, n_rows, n_blocks, N, True, BLOCK)  # fmt: skip
    if tl.program_id(0) == 0:
        tl.store(stamps + 2 * flag, began)
        tl.store(stamps + 2 * flag + 1, ended)


class GpuFlags:
    """One card's side of a handoff. words: its flags, pinned, as int32 [1 + n_flags, LINE].

    stamps: int64 [n_flags, 2] in the card's memory: nanoseconds of its clock when the last step began and ended to wait for a
    flag, or set it (twice the same); began: [1], those at which the step began here. asm: PTX for loads that acquire and stores
    that release, without which only an interpreter is safe.
    """

    def __init__(self, words: Tensor, allocate: Allocate, *, asm: bool, limit_s: float = 2.0) -> None:
        """limit_s: how long a wait may take (without asm: thousands of turns).

        Raises:
            ValueError: words of another shape. OutOfMemory: no room for the counters.
        """
        if words.dtype != torch.int32 or words.dim() != 2 or words.shape[1] != LINE or not words.is_contiguous():
            raise ValueError(f"flags as {words.dtype} {tuple(words.shape)}")
        n_flags = words.shape[0] - 1
        self._words = words
        self._counter = allocate((1,), "int32")
        self._arrivals = allocate((max(n_flags, 1),), "int32")
        self.stamps = allocate((max(n_flags, 1), 2), "int64")
        self.stamps.zero_()
        self.began = allocate((1,), "int64")
        self.began.zero_()
        self._asm = asm
        self._limit = int(limit_s * (1e9 if asm else 1e3))
        self.reset()

    def reset(self, epoch: int = 0) -> None:
        """Counts on from `epoch`, as the host does. Only while no step is under way."""
        self._counter.fill_(epoch - (1 << 32) if epoch >> 31 else epoch)
        self._arrivals.zero_()

    def begin(self) -> None:
        """Enqueues the head of a step: the epoch is one more."""
        _begin[(1,)](self._counter, self.began, ASM=self._asm, num_warps=1)

    def send(self, flag: int, rows: Sequence[tuple[Tensor, Tensor]]) -> None:
        """Enqueues copies of (own rows, the other lane's rows), all with as many rows, and the flag behind them.

        Raises:
            ValueError: more buffers than an exchange may have, or rows that do not match.
        """
        grid, arguments = _arguments(list(rows), _SEND_BLOCKS, self._words)
        _send[grid](
            self._words, self._counter, self._arrivals, self.stamps, flag, *arguments,
            N=len(rows), LINE=LINE, BLOCK=_BLOCK, ASM=self._asm, num_warps=_WARPS,
        )  # fmt: skip

    def take(self, flag: int, rows: Sequence[tuple[Tensor, Tensor]]) -> None:
        """Enqueues a wait for the flag, and then copies of (own rows, the other lane's rows) into the own ones.

        Raises:
            ValueError: see `send`.
        """
        grid, arguments = _arguments([(theirs, mine) for mine, theirs in rows], _TAKE_BLOCKS, self._words)
        _take[grid](
            self._words, self._counter, self.stamps, flag, self._limit, *arguments,
            N=len(rows), LINE=LINE, BLOCK=_BLOCK, FAR=FAR, ASM=self._asm, num_warps=_WARPS,
        )  # fmt: skip


def _arguments(pairs: list[tuple[Tensor, Tensor]], blocks: int, filler: Tensor) -> tuple[tuple[int], list[Tensor | int]]:
    """The grid, and what the kernels are told of (source, target): both [n_rows, >= width], the narrower one says the width.

    filler: in the place of buffers that are not there.
    """
    if len(pairs) > MAX_BUFFERS:
        raise ValueError(f"{len(pairs)} buffers cross at once; {MAX_BUFFERS} is the most")
    for source, target in pairs:
        if source.dim() != 2 or target.dim() != 2 or {source.element_size(), target.element_size()} != {4}:
            raise ValueError("rows that are not of 32-bit words")
        if source.shape[0] != pairs[0][0].shape[0] or target.shape[0] != source.shape[0]:
            raise ValueError("buffers of one exchange differ in rows")
        if source.stride(1) != 1 or target.stride(1) != 1:
            raise ValueError("rows with gaps between their values")
    words = [(source.view(torch.int32), target.view(torch.int32)) for source, target in pairs]
    widths = [min(source.shape[1], target.shape[1]) for source, target in words]
    n_rows = words[0][0].shape[0] if words else 0
    n_blocks = n_rows * max((triton.cdiv(width, _BLOCK) for width in widths), default=0)
    grid = (max(1, min(_MAX_PROGRAMS, triton.cdiv(n_blocks, blocks))),)
    padded = words + [(filler, filler)] * (MAX_BUFFERS - len(words))
    sources, targets = [source for source, _ in padded], [target for _, target in padded]
    steps = [source.stride(0) for source in sources] + [target.stride(0) for target in targets]
    return grid, [*sources, *targets, *steps, *widths, *([0] * (MAX_BUFFERS - len(widths))), n_rows, n_blocks]
