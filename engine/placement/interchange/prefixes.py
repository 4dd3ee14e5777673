"""What stands in front of a command that starts a model and says which cores and which memory it may use: `taskset`, `numactl`.

A command that is bound to one node lies on that node here too; one whose memory is interleaved over all of them is what this
engine does anyway. What else can be said of nodes is a difference.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from engine.hardware.cpu_list import parse_cpus

_NUMACTL = {
    "--interleave": "interleave",
    "-i": "interleave",
    "--membind": "membind",
    "-m": "membind",
    "--cpunodebind": "cpunodebind",
    "-N": "cpunodebind",
    "--physcpubind": "physcpubind",
    "-C": "physcpubind",
}
_BINDS = frozenset(("membind", "cpunodebind"))
_TASKSET = re.compile(r"taskset(?: -\w+)* -\w*c ([\d,-]+)")
_NODE = re.compile(r"\d{1,3}")


@dataclass(frozen=True, slots=True)
class Bound:
    """cores: that may work, empty: all; node: the only one whose memory is used, None: all. Sentences as in `Launch`."""

    cores: tuple[int, ...] = ()
    node: int | None = None
    differences: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def bound_by(prefixes: Sequence[str]) -> Bound:
    """What all prefixes together allow; of cores and nodes the innermost counts. prefixes: words of each, with blanks."""
    cores: tuple[int, ...] = ()
    node: int | None = None
    differences, notes = list[str](), list[str]()
    for prefix in prefixes:
        one = _of(prefix)
        cores, node = one.cores or cores, node if one.node is None else one.node
        differences += one.differences
        notes += one.notes
    return Bound(cores, node, tuple(differences), tuple(notes))


def _of(prefix: str) -> Bound:
    if prefix.startswith("taskset"):
        match = _TASKSET.fullmatch(prefix)
        cores = () if match is None else parse_cpus(match[1]) or ()
        told = f"{prefix[:120]}: this is no list of cores such as -c 0-7,16-23"
        return Bound(cores) if cores else Bound(differences=(told,))
    return _of_numactl(prefix) if prefix.startswith("numactl") else Bound()


def _of_numactl(prefix: str) -> Bound:
    said = dict(_options(prefix.split()[1:]))
    cores = parse_cpus(said.pop("physcpubind", "")) or ()
    said = {what: value for what, value in said.items() if value != "all" or what not in _BINDS}
    if not said:
        return Bound(cores)
    nodes = {*said.values()}
    if said.keys() <= _BINDS and len(nodes) == 1 and _NODE.fullmatch(node := nodes.pop()):
        return Bound(cores, int(node))
    if said == {"interleave": "all"}:
        told = (
            f"{prefix[:120]}: the memory of all nodes is used here anyway, most of it in parts that the cores of each node read"
        )
        return Bound(cores, notes=(told,))
    return Bound(cores, differences=(f"{prefix[:120]}: memory and threads are not bound to nodes in this way",))


def _options(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """(what, value) of each option; others by the word itself."""
    at = 0
    while at < len(words):
        name, equals, value = words[at].partition("=")
        at += 1
        if name not in _NUMACTL and name[:2] in _NUMACTL and not name.startswith("--"):
            name, equals, value = name[:2], "=", name[2:]
        if name in _NUMACTL and not equals and at < len(words):
            value = words[at]
            at += 1
        yield _NUMACTL.get(name, name), value
