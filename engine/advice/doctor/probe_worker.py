"""The process of probes that compute on cards: torch, its driver and a faulty card can take a process down, and this one is there
for it. Answers what the installed torch is for, how fast copies to a card are, and whether copies between cards arrive."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.hardware.pci import devices_folder, link_generation, link_width
from engine.spawn import limit_this_process, memory_limit, serve

MEMORY_BYTES = 256 << 30
"""Of addresses: torch with many cards maps far more than it uses."""
LIMIT_S = 180.0
COPY_BYTES = 256 << 20
COPY_S = 5.0
"""A link climbs to its generation within some hundred milliseconds of work."""


def handle(message: Mapping[str, Any]) -> dict[str, Any]:
    """Answers one question."""
    questions = {"torch": _torch, "links": _links, "peers": _peers}
    try:
        return questions[message["ask"]]()
    except ImportError as error:
        return {"problem": f"torch cannot be imported ({error})"}
    except RuntimeError as error:
        return {"problem": f"the cards cannot be used ({str(error).splitlines()[0]})"}


def _torch() -> dict[str, Any]:
    import torch

    if not torch.cuda.is_available():
        return {"cuda": torch.version.cuda or "", "archs": [], "cards": [], "problem": ""}
    cards = []
    for i in range(torch.cuda.device_count()):
        major, minor = torch.cuda.get_device_capability(i)
        cards.append([torch.cuda.get_device_name(i), f"{major}.{minor}"])
    return {"cuda": torch.version.cuda or "", "archs": list(torch.cuda.get_arch_list()), "cards": cards, "problem": ""}


def _links() -> dict[str, Any]:
    import torch

    found = []
    for i in range(torch.cuda.device_count()):
        facts: Any = torch.cuda.get_device_properties(i)
        address = f"{facts.pci_domain_id:04x}:{facts.pci_bus_id:02x}:{facts.pci_device_id:02x}.0"
        folder = devices_folder(Path("/")) / address
        rate, generation, width = _copy(torch, i, folder)
        found.append([f"GPU-{facts.uuid}", rate, generation, width])
    return {"links": found, "problem": ""}


def _copy(torch: Any, index: int, folder: Path) -> tuple[float, int | None, int | None]:
    """(GB/s, generation, lanes) of copies from pinned memory, the link read in the midst of the last one."""
    with torch.cuda.device(index):
        source = torch.empty(COPY_BYTES, dtype=torch.uint8).pin_memory()
        target = torch.empty_like(source, device="cuda")
        target.copy_(source, non_blocking=True)
        torch.cuda.synchronize()
        began, n = time.perf_counter(), 0
        generation, width = None, None
        while time.perf_counter() < began + COPY_S:
            for _ in range(4):
                target.copy_(source, non_blocking=True)
            n += 4
            generation, width = link_generation(folder / "current_link_speed"), link_width(folder / "current_link_width")
            torch.cuda.synchronize()
        return n * COPY_BYTES / (time.perf_counter() - began) / 1e9, generation, width


def _peers() -> dict[str, Any]:
    import torch

    from engine.errors import EngineError
    from engine.runtime.gpu import open_gpus
    from engine.runtime.gpu_peers import try_peers

    n = torch.cuda.device_count()
    try:
        tried = try_peers(open_gpus(range(n))) if n > 1 else None
    except EngineError as error:
        return {"problem": str(error)}
    notes = [] if tried is None else list(tried.notes)
    lost = [note for note in notes if "was not what arrived" in note]
    return {"pairs": n * (n - 1) // 2, "lost": lost, "apart": [note for note in notes if note not in lost], "problem": ""}


def main() -> None:
    """Runs the process until its pipe closes."""
    limit_this_process(memory_limit(MEMORY_BYTES))
    serve(handle, LIMIT_S)


if __name__ == "__main__":
    main()
