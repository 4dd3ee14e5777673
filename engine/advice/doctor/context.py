"""What checks read: the machine's files below a root, one reading of its sensors, and facts that only others know."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path

from engine.advice.doctor.counters import Counters, read_counters
from engine.advice.doctor.facts import AppFacts, LinkRate, ModelFacts, PeerFacts, TorchFacts
from engine.hardware import sysfs
from engine.hardware.snapshot import HardwareSnapshot
from engine.hardware.topology import Topology
from engine.hardware.topology_read import read_topology, topology

LIVE = Path("/")


class Context:
    """What is known before the checks begin; files are read when the first check asks for them, once.

    snapshot: of the sensors; None: no card was asked. before: counters some time ago, to tell what rises from what once was.
    node_gbps: what reading each memory node gave when this machine was calibrated. peers, links, torch: probes that take seconds;
    only checks that are not quick call them.
    """

    def __init__(
        self,
        root: Path = LIVE,
        *,
        machine: Topology | None = None,
        snapshot: HardwareSnapshot | None = None,
        before: Counters | None = None,
        node_gbps: tuple[float, ...] = (),
        model: ModelFacts | None = None,
        app: AppFacts | None = None,
        peers: Callable[[], PeerFacts] | None = None,
        links: Callable[[], tuple[LinkRate, ...]] | None = None,
        torch: Callable[[], TorchFacts] | None = None,
        host: str = "",
        env: Mapping[str, str] = os.environ,
    ) -> None:
        """root: where /proc and /sys lie. host: that models are to be downloaded from, "": nobody wants to download."""
        self.root = root
        self.snapshot = snapshot
        self.before = before
        self.node_gbps = node_gbps
        self.model = model
        self.app = app
        self.peers = peers
        self.links = links
        self.torch = torch
        self.host = host
        self.env = env
        self._machine = machine

    @property
    def live(self) -> bool:
        """Whether the root is this machine: only then what this process is told by the system counts."""
        return self.root == LIVE

    @cached_property
    def topology(self) -> Topology:
        """What the machine is made of."""
        if self._machine is not None:
            return self._machine
        return topology() if self.live else read_topology(self.root)

    @cached_property
    def now(self) -> Counters:
        """The counters now."""
        return read_counters(self.root)

    @cached_property
    def meminfo(self) -> dict[str, int]:
        """/proc/meminfo in bytes; what counts pages is left as it is."""
        found = {}
        for key, value in sysfs.fields(self.root / "proc/meminfo").items():
            words = value.split()
            amount = sysfs.as_number(words[0]) if words else None
            if amount is not None and amount >= 0:
                found[key] = amount << 10 if words[1:] == ["kB"] else amount
        return found

    def text(self, path: str) -> str | None:
        """The text of a file below the root."""
        return sysfs.text(self.root / path)

    def number(self, path: str) -> int | None:
        """The number in a file below the root."""
        return sysfs.number(self.root / path)
