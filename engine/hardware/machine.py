"""The machine that something is planned for: this one, or one that a file describes."""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from engine.errors import InvalidRequest
from engine.hardware.gpus import GpuInfo, find_gpus

_KEYS = ("name", "ram_gib", "gpus")
_GPU_KEYS = ("name", "memory_gib", "count")
MAX_GPUS = 64


@dataclass(frozen=True, slots=True)
class Machine:
    """ram_bytes: all of its memory; ram_free: what can be taken of it now. problem: why its GPUs cannot be used, or ""."""

    ram_bytes: int
    ram_free: int
    gpus: tuple[GpuInfo, ...]
    problem: str = ""


def this_machine(env: Mapping[str, str] = os.environ) -> Machine:
    """What this machine has now; GPUs even where they cannot be computed on, which `problem` says.

    Raises:
        InvalidRequest: see `find_gpus`.
    """
    memory, gpus = psutil.virtual_memory(), find_gpus(env)
    return Machine(int(memory.total), int(memory.available), gpus.found, gpus.problem)


def read_machine(path: Path) -> Machine:
    """The machine of a JSON file: {"ram_gib": 768, "gpus": [{"name": "RTX 4090", "memory_gib": 24, "count": 4}]}.

    Raises:
        InvalidRequest: unreadable, or values that no machine has; one sentence.
    """
    try:
        found = json.loads(path.read_bytes().decode())
    except OSError as error:
        raise InvalidRequest(f"{path}: cannot be read ({error.strerror}); check the path and its permissions") from error
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"{path}: this is not a JSON file ({error}); correct the file") from error
    where = str(path)
    values = _object(found, where, _KEYS)
    ram = _gib(values.get("ram_gib"), f"{where}: ram_gib")
    cards = values.get("gpus", [])
    if not isinstance(cards, list):
        raise InvalidRequest(f"{where}: gpus is not a list; correct the file")
    gpus: list[GpuInfo] = []
    for i, card in enumerate(cards):
        spot = f"{where}: gpus[{i}]"
        one = _object(card, spot, _GPU_KEYS)
        nbytes, count = _gib(one.get("memory_gib"), f"{spot}.memory_gib"), one.get("count", 1)
        if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= MAX_GPUS - len(gpus):
            raise InvalidRequest(f"{spot}.count is {count!r}; a machine has 1 to {MAX_GPUS} GPUs in all")
        name = str(one.get("name", "GPU"))
        gpus += [GpuInfo(len(gpus) + k, name, nbytes, nbytes) for k in range(count)]
    return Machine(ram, ram, tuple(gpus), "" if gpus else "the machine of the file has no GPU")


def _object(value: Any, where: str, keys: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidRequest(f"{where}: this is not a JSON object with {', '.join(keys)}; correct the file")
    for key in value:
        if key not in keys:
            near = difflib.get_close_matches(str(key), keys, n=1)
            hint = f"did you mean {near[0]}?" if near else f"it knows {', '.join(keys)}"
            raise InvalidRequest(f"{where}: the key {str(key)[:40]!r} is unknown; {hint}")
    return value


def _gib(value: Any, where: str) -> int:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < 1 << 20:
        raise InvalidRequest(f"{where} is {value!r}; give the memory in GiB, more than 0")
    return int(value * (1 << 30))
