"""Who works, as people give it: a number of threads, or the processors that they run on (`0-7,16-23`)."""

from __future__ import annotations

from engine.errors import InvalidRequest
from engine.hardware.cpu_list import wanted_cpus

MAX_THREADS = 256


def parse_threads(text: str) -> tuple[int, tuple[int, ...]]:
    """(number, processors): the `n_threads` and `cores` of `LoadOptions`. "" and "0": (0, ()), as is good for the machine;
    a number alone is a number of threads, so one processor is written `3-3`.

    Raises:
        InvalidRequest: neither, or more than a team can have; one sentence.
    """
    text = text.strip()
    if not text:
        return 0, ()
    if text.isascii() and text.isdigit():
        if len(text) > 6 or int(text) > MAX_THREADS:
            raise InvalidRequest(f"{text[:40]} threads asked for; use 0 (one per core) to {MAX_THREADS}")
        return int(text), ()
    cpus = wanted_cpus(text)
    if len(cpus) > MAX_THREADS:
        raise InvalidRequest(f"{len(cpus)} threads asked for; use 0 (one per core) to {MAX_THREADS}")
    return len(cpus), cpus
