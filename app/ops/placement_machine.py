"""MachineChoice: which machine placements are planned for: this one, or one that a file describes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from engine.api.pure import Machine, machine_of, this_machine


class MachineChoice:
    """Called by the desk's worker for each model that is opened. path: of the file, "" for this machine."""

    def __init__(self, here: Callable[[], Machine] = this_machine) -> None:
        self._here = here
        self.path = ""

    def __call__(self) -> Machine:
        """The machine. Raises: InvalidRequest, a file that describes none."""
        return machine_of(self.path) if self.path else self._here()

    @property
    def is_this(self) -> bool:
        """Whether what is planned can be loaded here."""
        return not self.path

    @property
    def name(self) -> str:
        """Of the file, "" for this machine."""
        return Path(self.path).stem
