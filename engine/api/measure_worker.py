"""The process that measures this machine for estimates: measuring keeps the interpreter, all cores and torch busy, and a window
must not wait for any of them. Its parent kills it to stop it; what was measured is kept at the end only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.api.pure import measure, save_rates, this_machine
from engine.errors import EngineError
from engine.spawn import serve

WORKER = "engine.api.measure_worker"
MEMORY_BYTES = 0
"""Not limited: torch maps far more than it uses."""
LIMIT_S = 300.0


def handle(_message: Mapping[str, Any]) -> dict[str, Any]:
    """Measures and keeps it: {node_gbps: what each memory node gave, n_gpus}; or {error: a sentence}."""
    machine = this_machine()
    try:
        rates = measure(machine)
        save_rates(rates, machine)
    except (EngineError, OSError) as error:
        return {"error": str(error)}
    return {"node_gbps": [max(gbps for _n, gbps in node.read_gbps) for node in rates.nodes], "n_gpus": len(rates.gpus)}


def main() -> None:
    """Answers requests until the parent ends."""
    serve(handle, LIMIT_S)


if __name__ == "__main__":
    main()
