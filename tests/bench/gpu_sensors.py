"""Every gauge that the cards of this machine have, what each question costs, and what watching them costs.

Run as `python -m tests.bench.gpu_sensors [OUT.json]` on a machine with a GPU of NVIDIA's. It takes less than 30 s, needs no torch
and changes nothing. It prints a table, and writes all of it as JSON.
"""

from __future__ import annotations

import json
import resource
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pynvml

from engine.cli.sensors import as_json
from engine.hardware import nvml
from engine.hardware.gpu_watch import GpuWatch
from engine.hardware.nvml_calls import CALLS, Shared
from engine.hardware.sampler import Sampler
from engine.hardware.topology_read import topology

REPEATS = 30
MOST_S = 0.3
"""For the repeats of one question."""
WATCH_S = 8.0


def cost(ask: Callable[[], Any]) -> dict[str, Any]:
    """Median and longest microseconds of a question and its last answer, or why there is none."""
    times, value, began = [], None, time.perf_counter()
    while len(times) < REPEATS and (len(times) < 2 or time.perf_counter() - began < MOST_S):
        started = time.perf_counter()
        try:
            value = ask()
        except pynvml.NVMLError as error:
            return {"error": f"{error.value} {error}"}
        except Shared:
            return {"error": "the card has no memory of its own"}
        except (AttributeError, TypeError) as error:
            return {"error": str(error)[:100]}
        times.append((time.perf_counter() - started) * 1e6)
    return {"median_us": round(statistics.median(times), 1), "longest_us": round(max(times), 1), "n": len(times), "value": value}


def questions(handle: Any) -> dict[str, dict[str, Any]]:
    """All questions that sensors put, by name with their tier, and those of details."""
    found = {f"{call.name} ({call.tier})": cost(lambda call=call: dict(call.read(handle))) for call in CALLS}  # type: ignore[misc]
    counters = [pynvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES, pynvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES]
    others: dict[str, Callable[[], Any]] = {
        "programs (details)": lambda: len(pynvml.nvmlDeviceGetComputeRunningProcesses(handle)),
        "link counters (details)": lambda: [one.nvmlReturn for one in pynvml.nvmlDeviceGetFieldValues(handle, counters)],
        "link traffic (details)": lambda: pynvml.nvmlDeviceGetPcieThroughput(handle, pynvml.NVML_PCIE_UTIL_RX_BYTES),
        "energy (not asked)": lambda: pynvml.nvmlDeviceGetTotalEnergyConsumption(handle),
        "thermal settings (not asked)": lambda: bool(pynvml.nvmlDeviceGetThermalSettings(handle, 15)),
    }
    return found | {name: cost(ask) for name, ask in others.items()}


def watched() -> dict[str, Any]:
    """What the application does: the sensor process at 1 Hz, a reading of the machine beside it, and the time that both take."""
    gpus = GpuWatch()
    gpus.adjust(in_use=True, details=True)
    began = time.monotonic()
    gpus.start(1.0)
    sampler = Sampler(gpus=gpus)
    while not gpus.begun or any(one.state == "silent" for one in gpus.samples()):
        time.sleep(0.02)
        if time.monotonic() - began > 60:
            raise RuntimeError([one.problem for one in gpus.samples()] or gpus.problem)
    first_s = time.monotonic() - began
    before, rounds, readings = _cpu_s(gpus.pid), [], []
    started = time.monotonic()
    while time.monotonic() - started < WATCH_S:
        time.sleep(1.0)
        snapshot = sampler.sample(1.0)
        rounds.append(gpus.cost_ms)
        readings.append(snapshot.cost.cpu_ms if snapshot.cost is not None else None)
    seconds = time.monotonic() - started
    spent = [after - earlier for after, earlier in zip(_cpu_s(gpus.pid), before, strict=True)]
    memory = _resident_bytes(gpus.pid)
    snapshot = sampler.sample(1.0)
    gpus.close()
    return {
        "first_answer_s": round(first_s, 2),
        "round_ms": rounds,
        "reading_cpu_ms": readings,
        "own_cpu_percent": round(100 * spent[0] / seconds, 3),
        "helper_cpu_percent": round(100 * spent[1] / seconds, 3),
        "helper_resident_mb": round(memory / 1e6, 1),
        "snapshot": as_json(snapshot),
    }


def _cpu_s(pid: int | None) -> tuple[float, float]:
    """Processor seconds of this process and of the sensor process so far."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ticks = (int(words[11]) + int(words[12])) / 100
    return own.ru_utime + own.ru_stime, ticks


def _resident_bytes(pid: int | None) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()


def main() -> int:
    """Measures, and writes what it found."""
    n = nvml.start(leave_asleep=False)
    found: dict[str, Any] = {"driver": str(pynvml.nvmlSystemGetDriverVersion()), "cards": {}}
    for i in range(n):
        handle = pynvml.nvmlDeviceGetHandleByIndex(i)
        found["cards"][f"{i} {pynvml.nvmlDeviceGetName(handle)}"] = questions(handle)
    nvml.stop()
    found["watched"] = watched()
    found["topology"] = asdict(topology())
    for name, rows in found["cards"].items():
        sys.stdout.write(f"{name}\n")
        for question, row in rows.items():
            told = row.get("error") or f"{row['median_us']:>9.1f} us, longest {row['longest_us']:>9.1f}  {row['value']}"
            sys.stdout.write(f"  {question:<36} {told}\n")
    shown = {key: value for key, value in found["watched"].items() if key != "snapshot"}
    sys.stdout.write(json.dumps(shown) + "\n")
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(json.dumps(found, indent=1, default=str), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
