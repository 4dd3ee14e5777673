"""What the system lets this process do about the node of memory that something lies on, and how it is made sure of.

Where policies are refused, as in containers, what remains is first touch: a page lies on the node of the thread that writes it
first, so that threads pinned to a node write what belongs there. `problem` says so in a sentence. Nothing here needs root.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from engine.hardware.topology import Topology
from kernels_pyx import numa_memory
from kernels_pyx.arena import Arena

PAGE = 4096
HUGE = 2 << 20
AT_ONCE = 64 << 20
"""Bytes whose pages are sent in one call."""
SAMPLED_PAGES = 4096
"""Asked for in one look: under a millisecond."""
ENOUGH = 0.98
"""Of the pages, so many must lie where they are meant to."""
DENIED = (
    "The system does not let this program choose nodes of memory (as in many containers): threads that are pinned to a node "
    "write what belongs there, and it stays where the system then puts it."
)


class NumaOps(Protocol):
    """The system calls: `kernels_pyx.numa_memory`, or what tests put in its place."""

    PREFERRED: int
    INTERLEAVE: int
    DEFAULT: int

    def bind(self, address: int, nbytes: int, policy: int, nodes: Sequence[int] = ..., *, move: bool = ...) -> None:
        """See mbind(2)."""

    def part_edges(self, address: int, nbytes: int) -> None:
        """No huge page reaches over either end."""

    def set_policy(self, policy: int, nodes: Sequence[int] = ...) -> None:
        """See set_mempolicy(2)."""

    def move_pages(self, addresses: Sequence[int], nodes: Sequence[int] | None = ...) -> list[int]:
        """See move_pages(2)."""


SYSTEM: NumaOps = numa_memory
"""A module whose functions are those of the protocol."""


@dataclass(frozen=True, slots=True)
class Meant:
    """nbytes at an address, whose pages are meant to lie on one of `nodes`, in turns if these are several."""

    nodes: tuple[int, ...]
    address: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class PageReport:
    """Of sampled pages: how many are known, by node how many there are, and how many lie where they are meant to."""

    known: int
    right: int
    by_node: Mapping[int, int] = field(default_factory=dict)

    @property
    def share(self) -> float | None:
        """The part that is right; None: nothing is known."""
        return self.right / self.known if self.known else None

    @property
    def sentence(self) -> str:
        """The same for people."""
        share = self.share
        if share is None:
            return "Where the pages lie cannot be asked here."
        where = ", ".join(f"{n} on node {node}" for node, n in sorted(self.by_node.items()))
        return f"{100 * share:.1f} % of {self.known} sampled pages lie on the node where the placement wants them ({where})."


class NodeMemory:
    """The nodes of a machine that has several. For any thread."""

    def __init__(self, nodes: Mapping[int, tuple[int, ...]], ops: NumaOps = SYSTEM) -> None:
        """nodes: with memory for this process, each with its processors, () for one of memory alone."""
        self.cpus = dict(nodes)
        self._ops = ops
        self.problem = "" if self._allowed() else DENIED

    @staticmethod
    def of(topology: Topology, ops: NumaOps = SYSTEM) -> NodeMemory | None:
        """Of a machine; None: it has one node, and there is nothing to choose."""
        usable = [one for one in topology.nodes if one.allowed and one.memory_bytes != 0]
        allowed = frozenset(topology.allowed_cpus)
        nodes = {one.node: tuple(cpu for cpu in one.cpus if cpu in allowed) for one in usable}
        return NodeMemory(nodes, ops) if len(nodes) > 1 else None

    def _allowed(self) -> bool:
        page = Arena(PAGE)
        try:
            self._ops.bind(page.address, PAGE, self._ops.PREFERRED, tuple(self.cpus)[:1])
        except OSError:
            return False
        return True

    def bind(self, address: int, nbytes: int, nodes: Sequence[int], *, move: bool = False) -> bool:
        """Whether what lies there from now on shall lie on a node (while it has room: never bound to a full one), or in turns on
        several. move: what is there already follows."""
        policy = self._ops.PREFERRED if len(nodes) == 1 else self._ops.INTERLEAVE
        try:
            self._ops.bind(address, nbytes, policy, nodes, move=move)
        except OSError:
            return False
        return True

    def begin(self, address: int, nbytes: int, nodes: Sequence[int]) -> bool:
        """The same for memory that nothing was written to yet, which shares no page with its neighbours from now on."""
        self._ops.part_edges(address, nbytes)
        return self.bind(address, nbytes, nodes)

    def follow(self, address: int, nbytes: int, nodes: Sequence[int]) -> bool:
        """Whether what lies there has been sent to a node, or in turns to several; pages that others map too may stay."""
        if not self.bind(address, nbytes, nodes, move=True):
            return False
        if len(nodes) > 1:
            # Pages that are on any of the nodes would stay. Turns are of 2 MiB by address: a huge page goes as a whole, also one
            # that the system made of neighbours without being asked, and would go to and fro with each of its pages.
            for start in range(address // PAGE * PAGE, address + nbytes, AT_ONCE):
                pages = range(start, min(start + AT_ONCE, address + nbytes), PAGE)
                try:
                    self._ops.move_pages(pages, [nodes[page // HUGE % len(nodes)] for page in pages])
                except OSError:
                    return False
        return True

    def make_sure(self, places: Sequence[Meant]) -> None:
        """Has what lies elsewhere moved, once: it was read by others before, or a node that was full has room by now."""
        for one in places:
            share = self.check([one]).share
            if share is not None and share < ENOUGH:
                self.bind(one.address, one.nbytes, one.nodes, move=True)

    def bring_home(self, places: Sequence[Meant], progress: Callable[[int, int], None], pause: Callable[[float], None]) -> int:
        """As `make_sure`, piece by piece beside steps that read it meanwhile; bytes that were sent and are there now.

        progress(done, total): may raise, and what was sent until then stays there. pause(seconds that a piece took).
        """
        astray = [(one, share) for one in places if (share := self.check([one]).share) is not None and share < ENOUGH]
        total, done, came = sum(one.nbytes for one, _ in astray), 0, 0
        for one, share in astray:
            for at in range(0, one.nbytes, AT_ONCE):
                progress(done, total)
                started = time.perf_counter()
                n = min(AT_ONCE, one.nbytes - at)
                self.follow(one.address + at, n, one.nodes)
                done += n
                pause(time.perf_counter() - started)
            now = self.check([one]).share
            came += 0 if now is None else max(0, round((now - share) * one.nbytes))
        progress(done, total)
        return came

    @contextmanager
    def faulting(self, nodes: Sequence[int]) -> Iterator[None]:
        """Within, pages of files that this thread is the first to read go to these nodes: the policy of a mapping does not count
        for them, that of the thread does. Where it is refused, the thread goes to their processors meanwhile."""
        policy = self._ops.PREFERRED if len(nodes) == 1 else self._ops.INTERLEAVE
        try:
            self._ops.set_policy(policy, nodes)
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.ENOSYS, errno.EINVAL):
                raise
            with self.pinned(nodes):
                yield
            return
        try:
            yield
        finally:
            self._ops.set_policy(self._ops.DEFAULT)

    @contextmanager
    def pinned(self, nodes: Sequence[int]) -> Iterator[None]:
        """Within, this thread runs on processors of these nodes, if they have any."""
        before = os.sched_getaffinity(0)
        self.pin(nodes)
        try:
            yield
        finally:
            os.sched_setaffinity(0, before)

    def pin(self, nodes: Sequence[int]) -> None:
        """From now on this thread runs on processors of these nodes, if they have any that exist."""
        cpus = {cpu for node in nodes for cpu in self.cpus.get(node, ())}
        if cpus:
            try:
                os.sched_setaffinity(0, cpus)
            except OSError:
                return  # a cpuset that has changed since: it runs where it may

    def check(self, places: Sequence[Meant]) -> PageReport:
        """Where sampled pages of these really lie."""
        total = sum(one.nbytes for one in places)
        step = max(PAGE, total // SAMPLED_PAGES // PAGE * PAGE)
        wanted = [(one.nodes, one.address + at) for one in places for at in range(0, one.nbytes, step)]
        try:
            found = self._ops.move_pages([address for _, address in wanted])
        except OSError:
            return PageReport(0, 0)
        known = [(nodes, node) for (nodes, _), node in zip(wanted, found, strict=True) if node >= 0]
        by_node: dict[int, int] = {}
        for _, node in known:
            by_node[node] = by_node.get(node, 0) + 1
        return PageReport(len(known), sum(node in nodes for nodes, node in known), by_node)
