"""`layerdeck bench`: prefill and decode rates beside what this machine's memory can deliver, measured in the same run."""

from __future__ import annotations

import argparse
import platform
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

import numpy as np

import engine
from engine.api.values import LoadOptions
from engine.arch.cache_groups import Window, windows
from engine.arch.spec import Attention, DeltaNet, Linear, Mla, ModelSpec, MoeFfn
from engine.cli.direct import Direct, opened
from engine.cli.options import add_json_option, add_load_options, load_options
from engine.cli.output import write_json, write_text
from engine.cli.teach import teach
from engine.errors import InvalidRequest
from engine.gguf.groups import exact_formats
from engine.hardware.sampler import cpu_name
from engine.placement.placement import Gpu, plan_workers
from engine.runtime.kv_cache import token_bytes
from kernels_pyx import probe
from kernels_pyx.cpu_features import active_isa

READ_PROBE_BYTES = 192 << 20
"""Per thread; far beyond the last-level cache's share."""


@dataclass(frozen=True, slots=True)
class Work:
    """What one token costs: bytes of weights read in decode, multiply-adds in prefill; by window, KV bytes of a key seen."""

    weight_bytes: int
    multiply_adds: int
    kv_bytes: tuple[tuple[Window, int], ...]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `bench`."""
    add_load_options(parser)
    parser.add_argument("-p", type=numbers, default=(512,), metavar="N,...", help="prompt lengths (default 512)")
    parser.add_argument("-n", type=numbers, default=(64,), metavar="N,...", help="tokens to generate (default 64)")
    parser.add_argument(
        "-d", type=numbers, default=(0,), metavar="N,...", help="tokens in the cache before each test (default 0)"
    )
    parser.add_argument("-r", type=int, default=5, metavar="N", help="repetitions (default 5)")
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Runs every test at every depth; repetitions of all tests are interleaved, so that a busy machine slows all alike."""
    if args.r < 1:
        raise InvalidRequest("-r must be at least 1")
    longest = max(args.d) + max(*args.p, *args.n, 1)
    with opened(args, longest) as direct:
        while direct.model.settling:  # a chat settles while its user types
            direct.model.settle()
        options = load_options(args)
        cost = work(direct, options)
        placed = direct.model.placement
        workers = plan_workers(options.n_threads, options.cores) if placed is None else placed.workers  # which may be tuned
        threads = workers.n_workers
        tests = [("pp", n, d) for d in args.d for n in args.p if n] + [("tg", n, d) for d in args.d for n in args.n if n]
        samples: dict[tuple[str, int, int], list[float]] = {test: [] for test in tests}
        slowest: dict[tuple[str, int, int], list[float]] = {test: [] for test in tests}
        limits = []
        for _ in range(args.r):
            limits.append(read_limit_gbps(threads))
            for test in tests:
                kind, n, depth = test
                taken = seconds(direct, kind, n, depth, direct.model.chunk)
                samples[test].append(n / sum(taken))
                slowest[test].append(max(taken) / median(taken))
        limit = max(limits) if reads_memory(direct) else None
        teach(direct, options, samples)
        rows = [row(test, rates, slowest[test], cost, threads, limit) for test, rates in samples.items()]
        slow = exact_formats(direct.file)
        shares = direct.model.shares
        result = {
            "rows": rows,
            "exact_formats": slow,
            "ops": op_times(direct),
            "devices": [{"id": str(device), "name": name, "bytes": nbytes} for device, name, nbytes in shares],
            "machine": {"cpu": cpu_name(), "system": platform.platform(), "read_limit_gbps": [round(one, 2) for one in limits]},
            "versions": {"layerdeck": engine.VERSION, "python": platform.python_version(), "numpy": np.__version__},
        }
    if args.json:
        write_json(result)
    else:
        write_text("".join(line(one) for one in rows))
        for device, name, nbytes in shares if len(shares) > 1 else ():
            write_text(f"{device}{' ' if name else ''}{name}: {nbytes / 1e9:.2f} GB\n")
        if slow:
            write_text(f"{', '.join(slow)}: exact, several times slower\n")
    return 0


def numbers(text: str) -> tuple[int, ...]:
    """A list of whole numbers, for argparse."""
    try:
        found = tuple(int(one) for one in text.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of whole numbers") from error
    if any(one < 0 for one in found):
        raise argparse.ArgumentTypeError(f"{text!r} holds a negative number")
    return found


def seconds(direct: Direct, kind: str, n: int, depth: int, chunk: int) -> list[float]:
    """How long n tokens take behind `depth` others: as a prompt (`pp`, one figure) or one at a time (`tg`, one for each)."""
    ids = filler(depth + n, direct.model.spec.n_vocab)
    prefill(direct, ids[:depth], 0, chunk)
    times = [time.perf_counter()]
    if kind == "pp":
        prefill(direct, ids[depth:], depth, chunk)
        times.append(time.perf_counter())
    else:
        for i in range(n):
            direct.step(ids[depth + i : depth + i + 1], depth + i, 1)
            times.append(time.perf_counter())
    return [after - before for before, after in pairwise(times)]


def prefill(direct: Direct, ids: Sequence[int], position: int, chunk: int) -> None:
    """Computes ids from `position` on; logits of the last one only."""
    for start in range(0, len(ids), chunk):
        rows = ids[start : start + chunk]
        direct.step(rows, position + start, int(start + len(rows) == len(ids)))


def filler(n: int, n_vocab: int) -> list[int]:
    """n token ids, always the same ones."""
    return [int(one) for one in np.random.default_rng(0).integers(0, n_vocab, n)]


def work(direct: Direct, options: LoadOptions) -> Work:
    """The cost of a token of this model with the cache types of `options`."""
    spec, tensors = direct.model.spec, direct.file.tensors
    layers = linears(spec)
    return Work(
        weight_bytes=round(sum(tensors[one.weight].nbytes * share for one, share, _ in layers)),
        multiply_adds=sum(one.n_in * one.n_out * n for one, _, n in layers),
        kv_bytes=tuple(zip(windows(spec), token_bytes(spec, options.k_type, options.v_type), strict=True)),
    )


def linears(spec: ModelSpec) -> list[tuple[Linear, float, int]]:
    """Every linear layer that a token passes, the share of its tensor that it reads, and how many such layers it passes."""
    layers: list[tuple[Linear, float, int]] = [(spec.head, 1.0, 1)]
    for block in spec.blocks:
        mixer, ffn = block.mixer, block.ffn
        parts = projections(mixer)
        together = sum(one.n_out for one in parts if one.first is not None)  # one tensor for several of them
        layers += [(one, 1.0 if one.first is None else one.n_out / together, 1) for one in parts]
        share, n = (ffn.n_used / ffn.n_experts, ffn.n_used) if isinstance(ffn, MoeFfn) else (1.0, 1)
        both = 0.5 if ffn.gate.weight == ffn.up.weight else 1.0  # one tensor holds gate and up
        layers += [(ffn.gate, share * both, n), (ffn.up, share * both, n), (ffn.down, share, n)]
        if isinstance(ffn, MoeFfn):
            layers.append((ffn.router, 1.0, 1))
        if isinstance(ffn, MoeFfn) and ffn.shared is not None:
            dense = ffn.shared.ffn
            beside = (dense.gate, dense.up, dense.down, *(() if ffn.shared.gate is None else (ffn.shared.gate,)))
            layers += [(one, 1.0, 1) for one in beside]
    return layers


def projections(mixer: Attention | Mla | DeltaNet) -> list[Linear]:
    """The linear layers around attention or state; of the matrices of heads those that decode reads."""
    if isinstance(mixer, DeltaNet):
        parts = (mixer.qkv, mixer.z, mixer.beta, mixer.alpha, mixer.out)
        return [one for one in parts if one is not None]
    if not isinstance(mixer, Mla):
        return [mixer.q, mixer.k, mixer.v, mixer.out]
    found = [mixer.q, mixer.kv_a, mixer.out, *(() if mixer.q_a is None else (mixer.q_a,))]
    heads = [mixer.v] if mixer.absorb.weight == mixer.v.weight else [mixer.absorb, mixer.v]
    return found + [Linear(one.weight, one.n_in, one.step * one.n_heads) for one in heads]


def row(
    test: tuple[str, int, int], rates: list[float], slowest: list[float], cost: Work, threads: int, limit: float | None
) -> dict[str, Any]:
    """One line of the result. gbps: weights and KV cache read in decode; gops: multiply-adds of the weights, twice.

    limit: None where most of that is read from the memory of GPUs.

    slowest_token: that of each repetition, in medians of its tokens.
    """
    kind, n, depth = test
    rate = median(rates)
    length = depth + n / 2
    bytes_per_token = cost.weight_bytes + sum(nbytes * min(window or length, length) for window, nbytes in cost.kv_bytes)
    return {
        "test": f"{kind}{n}",
        "depth": depth,
        "threads": threads,
        "samples_tok_s": [round(one, 2) for one in rates],
        "slowest_token": [round(one, 2) for one in slowest] if kind == "tg" else None,
        "gbps": round(rate * bytes_per_token / 1e9, 2) if kind == "tg" else None,
        "read_limit_gbps": None if limit is None else round(limit, 2),
        "gops": round(2 * cost.multiply_adds * rate / 1e9, 1),
        "isa": active_isa(),
    }


def line(one: dict[str, Any]) -> str:
    """A row for people."""
    rate = f"{median(one['samples_tok_s']):>9.1f} tok/s"
    read = f"{one['gbps']}" if one["read_limit_gbps"] is None else f"{one['gbps']} of {one['read_limit_gbps']}"
    speed = f"{read} GB/s" if one["gbps"] is not None else f"{one['gops']} Gop/s"
    return f"{one['test']:>8} at {one['depth']:>5}  {rate}  {speed}  ({one['threads']} threads)\n"


def reads_memory(direct: Direct) -> bool:
    """Whether most of the weights lie in the machine's memory, not on GPUs."""
    held = [one for one in direct.model.residency.holdings if one.owner == "weights"]
    return 2 * sum(one.nbytes for one in held if isinstance(one.device, Gpu)) <= sum(one.nbytes for one in held)


def read_limit_gbps(threads: int) -> float:
    """GB/s that `threads` threads read from memory together."""
    data = [np.ones(READ_PROBE_BYTES, np.uint8) for _ in range(threads)]
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(probe.read, data))
        started = time.perf_counter()
        list(pool.map(probe.read, data))
        return threads * READ_PROBE_BYTES / (time.perf_counter() - started) / 1e9


def op_times(direct: Direct) -> dict[str, float]:
    """Microseconds of one decode step by kind of op, all layers together; empty for the reference engine."""
    executor = direct.model.executor
    if executor is None:
        return {}
    executor.profile = True
    direct.step(filler(1, direct.model.spec.n_vocab), 0, 1)
    executor.profile = False
    sums: dict[str, float] = {}
    for name, seconds_taken in executor.op_times():
        unit, _, kind = name.partition(" ")
        key = f"{unit.partition('.')[0]} {kind}"
        sums[key] = sums.get(key, 0.0) + seconds_taken * 1e6
    return {key: round(value, 1) for key, value in sums.items()}
