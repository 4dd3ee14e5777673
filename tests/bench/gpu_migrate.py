"""Moves between CPU and GPU during decode: how long answers stand still, how fast they go meanwhile, and how long a move takes.

Run as `python -m tests.bench.gpu_migrate OUT.json [SECTION ...]` on a machine with a GPU (sections `build`, `goldens`, `moves`,
`registered`; less than 150 s on an H200), or with `--emulate` on any machine, where times say nothing about a bus. What a move
may take stands beside it: 50 ms and the bytes of caches and states over the link for the pause, 30 % of the speed meanwhile, and
for the whole 1.5 times all bytes over the link and 0.3 s for each captured bucket.

The whole is counted from the call until steps run in the new placement, what the old one had on GPUs is free, and the move is
told to be over. What of the machine's memory nobody reads any more goes back afterwards, between steps or while nobody asks.
Before each move the bench waits for that, and until what the CPU reads is in memory of its own, as an idle engine does.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from tests.bench.gpu import Result, build, hybrid_threads, settle, short, synthetic
from tests.bench.gpu_register import registered

LAYERS = 24
DEPTH = 2048
N_BEFORE = 48
MOVED = 6
"""Layers that move at once."""
KINDS = ("qwen3moe", "qwen35moe")
"""Golden models that move while they answer: each compiles kernels for its own sizes."""
MOST_S = 60.0
"""The longest that a move may take here."""


def link_gbps() -> dict[str, float]:
    """What the bus takes from pinned memory, and back."""
    import torch

    host = torch.empty(256 << 20, dtype=torch.uint8, pin_memory=True)
    card = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    found = {}
    for name, source, target in (("to", host, card), ("from", card, host)):
        best = 0.0
        for _ in range(4):
            torch.cuda.synchronize()
            started = time.perf_counter()
            target.copy_(source, non_blocking=True)
            torch.cuda.synchronize()
            best = max(best, host.nbytes / (time.perf_counter() - started) / 1e9)
        found[name] = round(best, 1)
    return found


STARTED = time.perf_counter()


def say(text: str) -> None:
    """A line with the seconds since the start."""
    sys.stdout.write(f"{time.perf_counter() - STARTED:7.1f} {text}\n")
    sys.stdout.flush()


def goldens(out: Result) -> None:
    """Recorded answers come out over moves in their midst, on real devices."""
    from tests.helpers.golden_models import golden
    from tests.helpers.moves import Talk
    from tests.helpers.placed import EXACT, hybrid, on_cpu, open_placed, whole

    for name in KINDS:
        row: Result = {}
        out[name] = row
        try:
            talk = Talk(open_placed(golden(name).path, hybrid, replace(EXACT, n_threads=2)))
            talk.ask("answer", golden(name).ids("medium"), 32)
            for where in (whole, on_cpu, hybrid, on_cpu, whole):
                talk.steps(3)
                started = time.perf_counter()
                move = talk.move(where, beside=2)
                row.setdefault("moves_s", []).append(round(time.perf_counter() - started, 2))
                row.setdefault("pauses_ms", []).append(round(1e3 * move.pause_s, 2))
            talk.run()
            row["same"] = talk.ids("answer") == golden(name).greedy("medium")
            row["prefilled_once"] = talk.counted.n_prefilled == len(golden(name).ids("medium"))
            talk.model.close()
        except Exception as error:
            row["error"] = short(error)


class Decoding:
    """One sequence that goes on and on, whatever the model does beside it."""

    def __init__(self, model: Any, depth: int) -> None:
        import numpy as np

        from tests.helpers.golden_models import BLOCK, batch

        self.model, self._batch = model, batch
        self._ids = np.random.default_rng(0).integers(0, model.spec.n_vocab, depth).tolist()
        self._depth = depth
        n_ctx = model.n_ctx
        self._blocks = np.arange(-(-n_ctx // BLOCK))
        for at in range(0, depth, 512):
            part = self._ids[at : at + 512]
            model.step(batch(part, at, int(at + len(part) == depth)))
        self.at, self._token = depth, self._ids[-1]
        self.last = model.step(batch([self._token], self.at, 1))[0]

    def step(self) -> float:
        """Seconds of one token. At the end of the context it starts again behind the prompt."""
        started = time.perf_counter()
        self.at = self.at + 1 if self.at + 2 < self.model.n_ctx else self._depth
        self._token = int(self.last.argmax())
        self.last = self.model.step(self._batch([self._token], self.at, 1))[0]
        return time.perf_counter() - started

    def live(self) -> Any:
        """Blocks up to where it stands, and the slots of its state."""
        import numpy as np

        from engine.runtime.written import Live
        from tests.helpers.golden_models import BLOCK

        n = -(-(self.at + 1) // BLOCK)
        used = self._blocks[: min(len(self._blocks), n + n % 2)]
        return Live((used,) * len(self.model.cache_groups), np.arange(min(2, self.model.state_slots[0])))


def moves(out: Result, *, emulate: bool = False, save: Callable[[], None] = lambda: None) -> None:
    """Decode of a synthetic mixture of experts while experts, attention and caches go back and forth."""
    from engine.arch.registry import build_spec
    from engine.gguf.reader import read_gguf
    from engine.placement.options import LoadOptions
    from engine.placement.placement import Gpu, Numa
    from tests.helpers.golden_models import golden
    from tests.helpers.moves import target
    from tests.helpers.placed import need_torch, placed
    from tests.helpers.runs import open_model

    if emulate:
        need_torch()  # which takes one core, as in tests
    depth = 256 if emulate else DEPTH
    path = golden("qwen3moe").path if emulate else synthetic("qwen3-30b-a3b", out, LAYERS)
    layers = build_spec(read_gguf(path)).n_layers
    out["link_gbps"] = {"to": 0.0, "from": 0.0} if emulate else link_gbps()
    card, home, n_moved = Gpu(0), Numa(0), layers // 2 if emulate else MOVED
    last = range(layers - n_moved, layers)

    def hybrid(unit: Any, spec: Any) -> Any:
        return home if unit.kind in ("experts", "embed") else card

    def with_experts(unit: Any, spec: Any) -> Any:
        return card if unit.kind == "experts" and unit.layer in last else hybrid(unit, spec)

    def without_attention(unit: Any, spec: Any) -> Any:
        return home if unit.layer in last else hybrid(unit, spec)

    def all_but_embed(unit: Any, spec: Any) -> Any:
        return home if unit.kind == "embed" else card

    threads = 2 if emulate else hybrid_threads()
    options = LoadOptions(n_threads=threads, n_ctx=depth + 2048)
    say("the file is there")
    model = open_model(path, placed(path, hybrid, options))
    say("loaded")
    try:
        out["settle_s"] = settle(model)
        say(f"settled, {model.source.weights.pins.nbytes:,} bytes pinned")
        talk = Decoding(model, depth)
        say("the prompt is computed")
        steps = (
            ("all experts to the CPU", hybrid),
            (f"experts of {n_moved} layers to the GPU", with_experts),
            (f"experts of {n_moved} layers to the CPU", hybrid),
            (f"attention and cache of {n_moved} layers to the CPU", without_attention),
            (f"attention and cache of {n_moved} layers to the GPU", hybrid),
            ("all experts to the GPU", all_but_embed),
            ("all experts to the CPU, not settled", hybrid),
            ("all experts to the GPU, not settled", all_but_embed),
            ("all experts to the CPU again", hybrid),
        )
        first: Result = {}
        out["first time"] = first
        for found, rows in ((first, (steps[1], steps[3], steps[5])), (out, steps)):
            for name, where in rows:  # kernels that nobody has used yet are compiled the first time
                row: Result = {}
                found[name] = row
                try:
                    if "not settled" not in name:
                        row["settle_s"] = settle(model)
                    row["pinned_bytes"] = model.source.weights.pins.nbytes
                    say(f"{name}: begins")
                    one_move(model, talk, where, row, out["link_gbps"])
                finally:
                    save()
                say(f"{name}: {json.dumps(row)}")
        moved = ledger(model)
        out["ledger"] = moved
        alone: Result = {}
        out["all experts to the GPU, nobody asks"] = alone
        began = time.perf_counter()
        move = model.move(target(model, all_but_embed))
        alone |= {"total_s": round(time.perf_counter() - began, 3), **taken_by(move)}
        save()
    finally:
        model.close()
    again = open_model(path, placed(path, hybrid, options))
    talk = Decoding(again, depth)
    talk.step()
    fresh = ledger(again)
    again.close()
    out["ledger_differs_by"] = {
        key: moved.get(key, 0) - fresh.get(key, 0) for key in moved | fresh if moved.get(key) != fresh.get(key)
    }


def ledger(model: Any) -> dict[str, int]:
    """Bytes by device and owner, whatever of them is mapped; and on real GPUs what the process has there."""
    import torch

    found: Counter[str] = Counter()
    for one in model.residency.holdings:
        found[f"{one.device} {one.owner}"] += one.nbytes
    if torch.cuda.is_available():
        found["torch allocated"] = torch.cuda.memory_allocated()
        found["torch reserved"] = torch.cuda.memory_reserved()
        free, total = torch.cuda.mem_get_info()
        found["card"] = total - free
    return dict(found)


def taken_by(move: Any) -> Result:
    """What a move went through, and how fast weights crossed."""
    upload = move.laps.seconds.get("upload", 0.0)
    return {
        "laps_ms": {name: round(1e3 * seconds, 1) for name, seconds in move.laps.seconds.items()},
        "uploaded_bytes": move.uploaded_bytes,
        "upload_gbps": round(move.uploaded_bytes / upload / 1e9, 2) if move.uploaded_bytes and upload else None,
    }


class Collections:
    """Full searches for unreachable objects while it is entered, in milliseconds: all threads stand still meanwhile."""

    def __enter__(self) -> list[float]:
        self._since, self._found = 0.0, list[float]()
        gc.callbacks.append(self._note)
        return self._found

    def _note(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._since = time.perf_counter()
        elif info["generation"] == 2:
            self._found.append(round(1e3 * (time.perf_counter() - self._since), 1))

    def __exit__(self, *_: object) -> None:
        gc.callbacks.remove(self._note)


def one_move(model: Any, talk: Decoding, where: Callable[..., Any], row: Result, link: Result) -> None:
    """A move with steps meanwhile, and what they and it took."""
    for _ in range(8):
        talk.step()
    usual = [talk.step() for _ in range(N_BEFORE)]
    began = time.perf_counter()
    with Collections() as collected:
        move = watched(model, talk, where, row, began, usual, link)
    row |= taken_by(move) | {"collections_ms": collected}


def watched(
    model: Any, talk: Decoding, where: Callable[..., Any], row: Result, began: float, usual: list[float], link: Result
) -> Any:
    """The move itself."""
    from tests.helpers.moves import target

    move = model.begin_move(target(model, where), talk.live)
    gaps: list[float] = []
    laps: list[str] = []
    phases: dict[str, float] = {}
    phase, since, previous = move.progress.phase, began, began
    while True:
        laps.append(move.laps.under_way)
        over = move.poll()
        row["last_phase"] = move.progress.phase  # where a step failed, if one does
        talk.step()
        now = time.perf_counter()
        gaps.append(now - previous)
        previous = now
        if move.progress.phase != phase or over:
            phases[phase] = round(phases.get(phase, 0.0) + now - since, 3)
            phase, since = move.progress.phase, now
        if over or now - began > MOST_S:
            break
    total = previous - began
    model.end_move()
    after = [talk.step() for _ in range(N_BEFORE)]
    crossed = move.moved_bytes
    buckets = getattr(model.executor, "warmer", None)
    n_buckets = len(buckets.in_use) if buckets is not None else 0
    rate = (link["to"] or 0.0) * 1e9
    row |= {
        "tok_s": {
            "before": round(1 / median(usual), 1),
            "during": round(len(gaps) / total, 1),
            "after": round(1 / median(after), 1),
        },
        "kept": round(len(gaps) / total * (sum(usual) / len(usual)), 3),
        "tokens_during": len(gaps),
        "pause_ms": round(1e3 * move.pause_s, 2),
        "longest_gap_ms": round(1e3 * max(gaps), 1),
        "longest_gaps": [
            f"{1e3 * gaps[i]:.1f} ms: {laps[i]} to {[*laps, 'the end'][i + 1]}"
            for i in sorted(range(len(gaps)), key=lambda i: -gaps[i])[:8]
        ],
        "first_steps_after_ms": [round(1e3 * one, 1) for one in after[:3]],
        "total_s": round(total, 3),
        "phases_s": phases,
        "moved_bytes": crossed,
        "buckets": n_buckets,
        "limit_s": round(1.5 * crossed / rate + 0.3 * max(1, n_buckets), 3) if rate else None,
        "gbps_of_all": round(crossed / total / 1e9, 2),
    }
    return move


SECTIONS: dict[str, Callable[..., None]] = {"build": build, "goldens": goldens, "moves": moves, "registered": registered}


def main() -> int:
    """Runs the sections that are named, or all; writes what they found after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="where the JSON goes")
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"some of: {' '.join(SECTIONS)}")
    parser.add_argument("--emulate", action="store_true", help="a GPU that the CPU plays; moves alone")
    args = parser.parse_args()
    sections = dict(SECTIONS)
    if args.emulate:
        os.environ["LAYERDECK_GPU"] = "emulate:1"
        sections = {"moves": moves}
    if set(args.sections) - set(sections):
        parser.error(f"sections are {', '.join(sections)}")
    found: Result = {}

    def save() -> None:
        args.out.write_text(json.dumps(found, indent=1), encoding="utf-8")

    for name in args.sections or sections:
        section: Result = {}
        found[name] = section
        begun = time.perf_counter()
        try:
            if name == "moves":
                moves(section, emulate=args.emulate, save=save)
            else:
                sections[name](section)
        except Exception as error:
            section["error"] = short(error)
        section["seconds"] = round(time.perf_counter() - begun, 1)
        save()
        sys.stdout.write(f"{name}: {json.dumps(section)[:6000]}\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
