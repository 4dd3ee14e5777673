"""How weights in the machine's memory come to a GPU: through a ring of pinned chunks, by threads and size, or pinned in place.

Run as `python -m tests.bench.gpu_stream FILE [OUT.json]` on a machine with a GPU, with a file of some GB that lies in the page
cache, such as a model. It takes less than a minute.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from engine.runtime.gpu import open_gpus
from engine.runtime.pinned import Pinned
from kernels_pyx.executor import AbortFlag
from kernels_pyx.ferry import Ferry
from kernels_pyx.guard import MappedFile

MIB = 1 << 20
BYTES = 2 << 30
REPEATS = 3
READ_ONLY = 8 | 1
"""cudaHostRegisterReadOnly | cudaHostRegisterPortable."""


def carried(address: int, into: torch.Tensor, chunk: int, n_chunks: int, n_threads: int) -> float:
    """GB/s of bytes at an address through a ring."""
    pinned = Pinned(chunk * n_chunks, open_gpus((0,)))
    ferry = Ferry(pinned.bytes.numpy(), chunk, n_threads)
    starts = range(0, into.numel(), chunk)
    loads = np.array([(address + start, min(chunk, into.numel() - start)) for start in starts], np.uint64)
    stream, ahead, best = torch.cuda.Stream(), n_chunks // 2, 0.0
    with torch.cuda.stream(stream):
        for _ in range(REPEATS):
            copied = [torch.cuda.Event() for _ in starts]
            began = time.perf_counter()
            ferry.begin(loads)
            for i, start in enumerate(starts):
                if not ferry.wait(i, 10.0):
                    raise RuntimeError("a chunk did not come")
                n, at = min(chunk, into.numel() - start), i % n_chunks * chunk
                into[start : start + n].copy_(pinned.bytes[at : at + n], non_blocking=True)
                copied[i].record()
                if i >= ahead:
                    copied[i - ahead].synchronize()
                    ferry.freed(i - ahead + 1)
            stream.synchronize()
            best = max(best, into.numel() / (time.perf_counter() - began) / 1e9)
    ferry.stop()
    del ferry
    pinned.close()
    return round(best, 1)


def in_place(address: int, into: torch.Tensor, flags: int) -> dict[str, Any]:
    """Seconds to pin bytes where they lie, and GB/s from there; or the error that the driver gives."""
    driver, n = torch.cuda.cudart(), into.numel()
    began = time.perf_counter()
    refused = int(driver.cudaHostRegister(address, n, flags))
    seconds = time.perf_counter() - began
    if refused:
        return {"error": refused}
    try:
        host = torch.from_numpy(np.ctypeslib.as_array((np.ctypeslib.ctypes.c_uint8 * n).from_address(address)))
        best = 0.0
        for _ in range(REPEATS):
            began = time.perf_counter()
            into.copy_(host, non_blocking=True)
            torch.cuda.synchronize()
            best = max(best, n / (time.perf_counter() - began) / 1e9)
        return {"pin_s_per_gb": round(seconds / n * 1e9, 3), "gbps": round(best, 1)}
    finally:
        driver.cudaHostUnregister(address)


def main() -> int:
    """Measures, and writes what it found."""
    mapped = MappedFile(Path(sys.argv[1]))
    start, n = mapped.whole_units(0, min(mapped.nbytes, BYTES))
    mapped.touch(start, n, AbortFlag())
    into = torch.empty(n, dtype=torch.uint8, device="cuda")
    cores = len(os.sched_getaffinity(0))
    found: dict[str, Any] = {"bytes": n, "cores": cores, "pinned_mapped": in_place(mapped.address + start, into, READ_ONLY)}
    found["ring_mapped"] = carried(mapped.address + start, into, 8 * MIB, 8, max(1, min(12, cores - 2)))
    mapped.own(start, n)
    found["ring"] = {
        f"{n_threads} threads, {n_chunks} chunks of {size} MiB": carried(
            mapped.address + start, into, size * MIB, n_chunks, n_threads
        )
        for n_threads in sorted({1, 4, 8, max(1, cores - 4), max(1, cores - 2)})
        for size, n_chunks in ((2, 12), (2, 20), (4, 8), (4, 16), (8, 8), (16, 8))
    }
    found["pinned_owned"] = in_place(mapped.address + start, into, 3)
    text = json.dumps(found, indent=1)
    if len(sys.argv) > 2:
        Path(sys.argv[2]).write_text(text, encoding="utf-8")
    sys.stdout.write(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
