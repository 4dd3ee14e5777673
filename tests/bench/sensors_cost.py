"""What watching costs: processor time of both processes, as a share of one core, at one reading a second.

Run as `python -m tests.bench.sensors_cost [SECONDS]`: a machine of 2 x 64 cores (files) with four cards (played by a library).
"""

from __future__ import annotations

import json
import os
import resource
import sys
import tempfile
import time
from pathlib import Path

from engine.hardware.gpu_watch import GpuWatch
from engine.hardware.sampler import Sampler
from tests.helpers import machines
from tests.helpers.nvml import build

WARM_S = 3.0


def helper_s(pid: int | None) -> float:
    """Processor seconds of the sensor process so far, to the microsecond."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) * 1e-9


def own_s() -> float:
    """Processor seconds of this process so far."""
    spent = resource.getrusage(resource.RUSAGE_SELF)
    return spent.ru_utime + spent.ru_stime


def main() -> int:
    """Measures, and writes one JSON object."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 30.0
    with tempfile.TemporaryDirectory() as folder:
        root = machines.unpack("epyc7b13_2s", Path(folder))
        for device in (root / "sys/bus/pci/devices").iterdir():
            # The library's cards have addresses of their own.
            (device / "vendor").write_text("0x0000\n")
        (root / "proc/driver/nvidia").mkdir(parents=True)
        (root / "proc/driver/nvidia/version").write_text("580\n")
        state = Path(folder) / "state"
        state.write_text("gpus 4\n")
        os.environ |= {"FAKE_NVML": str(state), "LD_LIBRARY_PATH": str(build(Path(folder)))}
        gpus = GpuWatch(root)
        sampler = Sampler(root, gpus=gpus)
        gpus.start(1.0)
        time.sleep(WARM_S)
        own, helper, n, readings = own_s(), helper_s(gpus.pid), 0, []
        began = time.monotonic()
        while time.monotonic() - began < seconds:
            snapshot = sampler.sample(1.0)
            assert snapshot.cost is not None
            readings.append(snapshot.cost.cpu_ms)
            n += 1
            time.sleep(max(0.0, began + n - time.monotonic()))
        passed = time.monotonic() - began
        found = {
            "n_readings": n,
            "n_cards": len(snapshot.gpus),
            "n_cores": len(snapshot.cores),
            "own_percent": round(100 * (own_s() - own) / passed, 3),
            "helper_percent": round(100 * (helper_s(gpus.pid) - helper) / passed, 3),
            "reading_cpu_ms": [round(min(readings), 2), round(sorted(readings)[n // 2], 2), round(max(readings), 2)],
            "round_ms": gpus.cost_ms,
            "helper_resident_mb": int(Path(f"/proc/{gpus.pid}/statm").read_text().split()[1]) * resource.getpagesize() / 1e6,
        }
        gpus.close()
    sys.stdout.write(json.dumps(found) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
