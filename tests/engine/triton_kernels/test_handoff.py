"""Flags of the GPU's side in Triton's interpreter: rows there and back, with a program of the CPU on the other side."""

from __future__ import annotations

import os

os.environ.setdefault("TRITON_INTERPRET", "1")

import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from engine.triton_kernels.handoff import LINE, MAX_BUFFERS, GpuFlags
from kernels_pyx.handoff import FAR
from tests.helpers.adder import WIDTH, Adder


def empty(shape: tuple[int, ...], dtype: str) -> Tensor:
    return torch.full(shape, 77, dtype=getattr(torch, dtype))


def flags(n: int, limit_s: float = 10.0) -> tuple[GpuFlags, Tensor]:
    words = torch.zeros((1 + n, LINE), dtype=torch.int32)
    return GpuFlags(words, empty, asm=False, limit_s=limit_s), words


def of(adder: Adder) -> tuple[GpuFlags, Tensor, Tensor]:
    words = torch.from_numpy(np.frombuffer(adder.words, np.int32)).view(-1, LINE)
    x, y = torch.from_numpy(adder.x), torch.from_numpy(adder.y)
    return GpuFlags(words, empty, asm=False, limit_s=1000.0), x[None], y[None]


def test_a_program_adds_what_kernels_send() -> None:
    adder, n_steps = Adder(3), 4
    ours, host_x, host_y = of(adder)
    total = torch.zeros(WIDTH)
    for step in range(n_steps):
        adder.next_step()
        beside = threading.Thread(target=adder.run)
        beside.start()
        ours.begin()
        for i in range(adder.n):
            x, y = torch.full((1, WIDTH), float(10 * step + i)) + torch.arange(WIDTH), torch.zeros(1, WIDTH)
            ours.send(2 * i, [(x, host_x)])
            ours.take(2 * i + 1, [(y, host_y)])
            total += x[0]
            assert torch.equal(y[0], total)
        beside.join()
    assert adder.handoff.stopped == 0 and adder.handoff.flag(1) == n_steps


@pytest.mark.parametrize("n_rows", [1, 3, 8])
@pytest.mark.parametrize("widths", [(1,), (64, 8, 8), (2049, 4, 6000, 17)])
def test_rows_of_any_size_arrive_whole(n_rows: int, widths: tuple[int, ...]) -> None:
    ours, words = flags(2)
    own = [torch.randn(n_rows, width) for width in widths]
    own[-1] = torch.randint(-9, 9, own[-1].shape, dtype=torch.int32)
    host = [torch.full((n_rows, -(-width // 16) * 16 + 16), 5, dtype=one.dtype) for width, one in zip(widths, own, strict=True)]
    ours.begin()
    ours.send(0, list(zip(own, host, strict=True)))
    assert words[1, 0] == 1 and words[2, 0] == words[0, 0] == 0
    words[2, 0] = 1
    back = [torch.zeros_like(one) for one in own]
    ours.take(1, list(zip(back, host, strict=True)))
    for one, there, again, width in zip(own, host, back, widths, strict=True):
        assert torch.equal(there[:, :width], one) and bool((there[:, width:] == 5).all()) and torch.equal(again, one)


def test_a_wait_without_rows_is_a_wait() -> None:
    ours, words = flags(1)
    ours.begin()
    words[1, 0] = 1
    ours.take(0, [])
    ours.send(0, [])
    assert words[0, 0] == 0 and words[1, 0] == 1


def test_a_flag_that_never_comes_ends_every_wait_of_the_step() -> None:
    ours, words = flags(3, limit_s=0.05)
    ours.begin()
    rows, host = torch.zeros(1, 8), torch.ones(1, 16)
    ours.take(1, [(rows, host)])
    assert words[0, 0] == FAR + 1
    ours.take(2, [(rows, host)])  # at once, and the first reason stays
    assert words[0, 0] == FAR + 1
    words[0, 0] = 0
    ours.reset()
    ours.begin()
    words[2:, 0] = 1
    ours.take(2, [(rows, host)])
    assert words[0, 0] == 0


def test_counts_begin_where_the_host_says() -> None:
    ours, words = flags(1)
    for epoch in (5, 0x80000000, 0xFFFFFFFE):
        ours.reset(epoch)
        ours.begin()
        ours.send(0, [])
        assert int(words[1, 0]) & 0xFFFFFFFF == epoch + 1


def test_what_cannot_cross_is_refused() -> None:
    ours, words = flags(1)
    row = torch.zeros(2, 8)
    for rows, why in (
        ([(row, row)] * (MAX_BUFFERS + 1), "the most"),
        ([(row, row[:1])], "differ in rows"),
        ([(row.half(), row)], "32-bit"),
        ([(row[:, ::2], row)], "gaps"),
    ):
        with pytest.raises(ValueError, match=why):
            ours.send(0, rows)
    for bad in (words.long(), words[0], words[:, :8]):
        with pytest.raises(ValueError, match="flags as"):
            GpuFlags(bad, empty, asm=False)


def test_the_assembly_is_taken_by_the_compiler_of_cards(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment |= {"TRITON_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-W", "ignore", "-m", "tests.helpers.compile_handoff", "80", "90"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 4
