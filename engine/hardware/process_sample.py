"""What this process gets of the processors, and who else wants them: values only, as `HardwareSnapshot` carries them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ThreadSample:
    """A busy thread of this process. cpu: the processor it was on last.

    cpu_percent: of the time in which it computed; waiting_percent: in which it could have, and others had its processor.
    involuntary_per_s: how often it was taken off its processor; None at its first reading.
    """

    thread: int
    cpu: int
    cpu_percent: float
    waiting_percent: float
    involuntary_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class ForeignProcess:
    """Another program and how many processors' worth of time it takes. name: as the system shortens it."""

    name: str
    cores: float


@dataclass(frozen=True, slots=True)
class ProcessSample:
    """cores: processors' worth of time that this process and those below it took since the reading before; threads: those of this
    process that were busy, by number.

    foreign: the other programs that take most, () while they are not looked for or cannot be seen, as from within a container.
    """

    cores: float | None = None
    threads: tuple[ThreadSample, ...] = ()
    foreign: tuple[ForeignProcess, ...] = ()
    missing: tuple[tuple[str, str], ...] = ()
