"""The rounds of questions that go to cards through the sensor process, and what is done when one goes wrong.

The library is absent, not loaded, or not the driver's: told, and tried again later. It hangs or crashes on a card: the process
is ended, and the next one leaves that card out for a while, for ever after five times. A card falls off the bus: the library is
opened anew now and then, and the card is known by its UUID when it comes back. Something else ends the process: there is another
one a second later. A card that the system has put to sleep is not woken.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from engine.errors import HelperDied
from engine.hardware.gpu_card import ASLEEP, CRASHED, HUNG, RESTING, SELDOM_S, WatchedCard
from engine.hardware.gpu_listing import has_driver
from engine.hardware.pci import devices_folder, is_asleep, read_gpus
from engine.hardware.sensor_worker import MEMORY_BYTES
from engine.hardware.snapshot import GpuSample
from engine.spawn import HelperProcess

log = logging.getLogger("engine")

READ_S = 1.75
"""Longer than any answer takes; after it a card's sensors count as hung, which is told within 3 s at one reading a second."""
MEET_S = 10.0
"""The first question to a card may make the driver start it up."""
START_S = 30.0
"""The driver of many cards without persistence mode takes that long."""
RESTART_S = (1.0, 2.0, 5.0, 15.0, 60.0)
LIBRARY_CRASHED = "the NVIDIA driver's library crashed while it was opened"
LIBRARY_HUNG = "the NVIDIA driver does not answer"
NO_DRIVER = "there is no NVIDIA driver"

PROBLEMS: Mapping[int, tuple[float, str]] = {
    9: (60.0, "an NVIDIA driver is installed but not loaded; restart the computer"),
    12: (300.0, NO_DRIVER),
    18: (300.0, "the NVIDIA driver was updated; restart the computer to see its sensors"),
    999: (60.0, "the NVIDIA driver does not know of its cards any more; in a container, start that anew"),
}
"""By the library's number when it is opened: (seconds until it is tried again, what to tell); sooner when a driver comes."""

_CRASHES = frozenset({signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE, signal.SIGILL})
_GONE = (15, 16, 999)
_WAKING = "it is being woken"


class GpuRounds:
    """The cards of a machine and the process that asks them. `round` is called by one thread, `samples` by any."""

    def __init__(self, root: Path, worker: str, changed: Callable[[], None]) -> None:
        """root: where /proc and /sys lie. changed: called when a card begins or ceases to answer."""
        self._root = root
        self._worker = worker
        self._changed = changed
        self._lock = threading.Lock()
        self._cards = _cards_on_the_bus(root)
        self._helper: HelperProcess | None = None
        self._opened = self._holds_library = False
        self._strangers: dict[int | str, WatchedCard | None] = {}
        self._before: dict[int | str, WatchedCard] = {}
        self._asked: WatchedCard | None = None
        self._busy = False
        self._not_before = self._library_not_before = 0.0
        self._had_driver = False
        self._n_restarts = 0
        self.problem = ""

    @property
    def pid(self) -> int | None:
        """Of the sensor process, while there is one."""
        helper = self._helper
        return None if helper is None else helper.pid

    @property
    def busy(self) -> bool:
        """Whether an answer is being waited for."""
        return self._busy

    def samples(self, patience_s: float) -> tuple[GpuSample, ...]:
        """What is known of each card now. patience_s: values that are older count as late."""
        now = time.monotonic()
        with self._lock:
            return tuple(card.sample(now, patience_s) for card in self._cards)

    def round(self, *, idle: bool, details: bool, seldom: bool = True) -> tuple[float, int]:
        """Asks every card that is due: (milliseconds that answers took in the process, cards that answered).

        idle: nobody computes on cards; those that the system may put to sleep are left alone. details: see `nvml.Card.read`.
        seldom: whether what changes slowly is asked too when it is due.
        """
        now = time.monotonic()
        self._see_who_sleeps(idle=idle)
        library, amd = self._wants_library(), [card for card in self._cards if card.maker == "amd" and card.due(now)]
        if not library and (self._holds_library or not amd):
            self.drop_process()
        if not library and not amd:
            return 0.0, 0
        if now < self._not_before:
            return 0.0, 0
        try:
            if library and self._may_open(now) and (not self._opened or self._someone_may_be_back(now)):
                self._open()
            if self._helper is None and not amd:
                return 0.0, 0
            self._meet_all(amd, doubtful=False)
            told = self._read_all(details=details, seldom=seldom)
            # Last, since the process may end with them: the others have their readings.
            self._meet_all(amd, doubtful=True)
            return told
        except HelperDied as error:
            self._bury(error)
            return 0.0, 0

    def drop_process(self) -> None:
        """Ends the process, and with it all use of the cards' drivers."""
        helper, self._helper = self._helper, None
        self._holds_library = False
        self._forget()
        if helper is not None:
            helper.close()

    def _forget(self) -> None:
        """What a new process will not know."""
        self._opened = False
        with self._lock:
            for card in self._cards:
                if card.slot is not None:
                    self._before[card.slot] = card
                    card.slot = None

    def _wants_library(self) -> bool:
        """Whether NVIDIA's library has anything to tell: a card that does not sleep, or traces of a driver without cards."""
        nvidia = [card for card in self._cards if card.maker == "nvidia"]
        if nvidia:
            return any(card.state not in ("asleep", "resting", "off") for card in nvidia)
        return has_driver(self._root)

    def _see_who_sleeps(self, *, idle: bool) -> None:
        for card in self._cards:
            if not card.pci or card.state == "off":
                continue
            with self._lock:
                if is_asleep(devices_folder(self._root) / card.pci):
                    fresh = card.rests("asleep", ASLEEP)
                elif card.may_sleep and idle:
                    fresh = card.rests("resting", RESTING)
                else:
                    fresh = card.state in ("asleep", "resting") and card.rests("silent", _WAKING)
            if fresh:
                if card.maker == "nvidia":
                    self._opened = False  # it is opened for other cards than before
                self._changed()

    def _may_open(self, now: float) -> bool:
        return now >= self._library_not_before or has_driver(self._root) != self._had_driver

    def _someone_may_be_back(self, now: float) -> bool:
        return any(card.state == "lost" and card.maker == "nvidia" and now >= card.not_before for card in self._cards)

    def _open(self) -> None:
        """Opens NVIDIA's library. Its cards are strangers until they have been met: their numbers are not those of before."""
        self._forget()
        sleeping = any(card.state in ("asleep", "resting") for card in self._cards)
        answer = self._request({"ask": "start", "leave_asleep": sleeping}, START_S)
        self._holds_library = True
        error = answer.get("error")
        if error is not None:
            pause, problem = PROBLEMS.get(error, (60.0, f"the NVIDIA driver does not answer ({answer['text']})"))
            self._library_not_before, self._had_driver = time.monotonic() + pause, has_driver(self._root)
            self._tell_problem(problem)
            if not any(card.maker == "amd" for card in self._cards):
                self.drop_process()
            return
        self._opened, self.problem = True, ""
        nvidia = sorted((card for card in self._cards if card.maker == "nvidia"), key=lambda card: card.pci)
        if sleeping:
            self._strangers = {card.pci: card for card in nvidia if card.state not in ("asleep", "resting")}
            return
        n = int(answer["n"])
        # The library numbers cards in the order of the bus; a guess serves to know whom to blame.
        in_order = nvidia if len(nvidia) == n and not self._before else [None] * n
        self._strangers = {slot: self._before.get(slot, in_order[slot]) for slot in range(n)}

    def _tell_problem(self, problem: str) -> None:
        self.problem = problem
        with self._lock:
            for card in self._cards:
                if card.maker == "nvidia" and card.state != "off":
                    card.rests("silent", problem)
        self._changed()

    def _meet_all(self, amd: list[WatchedCard], *, doubtful: bool) -> None:
        """Meets the strangers that are due: those that have never failed, or the others."""
        for card in amd:
            if card.slot is None and bool(card.n_failures) == doubtful:
                answer = self._ask(card, {"ask": "meet_amd", "slot": card.pci, "root": str(self._root)}, READ_S)
                with self._lock:
                    card.met(card.pci, answer)
        if not self._opened or not self._strangers:
            return
        for slot, guess in tuple(self._strangers.items()):
            if (guess is not None and guess.n_failures > 0) == doubtful and (guess is None or guess.due(time.monotonic())):
                self._meet(slot, guess)
        if doubtful:
            self._miss()

    def _meet(self, slot: int | str, guess: WatchedCard | None) -> None:
        """Makes the acquaintance of the card with that number or address."""
        if guess is None:
            guess = self._strangers[slot] = WatchedCard("nvidia", "", f"NVIDIA GPU {slot}")
            with self._lock:
                self._cards.append(guess)
        self._before[slot] = guess
        answer = self._ask(guess, {"ask": "meet", "slot": slot}, READ_S if guess.deaths else MEET_S)
        del self._strangers[slot]
        if answer["error"] is not None:
            self._refused(guess, answer)
            return
        with self._lock:
            card = self._known(answer) or guess
            if card is not guess and not guess.key and not guess.pci:
                self._cards.remove(guess)
            card.met(slot, answer)

    def _known(self, answer: Mapping[str, Any]) -> WatchedCard | None:
        """The card of that UUID, or of that address."""
        same = [card for card in self._cards if card.key == answer["key"]]
        return next(iter(same or [card for card in self._cards if card.pci == answer["pci"]]), None)

    def _miss(self) -> None:
        """What the library does not know any more is lost; what it never knew is not ours to use, as in a container."""
        expected = [card for card in self._strangers.values() if card is not None]
        for card in tuple(self._cards):
            if card.maker != "nvidia" or card.slot is not None or card in expected or card.state in ("asleep", "resting", "off"):
                continue
            now = time.monotonic()
            with self._lock:
                if not card.key and card.state != "lost":
                    self._cards.remove(card)
                elif card.state != "lost" or now >= card.not_before:
                    card.lost(now)

    def _read_all(self, *, details: bool, seldom: bool) -> tuple[float, int]:
        cost_ms, n_read = 0.0, 0
        for card in sorted(self._cards, key=lambda one: one.n_failures):
            now = time.monotonic()
            if card.slot is None or not card.due(now):
                continue
            slow = now >= card.seldom_due and (seldom or not card.seldom_due)
            tiers = ["often", "seldom"] if slow else ["often"]
            answer = self._ask(card, {"ask": "read", "slot": card.slot, "tiers": tiers, "details": details}, READ_S)
            if answer["error"] is not None:
                self._refused(card, answer)
                continue
            if slow:
                card.seldom_due = now + SELDOM_S
            with self._lock:
                fresh = card.told(answer, time.monotonic())
                if not details:
                    card.forget_details()
            if fresh:
                self._changed()
            cost_ms, n_read = cost_ms + float(answer["wall_ms"]), n_read + 1
        if n_read:
            self._n_restarts = 0
        return cost_ms, n_read

    def _refused(self, card: WatchedCard, answer: Mapping[str, Any]) -> None:
        """The library has no access to the card."""
        error, now = int(answer["error"]), time.monotonic()
        log.info("the card %s does not answer (error %d)", card.key or card.name, error)
        with self._lock:
            card.slot = None
            if error in _GONE:
                card.lost(now)
            else:
                card.failed(f"the driver does not let us see it ({answer.get('text', error)})", now, deadly=False)
        self._changed()

    def _ask(self, card: WatchedCard, message: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        """Asks on behalf of a card, so that it is known who is to blame."""
        self._asked = card
        answer = self._request(message, timeout_s)
        self._asked = None
        return answer

    def _request(self, message: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        if self._helper is None:
            self._helper = HelperProcess(self._worker, MEMORY_BYTES)
        self._busy = True
        try:
            return self._helper.request(message, timeout_s)
        finally:
            self._busy = False

    def _bury(self, error: HelperDied) -> None:
        """The process is gone: the card it was talking to has to wait; the others have a new process soon."""
        card, self._asked = self._asked, None
        now = time.monotonic()
        log.info("the sensor process ended at %s: %s", "no card" if card is None else card.key or card.name, error)
        self._not_before = now + RESTART_S[min(self._n_restarts, len(RESTART_S) - 1)]
        self._n_restarts += 1
        self._forget()
        if not (error.hung or error.signal in _CRASHES):
            return
        if card is None:
            self._tell_problem(LIBRARY_HUNG if error.hung else LIBRARY_CRASHED)
            return
        with self._lock:
            card.failed(HUNG if error.hung else CRASHED, now, deadly=True)
        self._changed()


def _cards_on_the_bus(root: Path) -> list[WatchedCard]:
    """The cards that /sys shows; their drivers are not asked."""
    names = {"nvidia": "NVIDIA GPU", "amd": "AMD GPU"}
    found = [gpu for gpu in read_gpus(root) if gpu.maker in names]
    return [WatchedCard(gpu.maker, gpu.pci, names[gpu.maker], gpu.node, may_sleep=gpu.may_sleep) for gpu in found]
