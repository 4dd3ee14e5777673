"""What runs within the guest: places a model on its two nodes in every way and looks where the pages are.

Prints a table, then `passed` or what is wrong. `denied` as argument: only what is left where the system refuses policies.
"""

from __future__ import annotations

import os
import subprocess
import sys
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from engine.arch.registry import build_spec
from engine.gguf.reader import read_gguf
from engine.graph.build import build_graph
from engine.hardware.topology_read import topology
from engine.placement.options import LoadOptions
from engine.placement.over_nodes import over_nodes
from engine.placement.placement import Numa, Placement
from engine.placement.spread import Interleave
from engine.runtime.loaded_model import LoadedModel
from engine.runtime.loader import load
from engine.runtime.node_memory import ENOUGH, PAGE, Meant, NodeMemory
from kernels_pyx import numa_memory
from kernels_pyx.arena import Arena
from kernels_pyx.executor import AbortFlag
from kernels_pyx.guard import MappedFile
from tests.helpers.denied import deny
from tests.helpers.runs import blocks, decode_batch, mixture, prefill_batch, some_ids

F32 = npt.NDArray[np.float32]
MODELS = Path("/models")
EXACT = LoadOptions(k_type="f32", v_type="f32", f32_activations=True, n_ctx=512)
ROWS = 40


def tell(text: str) -> None:
    """A line of the console."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def row(policy: str, meant: list[Meant], least: float = ENOUGH) -> None:
    """A row of the table; fails where too few pages are right."""
    memory = NodeMemory.of(topology())
    assert memory is not None
    found = memory.check(meant)
    on = " ".join(f"{found.by_node.get(node, 0):6d}" for node in (0, 1))
    tell(f"| {policy:<58} | {on} | {'n/a' if found.share is None else f'{100 * found.share:5.1f} %'} |")
    assert found.share is not None and found.share >= least, f"{policy}: {found.sentence}"


def placed(base: Placement, policy: str) -> Placement:
    """Everything on a node, in turns, split, or layers on either node."""
    bare = replace(base, spreads=())
    if policy == "split":
        machine_nodes = tuple(one.node for one in topology().nodes)
        assert machine_nodes == (0, 1)
        return base
    if policy == "interleave":
        turns = tuple((unit, Interleave((0, 1))) for unit, _ in bare.units)
        return replace(bare, spreads=turns)
    number: Callable[[int], int] = {"numa0": lambda _: 0, "numa1": lambda _: 1, "layers": lambda layer: max(0, layer) % 2}[policy]
    return replace(bare, units=tuple((unit, Numa(number(unit.layer))) for unit, _ in bare.units))


def opened(options: LoadOptions) -> LoadedModel:
    """The mixture of experts on the disk."""
    file = read_gguf(MODELS / "moe.gguf")
    spec = mixture(8, 3)(build_spec(file))
    return load(file, spec, build_graph(spec), options, lambda phase, done, total: None, AbortFlag())


def logits(model: LoadedModel) -> F32:
    """Of a prompt, and of a token behind it."""
    ids = some_ids(ROWS + 1)
    first = model.step(prefill_batch(ids[:ROWS], 0, blocks(0, 8)))
    second = model.step(decode_batch(ids[ROWS:], [ROWS], [blocks(0, 8)]))
    return np.concatenate((first, second))


def same(what: str, found: F32, truth: F32, bound: float) -> None:
    """Fails where logits differ by more."""
    worst = float(np.abs(found - truth).max())
    tell(f"  {what}: logits differ by {worst:.1e} at most")
    assert np.isfinite(found).all() and worst <= bound, what


def in_turns(meant: list[Meant]) -> None:
    """Fails where one node has much more than the other."""
    memory = NodeMemory.of(topology())
    assert memory is not None
    found = memory.check(meant).by_node
    assert min(found.values()) > 0.5 * max(found.values()), found


def system_calls() -> None:
    """The policies themselves: anonymous memory, and files by the policy of the thread that reads them first."""
    memory = NodeMemory.of(topology())
    assert memory is not None and not memory.problem, memory
    for nodes in ((0,), (1,), (0, 1)):
        arena = Arena(64 << 20, huge=True)
        assert memory.bind(arena.address, arena.nbytes, nodes)
        np.frombuffer(memoryview(arena), np.uint8)[:] = 1
        row(f"memory of its own, {named(nodes)}", [Meant(nodes, arena.address, arena.nbytes)])
        if nodes == (0, 1):
            share = memory.check([Meant((0,), arena.address, arena.nbytes)]).share
            assert share is not None and 0.35 < share < 0.65, share
        else:
            other = (1 - nodes[0],)
            assert memory.bind(arena.address, arena.nbytes, other, move=True)
            row(f"the same, moved to {named(other)} (MF_MOVE)", [Meant(other, arena.address, arena.nbytes)])
    for node in (0, 1):
        with memory.pinned((node,)):
            assert numa_memory.here()[1] == node
            arena = Arena(16 << 20)
            np.frombuffer(memoryview(arena), np.uint8)[:] = 1
            row(f"first touch by a thread on node {node}", [Meant((node,), arena.address, arena.nbytes)])
    for i, nodes in enumerate(((0,), (1,), (0, 1))):
        mapped = MappedFile(MODELS / f"cold{i}.bin")
        with memory.pinned((1 - nodes[0],)), memory.faulting(nodes):
            mapped.touch(0, mapped.nbytes, AbortFlag())
        row(f"file, read first under the thread's policy, {named(nodes)}", [Meant(nodes, mapped.address, mapped.nbytes)])


def named(nodes: tuple[int, ...]) -> str:
    """As the table has it."""
    return f"node {nodes[0]}" if len(nodes) == 1 else "interleaved"


def affinity(model: LoadedModel) -> None:
    """Every pinned worker may run on its processor alone, and that belongs to the node of its team."""
    assert model.placed is not None and model.placed.programs is not None and model.placed.programs.teams is not None
    teams = model.placed.programs.teams
    node_of = {cpu: one.node for one in topology().nodes for cpu in one.cpus}
    for cpu, team in zip(teams.workers.cores, teams.of, strict=True):
        assert node_of[cpu] == teams.nodes[team], (teams, node_of)
    allowed = []
    for task in Path("/proc/self/task").iterdir():
        fields = dict(line.split(":", 1) for line in (task / "status").read_text().splitlines() if ":" in line)
        allowed.append(fields["Cpus_allowed_list"].strip())
    missing = [cpu for cpu in teams.workers.cores[1:] if str(cpu) not in allowed]
    tell(f"  workers on processors {teams.workers.cores} in teams {teams.of} of nodes {teams.nodes}; /proc: {sorted(allowed)}")
    assert not missing, missing


def placements(bound: float, least: float = ENOUGH, *, expect_note: bool = False) -> None:
    """A model in every placement, loaded and moved to; the same logits everywhere."""
    model = opened(EXACT)
    assert model.placement is not None
    base = model.placement
    assert base == over_nodes(replace(base, spreads=()), model.source.machine) and base.spreads
    for note in model.notes:
        tell(f"  note: {note}")
    assert bool(model.notes) == expect_note, model.notes
    truth = logits(model)
    row("model as loaded: experts and matrices split", list(model.places), least)
    affinity(model)
    for policy in ("numa0", "numa1", "interleave", "layers", "split", "numa1", "numa0"):
        model.move(placed(base, policy))
        row(f"model, moved to: {policy}", list(model.places), least)
        if policy == "interleave":
            in_turns(list(model.places))
        same(policy, logits(model), truth, bound)
        if policy in ("numa1", "split"):
            again(model, policy)
            same(f"{policy}, placed again", logits(model), truth, bound)
    model.close()
    for policy in ("numa1", "split"):
        from engine.placement.file import to_json

        path = Path("/tmp/placement.json")
        path.write_text(to_json(placed(base, policy), model.spec))
        model = opened(replace(EXACT, placement=str(path)))
        row(f"model, loaded as: {policy}", list(model.places), least)
        same(f"loaded as {policy}", logits(model), truth, bound)
        model.close()
    model = opened(replace(EXACT, node_memory="mapped"))
    same("split, mapped from the file", logits(model), truth, bound)
    model.close()


def again(model: LoadedModel, policy: str) -> None:
    """Pages that went elsewhere come back when the same placement is applied once more."""
    memory = NodeMemory.of(topology())
    assert memory is not None and model.placement is not None
    for one in model.places:
        pages = range(one.address, one.address + one.nbytes, PAGE)
        numa_memory.move_pages(pages, [1 - one.nodes[0] if len(one.nodes) == 1 else 0] * len(pages))
    astray = memory.check([one for one in model.places if len(one.nodes) == 1]).share
    assert astray is not None and astray < 0.5, astray
    moved = model.move(model.placement).moved_bytes
    tell(f"  {100 * (1 - astray):.0f} % sent astray; placed again: {moved >> 10} KiB came home")
    assert moved > 0
    row(f"model, placed again: {policy}", list(model.places))


def denied() -> None:
    """Where policies are refused: threads that are pinned to a node write what belongs there."""
    deny()
    memory = NodeMemory.of(topology())
    assert memory is not None and memory.problem
    try:
        numa_memory.set_policy(numa_memory.DEFAULT)
    except OSError as error:
        assert error.errno == 1, error
    else:
        raise AssertionError("the filter denies nothing")
    model = opened(EXACT)
    assert any("does not let" in note for note in model.notes), model.notes
    tell(f"  note: {model.notes[0]}")
    found = logits(model)
    same("denied, against one node", found, np.load("/tmp/truth.npy"), 2e-4)
    assert memory.check(list(model.places)).share is None  # cannot even be asked
    affinity(model)
    model.close()


def main() -> int:
    """Everything, in order."""
    nodes = topology().nodes
    tell(f"nodes: {[(one.node, one.cpus, one.memory_bytes) for one in nodes]}")
    tell(f"| {'policy':<58} | node 0 node 1 | right   |")
    system_calls()
    single = opened(replace(EXACT, n_threads=1))
    assert single.placement is not None
    single.move(placed(single.placement, "numa0"))
    np.save("/tmp/truth.npy", logits(single))
    single.close()
    placements(2e-4)
    command = [sys.executable, "-W", "ignore", "-m", "tests.numa_guest.guest", "denied"]
    return subprocess.run(command, check=False).returncode


def ended(run: Callable[[], int], failed: str = "failed") -> int:
    """Runs the part of a guest, says how it went, and switches the guest off; 0: it passed."""
    outcome = 1
    try:
        outcome = run()
        tell("passed" if outcome == 0 else failed)
    except BaseException:
        tell(traceback.format_exc())
        tell("failed")
    sys.stdout.flush()
    os.sync()
    subprocess.run(["/bin/busybox", "poweroff", "-f"], check=False) if Path("/bin/busybox").exists() else None
    return outcome


if __name__ == "__main__":
    if sys.argv[1:] == ["denied"]:
        denied()
    else:
        sys.exit(ended(main, "the denied part failed"))
