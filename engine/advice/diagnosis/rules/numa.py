"""Memory nodes: experts that lie on the wrong one, nodes that wait for each other, cards that hang on the other processor."""

from __future__ import annotations

from engine.advice.diagnosis.finding import Action
from engine.advice.diagnosis.remedies import one_a_core, pin_to
from engine.advice.diagnosis.rule import Said
from engine.advice.diagnosis.window import Window, percent_text, spoken

OFF_NODE = 0.10
"""Of sampled pages: the system places a few elsewhere when a node runs full for a moment."""
UNEQUAL = 1.5
GPU_GAPS = 0.15
"""Of a step in which a card waits: without gaps it does not matter where its thread runs."""


def elsewhere(window: Window) -> Said | None:
    """Pages lie on other nodes than the placement says, or one node works much longer than another."""
    topology, astray = window.facts.topology, window.astray
    if topology is None or len(topology.memory_nodes) < 2 or not window.is_working:
        return None
    if astray is not None and astray.share > OFF_NODE:
        which = "" if astray.meant is None else f", most of them on node {astray.found} instead of node {astray.meant}"
        return Said(
            f"{percent_text(astray.share)} of the weights sit on another memory node than they should{which}; each token reads "
            "them from afar.",
            "by the nodes of sampled pages; reading from the other processor's memory gives about half the speed",
            Action("place again", "Place it again"),
        )
    times = {node: window.token_ms(node) for node in window.nodes}
    known = {node: ms for node, ms in times.items() if ms}
    if len(known) < 2:
        return None
    slowest, fastest = max(known, key=lambda one: known[one]), min(known, key=lambda one: known[one])
    if known[slowest] <= UNEQUAL * known[fastest] or window.is_disturbed(slowest):
        return None
    share = known[slowest] / sum(known.values())
    return Said(
        f"{percent_text(share)} of the CPU's work sits on {spoken(slowest)}; the cores of {spoken(fastest)} wait.",
        f"a token takes {known[slowest]:.1f} ms there and {known[fastest]:.1f} ms on {spoken(fastest)}",
        Action("rebalance", "Look at a faster placement", slowest),
    )


def far_card(window: Window) -> Said | None:
    """A card with gaps hangs on a node where none of our threads is."""
    topology = window.facts.topology
    if topology is None or len(topology.usable_nodes) < 2:
        return None
    info = window.facts.info
    kept = () if info is None or info.placement is None else info.placement.workers.kept
    ours = frozenset((*window.worker_cpus, *kept))
    near = {core.node for core in topology.cores if not ours.isdisjoint(core.cpus)}
    for device in window.cards:
        gpu, waits = window.card(device), window.waits(device)
        if gpu is None or gpu.node is None or gpu.node < 0 or gpu.node in near or not ours or waits is None or waits < GPU_GAPS:
            continue
        return Said(
            f"{spoken(device)} is attached to the other CPU (memory node {gpu.node}); the model's threads run on "
            f"{' and '.join(f'node {node}' for node in sorted(near))}.",
            f"it waits for {percent_text(waits)} of each step, and what it gets crosses between the processors",
            _beside(window, gpu.node, device),
            device,
        )
    return None


def _beside(window: Window, node: int, device: str) -> Action:
    """As many workers as now, spread over all nodes, where that brings some to the card's."""
    topology, cpus = window.facts.topology, one_a_core(window, window.n_workers)
    near = () if topology is None else tuple(cpu for core in topology.cores if core.node == node for cpu in core.cpus)
    return pin_to(window, cpus, "Choose workers near it", device) if not set(near).isdisjoint(cpus) else Action()
