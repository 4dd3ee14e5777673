"""What it takes to let a card read memory of ours where it lies: to tell its driver, to copy, and to tell it again.

Huge and small pages, memory that we may not write, pages of a mapped file; in one piece, in many, by several threads, and while
kernels run. Run as section `registered` of `tests.bench.gpu_migrate`.
"""

from __future__ import annotations

import ctypes
import mmap
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from tests.bench.gpu import Result, short

SIZE = 512 << 20
PIECE = 16 << 20
UNIT = 2 << 20
READ_ONLY = 8
"""cudaHostRegisterReadOnly."""
PORTABLE = 1


def registered(out: Result) -> None:
    """All of it; a row that fails says why."""
    import torch

    cudart = torch.cuda.cudart()
    card = torch.empty(SIZE, dtype=torch.uint8, device="cuda")
    for name, address, flags, _keep in memories():
        row: Result = {}
        out[name] = row
        for n_threads in (1, 4):
            for piece in (SIZE, PIECE):
                if piece == SIZE and n_threads > 1:
                    continue
                try:
                    row[f"{piece >> 20} MiB by {n_threads}"] = once(cudart, card, address, flags, piece, n_threads)
                except Exception as error:
                    row["error"] = short(error)[-300:]
        if name == "huge pages":
            out["while kernels run"] = beside(cudart, address)


def once(cudart: Any, card: Any, address: int, flags: int, piece: int, n_threads: int) -> Result:
    """Milliseconds for SIZE bytes."""
    import torch

    places = [address + at for at in range(0, SIZE, piece)]
    with ThreadPoolExecutor(n_threads) as threads:
        found: Result = {}

        def lap(name: str, work: Callable[[], Any]) -> Any:
            started = time.perf_counter()
            result = work()
            found[name] = round(1e3 * (time.perf_counter() - started), 2)
            return result

        codes = lap("register_ms", lambda: list(threads.map(lambda at: int(cudart.cudaHostRegister(at, piece, flags)), places)))
        bad = [code for code in codes if code]
        if bad:
            found["error"] = f"{len(bad)} of {len(codes)}: {bad[0]}"
        else:

            def copy() -> None:
                for i, at in enumerate(places):
                    card[i * piece : (i + 1) * piece].copy_(view(at, piece), non_blocking=True)
                torch.cuda.synchronize()

            lap("copy_ms", copy)
            if len(places) > 1:  # across the border of two ranges
                try:
                    card[:piece].copy_(view(address + piece // 2, piece), non_blocking=True)
                    torch.cuda.synchronize()
                    found["across"] = "copied"
                except Exception as error:
                    found["across"] = short(error)[-200:]
        good = [at for at, code in zip(places, codes, strict=True) if not code]
        lap("unregister_ms", lambda: list(threads.map(lambda at: int(cudart.cudaHostUnregister(at)), good)))
        return found


def beside(cudart: Any, address: int) -> Result:
    """Whether it waits for the card: registering while kernels of 0.2 s run, and how long launches take meanwhile."""
    import torch

    a = torch.randn(8192, 8192, device="cuda", dtype=torch.float16)
    b = torch.empty_like(a)
    small = torch.zeros(1024, device="cuda")

    def busy(seconds: float) -> torch.cuda.Event:
        started = torch.cuda.Event(enable_timing=True)
        ended = torch.cuda.Event(enable_timing=True)
        n = 20
        while True:
            started.record()
            for _ in range(n):
                torch.matmul(a, a, out=b)
            ended.record()
            ended.synchronize()
            if started.elapsed_time(ended) > 1e3 * seconds:
                break
            n *= 2
        for _ in range(n):
            torch.matmul(a, a, out=b)
        mark = torch.cuda.Event()
        mark.record()
        return mark

    found: Result = {}
    for name, call in (
        ("register", lambda: cudart.cudaHostRegister(address, PIECE, PORTABLE)),
        ("unregister", lambda: cudart.cudaHostUnregister(address)),
    ):
        mark = busy(0.2)
        started = time.perf_counter()
        code = int(call())
        found[name] = {"ms": round(1e3 * (time.perf_counter() - started), 3), "code": code, "card_still_busy": not mark.query()}
        torch.cuda.synchronize()
    gaps: list[float] = []
    over = False

    def launch() -> None:
        while not over:
            started = time.perf_counter()
            small.add_(1)
            gaps.append(time.perf_counter() - started)
            time.sleep(2e-4)

    other = threading.Thread(target=launch)
    other.start()
    places = [address + at for at in range(0, SIZE, PIECE)]
    for at in places:
        cudart.cudaHostRegister(at, PIECE, PORTABLE)
    for at in places:
        cudart.cudaHostUnregister(at)
    over = True
    other.join()
    found["longest_launch_ms"] = round(1e3 * max(gaps), 2)
    return found


def view(address: int, nbytes: int) -> Any:
    """Bytes at an address, as a tensor."""
    import torch

    return torch.frombuffer((ctypes.c_uint8 * nbytes).from_address(address), dtype=torch.uint8)


def memories() -> Iterator[tuple[str, int, int, object]]:
    """(name, address of SIZE bytes, flags, what keeps it)."""
    for name, advice in (("huge pages", mmap.MADV_HUGEPAGE), ("small pages", mmap.MADV_NOHUGEPAGE)):
        own = mmap.mmap(-1, SIZE + UNIT)
        own.madvise(advice)
        address = -(-ctypes.addressof(ctypes.c_char.from_buffer(own)) // UNIT) * UNIT
        ctypes.memset(address, 1, SIZE)
        yield name, address, PORTABLE, own
        if name == "huge pages":
            with protected(address):
                yield f"{name}, read-only, not told so", address, PORTABLE, own
                yield f"{name}, read-only, told so", address, PORTABLE | READ_ONLY, own
    with tempfile.NamedTemporaryFile() as file:
        for _ in range(SIZE // PIECE):
            file.write(bytes(PIECE))
        file.flush()
        for name, prot in (("file", mmap.PROT_READ), ("file, writable", mmap.PROT_READ | mmap.PROT_WRITE)):
            mapped = mmap.mmap(file.fileno(), SIZE, mmap.MAP_SHARED, prot)
            mapped.madvise(mmap.MADV_POPULATE_READ if hasattr(mmap, "MADV_POPULATE_READ") else 22)
            address = address_of(mapped)
            yield name, address, PORTABLE | (READ_ONLY if prot == mmap.PROT_READ else 0), mapped


def address_of(mapped: mmap.mmap) -> int:
    """Where a mapping begins, which may be one that nobody may write."""
    import numpy as np

    return int(np.frombuffer(mapped, np.uint8).ctypes.data)


@contextmanager
def protected(address: int) -> Iterator[None]:
    """While nobody may write there."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(SIZE), mmap.PROT_READ)
    try:
        yield
    finally:
        libc.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(SIZE), mmap.PROT_READ | mmap.PROT_WRITE)
