"""A machine described in a file: what `--machine` and the placement page read.

    {"name": "EPYC box", "gpus": [{"name": "RTX 4090", "memory_gib": 24, "count": 4, "link_gbps": 25, "node": 0}],
     "nodes": [{"name": "EPYC 7B13", "ram_gib": 512, "cores": 64, "read_gbps": 204.8, "count": 2}]}

`ram_gib` in place of `nodes` is one node of which only the memory is known. Rates are those that parts are sold with.
"""

from __future__ import annotations

import difflib
import json
import os
from pathlib import Path
from typing import Any

from engine.errors import InvalidRequest
from engine.hardware.gpus import GpuInfo
from engine.hardware.machine import Machine, NodeInfo

_KEYS = ("name", "ram_gib", "nodes", "gpus")
_NODE_KEYS = ("name", "ram_gib", "cores", "read_gbps", "count")
_GPU_KEYS = ("name", "memory_gib", "count", "read_gbps", "link_gbps", "node")
MAX_GPUS = 64
MAX_NODES = 64
MAX_CORES = 4096


def read_machine(path: Path) -> Machine:
    """The machine of a JSON file.

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
    nodes = _nodes(values, where)
    gpus = _gpus(values.get("gpus", []), where, {one.node for one in nodes})
    ram = sum(one.ram_bytes for one in nodes)
    problem = "" if gpus else "the machine of the file has no GPU"
    return Machine(ram, ram, gpus, problem, nodes, str(values.get("name") or path.stem))


def _nodes(values: dict[str, Any], where: str) -> tuple[NodeInfo, ...]:
    if "nodes" not in values:
        ram = _gib(values.get("ram_gib"), f"{where}: ram_gib")
        return (NodeInfo(0, "", ram, ram, os.cpu_count() or 1),)
    if "ram_gib" in values:
        raise InvalidRequest(f"{where}: it has ram_gib and nodes, which contradict each other; leave ram_gib out")
    found: list[NodeInfo] = []
    for spot, row in _rows(values["nodes"], f"{where}: nodes"):
        one = _object(row, spot, _NODE_KEYS)
        ram = _gib(one.get("ram_gib"), f"{spot}.ram_gib")
        cores = _count(one.get("cores", 1), f"{spot}.cores", MAX_CORES, "cores")
        count = _count(one.get("count", 1), f"{spot}.count", MAX_NODES - len(found), "nodes")
        rate = _rate(one.get("read_gbps"), f"{spot}.read_gbps")
        found += [NodeInfo(len(found) + k, str(one.get("name", "")), ram, ram, cores, rate) for k in range(count)]
    if not found:
        raise InvalidRequest(f"{where}: nodes is empty; a machine has at least one node of memory")
    return tuple(found)


def _gpus(value: Any, where: str, nodes: set[int]) -> tuple[GpuInfo, ...]:
    found: list[GpuInfo] = []
    for spot, row in _rows(value, f"{where}: gpus"):
        one = _object(row, spot, _GPU_KEYS)
        nbytes = _gib(one.get("memory_gib"), f"{spot}.memory_gib")
        count = _count(one.get("count", 1), f"{spot}.count", MAX_GPUS - len(found), "GPUs")
        read, link = (_rate(one.get(key), f"{spot}.{key}") for key in ("read_gbps", "link_gbps"))
        node = one.get("node", 0)
        if node not in nodes or isinstance(node, bool):
            raise InvalidRequest(f"{spot}.node is {node!r}, which is not there; the machine has nodes 0 to {max(nodes)}")
        name = str(one.get("name", "GPU"))
        found += [GpuInfo(len(found) + k, name, nbytes, nbytes, read_gbps=read, link_gbps=link, node=node) for k in range(count)]
    return tuple(found)


def _rows(value: Any, where: str) -> list[tuple[str, Any]]:
    if not isinstance(value, list):
        raise InvalidRequest(f"{where} is not a list; correct the file")
    return [(f"{where}[{i}]", row) for i, row in enumerate(value)]


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


def _rate(value: Any, where: str) -> float | None:
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < 1e6:
        raise InvalidRequest(f"{where} is {value!r}; give GB/s, more than 0")
    return float(value)


def _count(value: Any, where: str, most: int, what: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise InvalidRequest(f"{where} is {value!r}; a machine has 1 to {most} {what}")
    return value
