"""Which kernel of a hybrid lane fails on a GPU, with what arguments, and where everything lies that it may touch.

python -m tests.bench.gpu_hybrid_probe [--layers 48] [--stages addresses,exchanges,prompt,decode,registered,after,plain]

A fault of a kernel is known only at the next wait and ends the use of the device by its process, so every stage is a process of
its own, and waits after each call. One JSON object a line. `addresses`: the windows of shared and local memory among the host's
mappings, and what registered memory is called on the device. `exchanges`: sends and takes at the shapes of a 30b layer.
`prompt`, `decode`: the real model, experts on the CPU, one call after another. `registered`: decode with memory of our own that
the driver is told of, in huge pages; `after`: that too, behind a whole model on the GPU. `plain`: decode as a load warms it up.
Needs a card.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

Found = dict[str, Any]
WINDOW = 1 << 32
"""Bytes that are looked at behind the beginning of a window: 24 bits of it are one block's, the rest a cluster's."""


def windows() -> dict[str, int]:
    """Generic addresses of the first byte of shared and of local memory: loads of global memory may not go there."""
    import torch

    from tests.bench.gpu_windows import find_windows

    out = torch.zeros(2, dtype=torch.int64, device="cuda")
    find_windows[(1,)](out, num_warps=1)
    torch.cuda.synchronize()
    shared, local = (int(one) & (1 << 64) - 1 for one in out.tolist())
    return {"shared": shared, "local": local}


def mappings() -> Iterator[tuple[int, int, str]]:
    """(begin, end, rest of the line) of what this process has mapped."""
    for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        span, _, rest = line.partition(" ")
        begin, end = (int(one, 16) for one in span.split("-"))
        yield begin, end, " ".join(rest.split())


def around(found: dict[str, int]) -> dict[str, list[str]]:
    """What is mapped where the windows lie."""
    lines = list(mappings())
    return {
        name: [f"{begin:#x}-{end:#x} {rest}" for begin, end, rest in lines if begin < at + WINDOW and at < end][:12]
        for name, at in found.items()
    }


def inside(address: int, nbytes: int, found: dict[str, int]) -> list[str]:
    """The windows that a piece of memory meets, by the two sizes that they may have."""
    hit = []
    for name, at in found.items():
        for size in (1 << 24, WINDOW):
            base = at // size * size
            if address < base + size and base < address + nbytes:
                hit.append(f"{name} of {size:#x}")
    return hit


def device_address(address: int) -> int:
    """What the device calls registered memory of the host."""
    import ctypes

    import torch

    found = ctypes.c_void_p()
    runtime = ctypes.CDLL(next(path for _, _, rest in mappings() if "libcudart" in (path := rest.split(" ")[-1])))
    code = runtime.cudaHostGetDevicePointer(ctypes.byref(found), ctypes.c_void_p(address), 0)
    torch.cuda.check_error(int(code))
    return int(found.value or 0)


def addresses(out: Found, options: argparse.Namespace) -> None:
    """Windows, and arenas of several sizes, before and after the context."""
    from kernels_pyx.arena import Arena

    before = [Arena(size, huge=size >= 2 << 20) for size in (4096, 4 << 20, 64 << 20, 1 << 30)]
    import torch

    torch.zeros(1, device="cuda")
    found = windows()
    out["windows"] = {name: hex(at) for name, at in found.items()}
    out["mapped_there"] = around(found)
    after = [Arena(size, huge=size >= 2 << 20) for size in (4096, 8192, 4 << 20, 64 << 20, 1 << 30)]
    rows = []
    for when, arenas in (("before", before), ("after", after)):
        for arena in arenas:
            row: Found = {"when": when, "address": hex(arena.address), "nbytes": arena.nbytes}
            row["in_window"] = inside(arena.address, arena.nbytes, found)
            torch.cuda.check_error(int(torch.cuda.cudart().cudaHostRegister(arena.address, arena.nbytes, 3)))
            row["device"] = hex(device_address(arena.address))
            torch.cuda.cudart().cudaHostUnregister(arena.address)
            rows.append(row)
    out["arenas"] = rows
    given = torch.empty(64 << 20, dtype=torch.uint8, pin_memory=True)
    out["of_the_driver"] = {"address": hex(given.data_ptr()), "in_window": inside(given.data_ptr(), given.nbytes, found)}


def exchanges(out: Found, options: argparse.Namespace) -> None:
    """Rows there and back by flags that are set beforehand, at all row counts, in registered memory of several sizes."""
    import torch

    from engine.runtime.gpu import open_gpus
    from engine.runtime.pinned import Pinned
    from engine.triton_kernels.handoff import LINE, GpuFlags
    from kernels_pyx.handoff import handoff_bytes

    devices = open_gpus([0])

    def allocate(shape: tuple[int, ...], dtype: str) -> torch.Tensor:
        return torch.zeros(shape, dtype=getattr(torch, dtype), device="cuda")

    n_flags = 2 * options.layers + 2
    words, room = Pinned(handoff_bytes(n_flags), devices), Pinned(256 << 20, devices)
    flags = GpuFlags(words.bytes[: handoff_bytes(n_flags)].view(torch.int32).view(-1, LINE), allocate, asm=True)
    host_words = words.bytes[: handoff_bytes(n_flags)].view(torch.int32).view(-1, LINE)
    found, epoch = windows(), 0
    out["slots"] = {"address": hex(room.bytes.data_ptr()), "in_window": inside(room.bytes.data_ptr(), room.bytes.nbytes, found)}
    out["flags"] = {"address": hex(words.bytes.data_ptr()), "in_window": inside(words.bytes.data_ptr(), 1 << 13, found)}
    for offset in (0, 64, (64 << 20) + 64):
        for n_rows in (1, 2, 4, 8, 512):
            pieces, at = [], offset
            for width in (2048, 8, 8):
                stride = -(-width // 16) * 16
                raw = room.bytes[at : at + 4 * n_rows * stride].view(torch.float32).view(n_rows, stride)
                pieces.append(raw)
                at += 4 * n_rows * stride
            mine = [torch.randn(n_rows, width, device="cuda") for width in (2048, 8, 8)]
            back = torch.zeros(n_rows, 2048, device="cuda")
            flag = n_flags - 2
            steps: list[tuple[str, Callable[[], None]]] = [
                ("begin", flags.begin),
                ("send", partial(flags.send, flag, list(zip(mine, pieces, strict=True)))),
                ("take", partial(flags.take, flag + 1, [(back, pieces[0])])),
            ]
            epoch += 1
            host_words[flag + 2, 0] = epoch
            for name, run in steps:
                out["last"] = f"{name} of {n_rows} rows at {offset:#x} into the slots"
                run()
                torch.cuda.synchronize()
            right = all(torch.equal(a.cpu(), b[:, : a.shape[1]]) for a, b in zip(mine, pieces, strict=True))
            if not right or not torch.equal(back, mine[0]) or int(host_words[flag + 1, 0]) != epoch or int(host_words[0, 0]):
                raise RuntimeError(f"wrong rows after {out['last']}")
    out["last"] = "all right"


def registered(nbytes: int) -> tuple[Any, Any]:
    """An arena of ours that kernels may use, and its bytes."""
    import torch

    from engine.runtime.pinned import bytes_of
    from kernels_pyx.arena import Arena

    arena = Arena(nbytes, huge=nbytes >= 2 << 20)
    torch.cuda.check_error(int(torch.cuda.cudart().cudaHostRegister(arena.address, nbytes, 3)))
    return arena, bytes_of(arena)


class Recorder:
    """The last launch of a Triton kernel, in words."""

    def __init__(self) -> None:
        from triton.runtime.jit import JITFunction

        self.last = ""
        run = JITFunction.run

        def recorded(kernel: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
            names = kernel.arg_names
            shown = [f"{name}={_shown(value)}" for name, value in (*zip(names, args, strict=False), *kwargs.items())]
            self.last = f"{kernel.__name__}[{grid}] {' '.join(shown)}"
            return run(kernel, *args, grid=grid, warmup=warmup, **kwargs)

        JITFunction.run = recorded


def _shown(value: Any) -> str:
    if hasattr(value, "data_ptr"):
        return f"{value.device.type}:{value.data_ptr():#x}+{value.nbytes}{tuple(value.shape)}/{value.stride()}"
    return str(value)


def model(out: Found, options: argparse.Namespace, phase: str, *, ours: bool = False, waits: bool = True) -> None:
    """A load that waits after every call of its lanes."""
    import torch

    from engine.placement.options import LoadOptions
    from engine.runtime import gpu_warmup, pinned
    from engine.runtime.gpu_buffers import StepShape
    from tests.bench.gpu import EXPERTS_ON_CPU, hybrid_threads
    from tests.bench.synthetic import write_synthetic
    from tests.helpers.runs import open_model

    folder = Path(os.environ.get("LAYERDECK_BENCH_MODELS", "/tmp/layerdeck_bench"))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{options.kind}-{options.layers}.gguf"
    whole = folder / f"{options.kind}.gguf"
    if options.layers == 48 and whole.exists():
        path = whole
    if not path.exists():
        write_synthetic(options.kind, path, options.layers)
    rooms: list[tuple[int, int]] = []
    give = pinned.Pinned.__init__

    def noted(self: Any, nbytes: int, devices: Any) -> None:
        if ours:
            self.arena, self.bytes = registered(nbytes)
        else:
            give(self, nbytes, devices)
        rooms.append((self.arena.address, nbytes))

    setattr(pinned.Pinned, "__init__", noted)  # noqa: B010 - both are replaced for this run
    recorder = Recorder()
    executor = gpu_warmup.Warmer

    def warm(self: Any, bound: Any, *_: Any) -> None:
        if "windows" not in out:
            found = windows()
            out["windows"] = {name: hex(at) for name, at in found.items()}
            out["mapped_there"] = around(found)
            out["pinned"] = [
                {"address": hex(at), "nbytes": nbytes, "in_window": inside(at, nbytes, found)} for at, nbytes in rooms
            ]
            print(json.dumps({"known": out}), flush=True)
        if bound.plan.phase != phase:
            return
        if bound.meeting is not None:
            bound.meeting.host.stop()
        for piece in bound.pieces:
            lane = bound.lanes[piece.lane]
            if lane is None:
                continue
            for index, call in enumerate(lane.piece(piece.first, piece.end)):
                out["last"] = f"call {index} {call.name} {call.unit} of {bound.plan.max_rows} rows"
                with lane.stream.current():
                    call.run()
                out["launch"] = recorder.last
                torch.cuda.synchronize()
        if bound.meeting is not None:
            bound.meeting.reset()
        out["last"] = f"all of {bound.plan.max_rows} rows"

    if waits:
        setattr(executor, "_warm", warm)  # noqa: B010
    loaded = open_model(path, LoadOptions(n_threads=hybrid_threads(), n_ctx=2048, placement=EXPERTS_ON_CPU))
    out["loaded"] = True
    runs: Any = loaded.executor
    for i, plan in enumerate(runs.plans):
        if plan.phase == phase == "decode":
            n = plan.max_rows
            runs.warmer.make_ready(i, runs._binder.bind(i, StepShape(n, n, n), beside=True))
    from tests.helpers.golden_models import batch

    started = time.perf_counter()
    for at in range(4):
        loaded.step(batch([7 + at], at, 1))
    out["step_ms"] = round((time.perf_counter() - started) / 4 * 1e3, 2)
    loaded.close()


def after_another(out: Found, options: argparse.Namespace) -> None:
    """As `registered`, in a process that had the whole model on the GPU before."""
    from engine.placement.options import LoadOptions
    from tests.bench.gpu import synthetic
    from tests.helpers.golden_models import batch
    from tests.helpers.runs import open_model

    first = open_model(synthetic(options.kind, {}), LoadOptions(n_threads=1, n_ctx=2048, placement="-ngl 99"))
    first.step(batch([7], 0, 1))
    first.close()
    model(out, options, "decode", ours=True)


STAGES: dict[str, Callable[[Found, argparse.Namespace], None]] = {
    "addresses": addresses,
    "exchanges": exchanges,
    "prompt": lambda out, options: model(out, options, "prefill"),
    "decode": lambda out, options: model(out, options, "decode"),
    "registered": lambda out, options: model(out, options, "decode", ours=True),
    "after": lambda out, options: after_another(out, options),
    "plain": lambda out, options: model(out, options, "decode", waits=False),
}


def one(options: argparse.Namespace) -> int:
    """One stage, in this process."""
    out: Found = {"stage": options.stage}
    try:
        STAGES[options.stage](out, options)
        out["ok"] = True
    except Exception as error:
        out |= {"ok": False, "error": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()[-1200:]}
    print(json.dumps(out), flush=True)
    return 0 if out["ok"] else 1


def main() -> int:
    """Runs the stages, each in a process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", default="qwen3-30b-a3b")
    parser.add_argument("--layers", type=int, default=48)
    parser.add_argument("--stages", default=",".join(STAGES))
    parser.add_argument("--stage", choices=list(STAGES), help="only this one, in this process")
    parser.add_argument("--seconds", type=float, default=60.0, help="the most for one stage")
    options = parser.parse_args()
    if options.stage:
        return one(options)
    failed = 0
    for stage in options.stages.split(","):
        shared = ["--kind", options.kind, "--layers", str(options.layers), "--stage", stage]
        command = [sys.executable, "-W", "ignore", "-m", "tests.bench.gpu_hybrid_probe", *shared]
        started = time.perf_counter()
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=options.seconds, check=False)
            failed += done.returncode != 0
            sys.stdout.write(
                done.stdout[-6000:] or json.dumps({"stage": stage, "rc": done.returncode, "error": done.stderr[-1500:]})
            )
        except subprocess.TimeoutExpired as error:
            failed += 1
            known = (error.stdout or b"").decode(errors="replace")
            sys.stdout.write(json.dumps({"stage": stage, "error": "took too long", "known": known[-3000:]}))
        sys.stdout.write(f"\n{json.dumps({'stage': stage, 'seconds': round(time.perf_counter() - started, 1)})}\n")
        sys.stdout.flush()
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
