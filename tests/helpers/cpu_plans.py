"""Plans of models that lie wholly on the CPU, in short: run as a module to record them, where a change to them is meant."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from engine.arch.registry import build_spec
from engine.gguf.reader import read_gguf
from engine.graph.build import build_graph
from engine.placement.options import LoadOptions
from engine.placement.placement import default_placement
from engine.program.fuse import Phase
from engine.program.lower import lower
from engine.program.plan import Plan
from tests.helpers.golden_models import MODELS, golden

RECORD = Path(__file__).parents[1] / "golden/cpu_plans.json"
STEPS: tuple[tuple[Phase, int], ...] = (("decode", 1), ("decode", 8), ("prefill", 128), ("prefill", 512))

Summary = dict[str, tuple[int, int, str]]


def cpu_plans(name: str) -> Summary:
    """By step: how many ops, how many bytes of buffers, and a digest of ops, meetings and places."""
    file = read_gguf(golden(name).path)
    spec = build_spec(file)
    graph, placement = build_graph(spec), default_placement(spec, LoadOptions(n_threads=1))
    types = {tensor: one.type_id for tensor, one in file.tensors.items()}
    found: Summary = {}
    for phase, rows in STEPS:
        for f32 in (False, True):
            plan = lower(graph, placement, phase, rows, types, f32=f32)
            found[f"{name} {phase} {rows}{' f32' if f32 else ''}"] = _summary(plan)
    return found


def _summary(plan: Plan) -> tuple[int, int, str]:
    (lane,) = plan.lanes
    places = sorted((slot.name, slot.offset, slot.nbytes, slot.stride, slot.first, slot.last) for slot in lane.slots.values())
    digest = hashlib.sha256(repr((plan.explain(), lane.meets, places)).encode()).hexdigest()[:12]
    return len(lane.ops), plan.arena_bytes, digest


if __name__ == "__main__":
    rows = {key: value for name in MODELS for key, value in cpu_plans(name).items()}
    RECORD.write_text("{\n" + ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in rows.items()) + "\n}\n")
