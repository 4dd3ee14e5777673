"""Probes that take seconds and compute on cards, in a process of their own. What cannot be tried is not known, never wrong."""

from __future__ import annotations

from typing import Any

from engine.advice.doctor.facts import LinkRate, PeerFacts, TorchFacts
from engine.advice.doctor.probe_worker import LIMIT_S, MEMORY_BYTES
from engine.errors import HelperDied
from engine.spawn import HelperProcess

WORKER = "engine.advice.doctor.probe_worker"


class Probes:
    """The process, started with the first question."""

    def __init__(self, worker: str = WORKER) -> None:
        self._process = HelperProcess(worker, MEMORY_BYTES)

    def torch(self) -> TorchFacts:
        """What the installed torch is for."""
        found = self._ask("torch")
        if found.get("problem"):
            return TorchFacts(problem=_sentence(found["problem"]))
        cards = tuple((str(name), str(capability)) for name, capability in found["cards"])
        return TorchFacts(str(found["cuda"]), tuple(map(str, found["archs"])), cards)

    def links(self) -> tuple[LinkRate, ...]:
        """How fast copies to each card are; () where it cannot be tried."""
        found = self._ask("links")
        return () if found.get("problem") else tuple(LinkRate(*one) for one in found["links"])

    def peers(self) -> PeerFacts | None:
        """Whether copies between cards arrive; None where it cannot be tried."""
        found = self._ask("peers")
        return None if found.get("problem") else PeerFacts(found["pairs"], tuple(found["lost"]), tuple(found["apart"]))

    def close(self) -> None:
        """Ends the process."""
        self._process.close()

    def _ask(self, what: str) -> dict[str, Any]:
        try:
            return self._process.request({"ask": what}, LIMIT_S)
        except HelperDied as error:
            return {"problem": str(error)}


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"
