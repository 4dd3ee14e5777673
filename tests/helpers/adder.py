"""A program that does nothing but add what it is sent, for tests and timings of flags."""

from __future__ import annotations

import numpy as np

from engine.runtime.descriptor import Flag, Kind
from kernels_pyx.arena import Arena
from kernels_pyx.executor import OP_DTYPE, AbortFlag, CpuProgram
from kernels_pyx.handoff import Handoff, handoff_bytes
from kernels_pyx.pool import Pool

WIDTH = 64


class Adder:
    """n times: receives a row x (flag 2i), y += x, sends y (flag 2i + 1)."""

    def __init__(
        self,
        n: int,
        n_workers: int = 2,
        limit_s: float = 20.0,
        width: int = WIDTH,
        *,
        arena: Arena | None = None,
        words: Arena | None = None,
    ) -> None:
        """n_workers of which none is pinned; limit_s: of a wait; width: values of a row. arena, words: for rows and flags."""
        self.n = n
        self.arena = arena or Arena(8 * width)
        self.x, self.y = np.frombuffer(self.arena, np.float32).reshape(2, width)
        self.ops = np.zeros(3 * n, OP_DTYPE)
        for i in range(n):
            recv, add, send = self.ops[3 * i : 3 * i + 3]
            recv["kind"], recv["flag"] = Kind.RECV, 2 * i
            add["kind"], add["flags"], add["width"] = Kind.ADD, Flag.SYNC, width
            add["x_offset"], add["x_stride"], add["y_offset"][0], add["y_stride"][0] = 0, width, 4 * width, width
            send["kind"], send["flag"] = Kind.SEND, 2 * i + 1
        self.pool, self.abort = Pool([-1] * n_workers), AbortFlag()
        self.words = words or Arena(handoff_bytes(2 * n))
        self.handoff = Handoff(self.words, 2 * n, limit_s=limit_s)
        self._program: CpuProgram | None = None

    def program(self) -> CpuProgram:
        """The ops as they are when it is first asked for."""
        if self._program is None:
            self._program = CpuProgram(self.ops, self.arena, self.pool, max_rows=1, max_position=1, n_blocks=1)
        return self._program

    def run(self, handoff: Handoff | None = None) -> tuple[bool, int]:
        """One step, with the flags of the adder or others."""
        zero, none = np.zeros(1, np.int32), np.zeros(0, np.int32)
        logits = np.zeros((0, 1), np.float32)
        table = np.zeros((1, 1, 1), np.int32)
        return self.program().run(zero, zero, zero, table, none, logits, self.abort, handoff=handoff or self.handoff)

    def next_step(self) -> None:
        """The epoch of the next step."""
        self.handoff.epoch = (self.handoff.epoch + 1) & 0xFFFFFFFF
