"""DiagnosisFacts: what the diagnosis knows beside readings, gathered from the engine's events: the model, where it lies, what
went wrong. No Qt."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from engine.advice.diagnosis.finding import Action
from engine.advice.diagnosis.measured import Measured
from engine.advice.diagnosis.window import Facts, Invalid, Lost, Pace, Refused, Window
from engine.api.events import (
    Event,
    Failed,
    Finished,
    Holdings,
    ModelReady,
    ModelUnloaded,
    PlacementApplied,
    WorkersPinned,
    WorkersTuned,
)
from engine.api.values import GpuSample, ModelInfo

_DEVICE = re.compile(r"\b(?:gpu|GPU )(\d+)\b")
_REFUSED = re.compile(r"needs ([\d,]+) bytes on (?:gpu|GPU )(\d+)\b.*? and ([\d,]+) are free")
FRESH_TOKENS = 2000
"""Until then a conversation is short, and its pace the one that later ones are held against."""


@dataclass(frozen=True, slots=True)
class Asked:
    """info: of the loaded model; action: what its button is to do; measured: its steps now, None without; tok_s: of one answer
    alone, None where that is not known."""

    info: ModelInfo
    action: Action
    measured: Measured | None
    tok_s: float | None


class DiagnosisFacts:
    """now: the facts as they are. clock: monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.now = Facts()
        self._clock = clock

    @property
    def model(self) -> ModelInfo | None:
        """The loaded model, or the one that a lost device took along."""
        lost = self.now.lost
        return self.now.info or (None if lost is None else lost.info)

    def take(self, event: Event) -> bool:
        """One event. True: the model or where it lies is another, so that what was seen before tells nothing of it."""
        match event:
            case ModelReady(_, info):
                self.now = Facts(
                    topology=self.now.topology, info=info, loaded_s=self._clock(), ceilings=self.now.ceilings, tuned=info.tuned
                )
                return True
            case PlacementApplied(_, info) | WorkersPinned(_, info):
                self._lies(info)
                return True
            case ModelUnloaded():
                self.now = Facts(topology=self.now.topology, ceilings=self.now.ceilings, lost=self.now.lost)
                return True
            case Holdings(_, _, _, share):
                self.now = replace(self.now, off_node_share=share)
            case WorkersTuned():
                found = "Works with what was fastest of those tried here." if event.kept else ""
                self.now = replace(self.now, tuned=found)
            case Finished(_, reason, usage) if reason in ("stop", "length") and usage.n_generated:
                self.now = replace(self.now, n_answers=self.now.n_answers + 1)
            case Failed():
                self._failed(event)
        return False

    def _lies(self, info: ModelInfo) -> None:
        self.now = replace(self.now, info=info, fresh=None, off_node_share=None, foreign_bytes={}, refused=None, invalid=None)

    def _failed(self, event: Failed) -> None:
        refused, device = _REFUSED.search(event.message), _DEVICE.search(event.message)
        if event.kind == "DeviceLost":
            name = f"gpu{device[1]}" if device is not None else "gpu0"
            self.now = replace(self.now, lost=Lost(name, time.strftime("%H:%M"), event.message, self.model))
        elif event.kind == "InvalidNumbers":
            self.now = replace(self.now, invalid=Invalid(self._clock(), event.message))
        elif refused is not None:
            asked, free = (int(refused[i].replace(",", "")) for i in (1, 3))
            self.now = replace(self.now, refused=Refused(f"gpu{refused[2]}", asked, free, self._clock()))

    def measured(self, ceilings: Mapping[str, float], chunk: int) -> None:
        """What this machine gives at most, and how much of a prompt is read at once."""
        self.now = replace(self.now, ceilings=ceilings, chunk=chunk)

    def watch(self, window: Window) -> None:
        """Learns from a window: the pace while a conversation is short, and what others hold of cards when a model comes."""
        if self.now.info is None or window.newest is None:
            return
        held = {one.device: 0 for one in self.now.info.devices}
        for holding in self.now.info.holdings:
            held[holding.device] = held.get(holding.device, 0) + holding.nbytes
        known = dict(self.now.foreign_bytes)
        for name, gpu in ((window.device_name(one), one) for _, one in window.fresh_cards):
            if gpu.key not in known and held.get(name) and gpu.memory_used_bytes is not None and _is_told(gpu, window):
                known[gpu.key] = max(0, gpu.memory_used_bytes - held[name])
        if known != dict(self.now.foreign_bytes):
            self.now = replace(self.now, foreign_bytes=known)
        works = window.decoding
        rate = window.works_mean(lambda one: one.decode_tok_s)
        if works and rate and self.now.fresh is None and works[-1].kv_used_tokens <= FRESH_TOKENS and works[-1].n_answers == 1:
            self.now = replace(self.now, fresh=Pace(rate, works[-1].kv_used_tokens, window.attention_share))


def _is_told(gpu: GpuSample, window: Window) -> bool:
    """Whether the engine has said that a device is this card."""
    return any(one.card == gpu.key for work in window.works for one in work.devices)
