"""What is asked of the system about nodes of memory, in which order, and what is left where it refuses."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from dataclasses import replace

import pytest

from engine.hardware.topology import Node, Topology
from engine.hardware.topology_read import topology
from engine.placement.placement import WorkerPlan
from engine.runtime.node_memory import AT_ONCE, DENIED, HUGE, PAGE, Meant, NodeMemory, PageReport
from engine.runtime.on_nodes import crowded_out
from engine.runtime.teams import Teams, node_of_cpu, teams_of
from kernels_pyx.numa_memory import DEFAULT, INTERLEAVE, PREFERRED


class Recording:
    """Writes down what is asked. refuse: with this errno; lies: by page, the node it is on."""

    PREFERRED, INTERLEAVE, DEFAULT = PREFERRED, INTERLEAVE, DEFAULT

    def __init__(self, refuse: int = 0, lies: dict[int, int] | None = None) -> None:
        self.refuse, self.lies = refuse, lies or {}
        self.calls: list[tuple[object, ...]] = []

    def _ask(self, *call: object) -> None:
        self.calls.append(call)
        if self.refuse:
            raise OSError(self.refuse, os.strerror(self.refuse))

    def bind(self, address: int, nbytes: int, policy: int, nodes: Sequence[int] = (), *, move: bool = False) -> None:
        self._ask("bind", address, nbytes, policy, tuple(nodes), move)

    def part_edges(self, address: int, nbytes: int) -> None:
        self.calls.append(("edges", address, nbytes))

    def set_policy(self, policy: int, nodes: Sequence[int] = ()) -> None:
        self._ask("policy", policy, tuple(nodes))

    def move_pages(self, addresses: Sequence[int], nodes: Sequence[int] | None = None) -> list[int]:
        self._ask("move", len(addresses), None if nodes is None else tuple(nodes))
        return [self.lies.get(address // PAGE, -errno.ENOENT) for address in addresses]


def memory(ops: Recording) -> NodeMemory:
    made = NodeMemory({0: (0,), 1: (1,)}, ops)
    ops.calls.clear()
    return made


def test_one_node_is_preferred_and_several_take_turns() -> None:
    ops = Recording()
    nodes = memory(ops)
    assert nodes.problem == ""
    assert nodes.bind(PAGE, 2 * PAGE, (1,)) and nodes.bind(PAGE, 2 * PAGE, (0, 1), move=True)
    assert ops.calls == [("bind", PAGE, 2 * PAGE, PREFERRED, (1,), False), ("bind", PAGE, 2 * PAGE, INTERLEAVE, (0, 1), True)]
    ops.calls.clear()
    assert nodes.begin(PAGE, PAGE, (1,))
    assert ops.calls == [("edges", PAGE, PAGE), ("bind", PAGE, PAGE, PREFERRED, (1,), False)]
    ops.calls.clear()
    with nodes.faulting((0, 1)):
        assert ops.calls == [("policy", INTERLEAVE, (0, 1))]
    assert ops.calls[-1] == ("policy", DEFAULT, ())


def test_what_goes_to_several_nodes_is_sent_in_turns() -> None:
    ops = Recording()
    nodes = memory(ops)
    assert nodes.follow(HUGE - 2 * PAGE, 4 * PAGE, (0, 1))
    assert ops.calls[-1] == ("move", 4, (0, 0, 1, 1))
    assert nodes.follow(HUGE, 2 * HUGE, (0, 1))
    sent = ops.calls[-1][2]
    assert isinstance(sent, tuple) and set(sent[:512]) == {1} and set(sent[512:]) == {0}  # whole huge pages
    ops.calls.clear()
    assert nodes.follow(0, AT_ONCE + PAGE, (0, 1))
    assert [call[1] for call in ops.calls[1:]] == [AT_ONCE // PAGE, 1]
    ops.calls.clear()
    assert nodes.follow(0, PAGE, (1,)) and ops.calls == [("bind", 0, PAGE, PREFERRED, (1,), True)]


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOSYS])
def test_a_refusal_is_told_and_first_touch_is_left(number: int) -> None:
    ops, cpu = Recording(refuse=number), max(os.sched_getaffinity(0))
    nodes = NodeMemory({0: (), 1: (cpu,)}, ops)
    assert nodes.problem == DENIED
    assert not nodes.bind(PAGE, PAGE, (1,)) and not nodes.follow(PAGE, PAGE, (0, 1))
    before = os.sched_getaffinity(0)
    with nodes.faulting((1,)):
        assert os.sched_getaffinity(0) == {cpu}
    assert os.sched_getaffinity(0) == before
    with nodes.faulting((0,)):  # a node without processors: wherever
        assert os.sched_getaffinity(0) == before
    assert nodes.check([Meant((0,), 0, PAGE)]) == PageReport(0, 0)
    assert "cannot be asked" in nodes.check([Meant((0,), 0, PAGE)]).sentence


def test_an_error_of_ours_is_not_taken_for_a_refusal() -> None:
    ops = Recording()
    nodes = memory(ops)
    ops.refuse = errno.EFAULT
    with pytest.raises(OSError, match="Bad address"), nodes.faulting((0,)):
        pass


def test_pages_are_counted_and_what_is_elsewhere_is_sent_once() -> None:
    ops = Recording(lies=dict.fromkeys(range(100, 150), 0) | dict.fromkeys(range(150, 200), 1))
    nodes = memory(ops)
    places = [Meant((0,), 100 * PAGE, 50 * PAGE), Meant((0,), 150 * PAGE, 50 * PAGE), Meant((0, 1), 100 * PAGE, 100 * PAGE)]
    report = nodes.check(places)
    assert (report.known, report.right, report.share) == (200, 150, 0.75) and dict(report.by_node) == {0: 100, 1: 100}
    assert report.sentence.startswith("75.0 % of 200 sampled pages lie on the node")
    ops.calls.clear()
    nodes.make_sure(places)
    assert [call for call in ops.calls if call[0] == "bind"] == [("bind", 150 * PAGE, 50 * PAGE, PREFERRED, (0,), True)]


class Moving(Recording):
    """Pages go where they are bound or sent to, but those of `stuck`."""

    stuck: frozenset[int] = frozenset()

    def bind(self, address: int, nbytes: int, policy: int, nodes: Sequence[int] = (), *, move: bool = False) -> None:
        super().bind(address, nbytes, policy, nodes, move=move)
        if move:
            for page in range(address // PAGE, -(-(address + nbytes) // PAGE)):
                if page in self.lies and page not in self.stuck:
                    self.lies[page] = nodes[0]


def test_what_strayed_is_brought_home_in_pieces_and_counted() -> None:
    ops = Moving(lies=dict.fromkeys(range(100, 200), 0))
    nodes = memory(ops)
    strayed, right = Meant((1,), 100 * PAGE, 50 * PAGE), Meant((0,), 150 * PAGE, 50 * PAGE)
    told: list[tuple[int, int]] = []
    pauses: list[float] = []
    assert nodes.bring_home([strayed, right], lambda *at: told.append(at), pauses.append) == 50 * PAGE
    assert told == [(0, 50 * PAGE), (50 * PAGE, 50 * PAGE)]
    assert len(pauses) == 1
    assert nodes.check([strayed, right]).share == 1
    assert nodes.bring_home([strayed, right], lambda *at: None, pauses.append) == 0 and len(pauses) == 1
    # Pages that others map too stay, which is told as what it is.
    ops.lies.update(dict.fromkeys(range(100, 150), 0))
    ops.stuck = frozenset(range(100, 125))
    assert nodes.bring_home([strayed], lambda *at: None, pauses.append) == 25 * PAGE
    large = Meant((1,), 0, 2 * AT_ONCE + PAGE)
    ops.lies[0] = 0

    def stop(done: int, total: int) -> None:
        if done:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        nodes.bring_home([large], stop, pauses.append)


def _machine(*nodes: Node) -> Topology:
    return replace(topology(), nodes=nodes, allowed_cpus=(0, 1, 2, 3))


def test_nodes_without_memory_and_those_of_others_are_left_out() -> None:
    node = Node(0, (0, 1), 1 << 30, (10,))
    assert NodeMemory.of(_machine(node), Recording()) is None
    empty, foreign = Node(1, (2, 3), 0, (10,)), Node(2, (4,), 1 << 30, (10,), allowed=False)
    assert NodeMemory.of(_machine(node, empty, foreign), Recording()) is None
    found = NodeMemory.of(_machine(node, Node(3, (), 1 << 30, (10,)), Node(4, (2, 9), None, (10,))), Recording())
    assert found is not None and found.cpus == {0: (0, 1), 3: (), 4: (2,)}


def test_teams_are_the_workers_on_the_nodes_in_use() -> None:
    node_of = node_of_cpu(_machine(Node(0, (0, 1), 1, ()), Node(1, (2, 3), 1, ())))
    plan = WorkerPlan((0, 1, 2, 3), (9,))
    both = teams_of(plan, (0, 1), node_of)
    assert both == Teams(plan, (0, 0, 1, 1), (0, 1)) and (both.of_node((1,)), both.of_node((0, 1)), both.of_node(())) == (2, 0, 0)
    one = teams_of(plan, (1,), node_of)
    assert one.workers == WorkerPlan((2, 3), (9,)) and one.of == (0, 0) and one.of_node((1,)) == 0
    mixed = teams_of(WorkerPlan((3, 0)), (0, 1), node_of)
    assert mixed.workers.cores == (0, 3) and mixed.of == (0, 1)
    free = teams_of(WorkerPlan((-1,) * 5), (0, 1), node_of)
    assert free.of == (0, 0, 0, 1, 1)


def test_cores_without_memory_of_their_own_work_on_the_nearest() -> None:
    empty = _machine(Node(0, (0,), 0, (10, 28, 16)), Node(1, (1,), 1, (28, 10, 21)), Node(2, (2, 3), 1, (16, 21, 10)))
    assert empty.memory_nodes == (1, 2) and node_of_cpu(empty) == {0: 2, 1: 1, 2: 2, 3: 2}
    assert teams_of(WorkerPlan((0, 1, 2, 3)), (1, 2), node_of_cpu(empty)).workers.n_workers == 4
    foreign = _machine(Node(0, (0, 1), 1, (10, 20)), Node(1, (2, 3), 1, (20, 10), allowed=False))
    assert node_of_cpu(foreign) == dict.fromkeys(range(4), 0)
    unknown = _machine(Node(0, (0, 1), None, (10, 20)), Node(1, (2, 3), None, (20, 10)))
    assert node_of_cpu(unknown) == {0: 0, 1: 0, 2: 1, 3: 1}
    assert node_of_cpu(_machine(Node(0, (0, 1), 0, (10,)))) == {0: 0, 1: 0}  # junk: then it is its own


def test_what_found_no_room_on_its_node_is_told() -> None:
    ops = Recording(lies=dict.fromkeys(range(100, 180), 0) | dict.fromkeys(range(180, 200), 1))
    nodes = memory(ops)
    fine, short, turns = Meant((0,), 100 * PAGE, 50 * PAGE), Meant((1,), 150 * PAGE, 50 * PAGE), Meant((0, 1), 0, 100 * PAGE)
    assert crowded_out(nodes, [fine, turns]) == ()
    (note,) = crowded_out(nodes, [fine, short, turns])
    assert note.startswith("Memory node 1 had no room for 0 MB of the 0 MB of weights that are placed there: they lie on node 0,")
    assert crowded_out(memory(Recording()), [fine, short]) == ()  # the system tells of no page


def test_a_node_on_which_nobody_works_is_read_from_afar() -> None:
    node_of = {0: 0, 1: 0}
    some = teams_of(WorkerPlan((0, 1)), (0, 2), node_of)
    assert some.nodes == (0,) and some.remote == (2,) and some.of_node((2,)) == 0
    assert some.notes == ("Nobody works on node 2: its memory is read by workers of other nodes.",)
    none = teams_of(WorkerPlan((0, 1)), (2,), node_of)
    assert none.workers.cores == (0, 1) and none.of == (0, 0) and none.remote == (2,)
