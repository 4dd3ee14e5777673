"""What checks read: the machine's files below a root, one reading of its sensors, and facts that only others know."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path

from engine.advice.doctor.counters import Counters, read_counters
from engine.advice.doctor.drivers import torch_cuda
from engine.advice.doctor.facts import AppFacts, LinkRate, ModelFacts, PeerFacts, TorchFacts
from engine.errors import EngineError
from engine.gguf.info import GgufFile
from engine.gguf.reader import read_gguf
from engine.hardware import sysfs
from engine.hardware.snapshot import HardwareSnapshot
from engine.hardware.topology import Topology
from engine.hardware.topology_read import read_topology, topology

LIVE = Path("/")


class Context:
    """What is known before the checks begin; files are read when the first check asks for them, once.

    snapshot: of the sensors; None: no card was asked. before: counters some time ago, to tell what rises from what once was.
    node_gbps: what reading each memory node gave when this machine was calibrated. peers, links, torch: probes that take seconds
    or know the answer already; given only where that time may be spent.
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
        peers: Callable[[], PeerFacts | None] | None = None,
        links: Callable[[], tuple[LinkRate, ...]] | None = None,
        torch: Callable[[], TorchFacts] | None = None,
        host: str = "",
        thorough: bool = False,
        torch_cuda: str | None = None,
        env: Mapping[str, str] = os.environ,
    ) -> None:
        """root: where /proc and /sys lie. host: that models are to be downloaded from, "": nobody wants to download.

        thorough: quick checks may take a second more to know more. torch_cuda: as `drivers.torch_cuda` finds it on this machine.
        """
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
        self.thorough = thorough
        self._torch_cuda = torch_cuda
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
    def torch_cuda(self) -> str | None:
        """What the installed torch was built for; None where it is not installed, or of another machine."""
        return self._torch_cuda or (torch_cuda() if self.live else None)

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

    @cached_property
    def model_file(self) -> GgufFile | EngineError | None:
        """What the header of the model's file says, or what is wrong with it; None where no model is chosen."""
        if self.model is None:
            return None
        try:
            return read_gguf(self.model.path)
        except EngineError as error:
            return error

    def text(self, path: str) -> str | None:
        """The text of a file below the root."""
        return sysfs.text(self.root / path)

    def number(self, path: str) -> int | None:
        """The number in a file below the root."""
        return sysfs.number(self.root / path)
