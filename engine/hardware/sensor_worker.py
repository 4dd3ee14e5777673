"""The sensor process: the only one that calls NVIDIA's library and the files of AMD's driver, both of which can hang or worse.

Its parent, `gpu_watch`, asks for one card at a time, so that it knows which one it was.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.hardware.amd import AmdCard
from engine.spawn import limit_this_process, memory_limit, serve

MEMORY_BYTES = 64 << 30
"""Of addresses: on machines with many cards the library maps far more than it uses."""
LIMIT_S = 60.0
"""The parent's patience is shorter; this ends us when there is no parent left."""


class Sensors:
    """What is open in this process."""

    def __init__(self) -> None:
        self._cards: dict[str, Any] = {}
        self._open = False

    def handle(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Answers one question of the parent."""
        started = time.perf_counter()
        answer = _QUESTIONS[message["ask"]](self, message)
        answer["wall_ms"] = (time.perf_counter() - started) * 1e3
        return answer

    def start(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Opens NVIDIA's library anew: {n} cards, or {error}, the library's number for what is wrong."""
        # The library's binding takes a tenth of a second to import, which an AMD machine need not spend.
        import pynvml

        from engine.hardware import nvml

        try:
            self._stop()
            n = nvml.start(leave_asleep=bool(message["leave_asleep"]))
        except pynvml.NVMLError as error:
            return {"error": int(error.value), "text": str(error)}
        self._open = True
        return {"n": n, "driver": _driver(pynvml)}

    def _stop(self) -> None:
        from engine.hardware import nvml

        for card in self._cards.values():
            if isinstance(card, nvml.Card):
                card.close()
        self._cards = {slot: card for slot, card in self._cards.items() if isinstance(card, AmdCard)}
        if self._open:
            self._open = False
            nvml.stop()

    def list(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """{cards: [[uuid, name, bytes, bytes free]]}, or {error}. The library is closed again: it would keep cards awake."""
        import pynvml

        from engine.hardware import nvml

        try:
            n = nvml.start(leave_asleep=False)
        except pynvml.NVMLError as error:
            return {"error": int(error.value), "text": str(error)}
        try:
            return {"cards": nvml.listed(n)}
        except pynvml.NVMLError as error:
            return {"error": int(error.value), "text": str(error)}
        finally:
            nvml.stop()

    def meet(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Makes the acquaintance of a card of NVIDIA's: {key, pci, name, values, missing}, or {error}."""
        import pynvml

        from engine.hardware import nvml

        slot = message["slot"]
        try:
            card = nvml.Card(slot)
        except pynvml.NVMLError as error:
            return {"error": int(error.value), "text": str(error)}
        self._cards[str(slot)] = card
        return _identity(card) | card.read(frozenset({"once"}), details=False)

    def meet_amd(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """The same for a card of AMD's."""
        card = self._cards[message["slot"]] = AmdCard(message["slot"], Path(message["root"]))
        return _identity(card) | {"values": {}, "missing": {}, "error": None}

    def read(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """What a card tells now: {values, missing, error}."""
        card = self._cards[str(message["slot"])]
        found: dict[str, Any]
        if isinstance(card, AmdCard):
            found = card.read()
        else:
            found = card.read(frozenset(message["tiers"]), details=bool(message["details"]))
        return found


_QUESTIONS = {
    "start": Sensors.start,
    "list": Sensors.list,
    "meet": Sensors.meet,
    "meet_amd": Sensors.meet_amd,
    "read": Sensors.read,
}


def _identity(card: Any) -> dict[str, Any]:
    return {"key": card.uuid, "pci": card.pci, "name": card.name}


def _driver(pynvml: Any) -> str:
    try:
        return str(pynvml.nvmlSystemGetDriverVersion())
    except pynvml.NVMLError:
        return ""


def main() -> None:
    """Runs the process until its pipe closes."""
    limit_this_process(memory_limit(MEMORY_BYTES))
    serve(Sensors().handle, LIMIT_S)


if __name__ == "__main__":
    main()
