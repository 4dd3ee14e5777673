"""One card under watch: what it told last, whether it answers, and when it is asked again. No process, no thread: `gpu_watch`."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from engine.hardware.snapshot import GpuMaker, GpuProcess, GpuSample, GpuState, Missing

AGAIN_S = (1.0, 2.0, 5.0, 15.0, 60.0)
"""After a card's sensors did not answer, or brought their process down, it is asked again so much later."""
LOST_AGAIN_S = (5.0, 15.0, 60.0, 300.0)
"""After it was lost; the library is opened anew for it, since it finds no cards that come back."""
MAX_DEATHS = 5
DEATHS_WITHIN_S = 600.0
SELDOM_S = 5.0

NEVER_ASKED = "its sensors have not been asked yet"
HUNG = "its sensors do not answer"
CRASHED = "reading its sensors made the driver's library crash"
GONE = "the card does not answer any more: it fell off the bus, or needs a reset"
LATE = "its sensors are late; their process is busy or being started anew"
ASLEEP = "the system has switched it off to save power"
RESTING = "it is left alone so that it can be switched off to save power; it is watched once a model is loaded"
TOO_OFTEN = "; that was once too often, it is not asked again until the program is started anew"

_GAUGES = tuple(one.name for one in fields(GpuSample) if one.default is None and one.name != "node")
_DETAILS = ("processes", "link_read_bytes_per_s", "link_write_bytes_per_s")
_NOT_WATCHED = "it is measured only while its details are shown"
_OF_NVIDIA_ALONE = (
    "slow_reasons",
    "slow_bits",
    "link_replays",
    "ecc_errors",
    "persistence",
    "mig",
    "compute_capability",
    "nvlinks",
    "nvlinks_down",
    "performance_state",
    "bar1_total_bytes",
    "memory_reserved_bytes",
    "link_generation_card_max",
    "processes",
)
"""What nobody asks AMD's driver for."""
_NOT_OFFERED = {
    "nvidia": {"hotspot_temperature_c": "NVIDIA's driver does not tell it", "fan_rpm": "NVIDIA's driver tells percent alone"},
    "amd": {
        "margin_c": "AMD's driver does not tell it",
        "slowdown_temperature_c": "AMD's driver does not tell it",
        "shutdown_temperature_c": "AMD's driver does not tell it",
        "link_read_bytes_per_s": "AMD's counter of it holds its reader up for a second",
        "link_write_bytes_per_s": "AMD's counter of it holds its reader up for a second",
    }
    | dict.fromkeys(_OF_NVIDIA_ALONE, "it is not read of AMD's cards"),
}


@dataclass(slots=True)
class WatchedCard:
    """slot: how the sensor process of now calls it: a number among the library's cards, or its PCI address; None before they have
    met. not_before: monotonic seconds."""

    maker: GpuMaker
    pci: str
    name: str
    node: int | None = None
    key: str = ""
    slot: int | str | None = None
    may_sleep: bool = False
    state: GpuState = "silent"
    problem: str = NEVER_ASKED
    not_before: float = 0.0
    seldom_due: float = 0.0
    values: dict[str, Any] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    told_at: float | None = None
    n_failures: int = 0
    deaths: deque[float] = field(default_factory=deque)
    _missing: Missing | None = None

    def met(self, slot: int | str, answer: Mapping[str, Any]) -> None:
        """The process has met it: identity, and what never changes."""
        self.key, self.pci, self.name = answer["key"], answer["pci"] or self.pci, answer["name"] or self.name
        self.slot, self.seldom_due = slot, 0.0
        self._take(answer)

    def told(self, answer: Mapping[str, Any], now: float) -> bool:
        """It has answered; True when it did not before."""
        self._take(answer)
        self.told_at, self.n_failures = now, 0
        fresh = self.state != "ok"
        if fresh:
            self.state, self.problem, self._missing = "ok", "", None
        return fresh

    def _take(self, answer: Mapping[str, Any]) -> None:
        self.values.update(answer["values"])
        for name in answer["values"]:
            if self.reasons.pop(name, None) is not None:
                self._missing = None
        for name, reason in answer["missing"].items():
            if self.reasons.get(name) != reason or self.values.pop(name, None) is not None:
                self.reasons[name], self._missing = reason, None

    def forget_details(self) -> None:
        """They are not asked for any more."""
        for name in _DETAILS:
            if self.values.pop(name, None) is not None or self.reasons.pop(name, None) is not None:
                self._missing = None

    def failed(self, problem: str, now: float, *, deadly: bool) -> None:
        """It did not answer. deadly: its process ended with it, or had to be ended."""
        self._enter("silent", problem)
        self.not_before = now + AGAIN_S[min(self.n_failures, len(AGAIN_S) - 1)]
        self.n_failures += 1
        if deadly:
            self.deaths.append(now)
            while self.deaths[0] < now - DEATHS_WITHIN_S:
                self.deaths.popleft()
            if len(self.deaths) >= MAX_DEATHS:
                self._enter("off", problem + TOO_OFTEN)
                self.values.clear()

    def lost(self, now: float) -> None:
        """It is gone."""
        self.n_failures = self.n_failures + 1 if self.state == "lost" else 0
        self._enter("lost", GONE)
        self.not_before = now + LOST_AGAIN_S[min(self.n_failures, len(LOST_AGAIN_S) - 1)]
        self.values.clear()

    def rests(self, state: GpuState, problem: str) -> bool:
        """It is not asked for now; True when that is new. Values are none: nobody knows them."""
        fresh = self.state != state or self.problem != problem
        self._enter(state, problem)
        if fresh:
            self.values.clear()
            self.told_at = None
        return fresh

    def _enter(self, state: GpuState, problem: str) -> None:
        if (state, problem) != (self.state, self.problem):
            self.state, self.problem, self._missing = state, problem, None

    def due(self, now: float) -> bool:
        """Whether it is asked now."""
        return self.state not in ("off", "asleep", "resting") and now >= self.not_before

    def sample(self, now: float, patience_s: float) -> GpuSample:
        """What is known of it at that time. patience_s: values that are older are not of now."""
        age_s = 0.0 if self.told_at is None else max(0.0, now - self.told_at)
        state, problem = self.state, self.problem
        if state == "ok" and age_s > patience_s:
            state, problem = "silent", LATE
        values = dict(self.values)
        if "processes" in values:
            values["processes"] = tuple(GpuProcess(*one) for one in values["processes"])
        if "slow_reasons" in values:
            values["slow_reasons"] = tuple(values["slow_reasons"])
        slowdown, temperature = values.get("slowdown_temperature_c"), values.get("temperature_c")
        if "margin_c" not in values and slowdown is not None and temperature is not None:
            values["margin_c"] = slowdown - temperature
        return GpuSample(
            key=self.key or self.pci or self.name,
            pci=self.pci,
            name=self.name,
            maker=self.maker,
            node=self.node,
            state=state,
            problem=problem,
            age_s=age_s,
            missing=self._missing_of(values),
            **values,
        )

    def _missing_of(self, values: Mapping[str, Any]) -> Missing:
        if self._missing is None or len(self._missing) + len(values) != len(_GAUGES):
            fixed = _NOT_OFFERED.get(self.maker, {})
            self._missing = tuple((name, self._why(name, fixed)) for name in _GAUGES if name not in values)
        return self._missing

    def _why(self, name: str, fixed: Mapping[str, str]) -> str:
        if name in fixed:
            return fixed[name]
        if self.state != "ok":
            return self.problem
        return self.reasons.get(name) or (_NOT_WATCHED if name in _DETAILS else "it has not been read yet")
