"""What a placement will take and how fast it will be: the values that people are shown before anything is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from engine.estimate.memory import DeviceBytes
from engine.placement.placement import Device, Placement

Limit = Literal["memory read", "computing", "launches", "meetings", "transfers", "room"]
"""What holds a step up on the device that limits it: reading memory, products, fixed costs of a GPU's or of the CPU's ops, what
crosses between devices; or that something does not fit."""


@dataclass(frozen=True, slots=True)
class DevicePrediction:
    """One device. attention, ffn (embedding and head among it), experts: bytes of weights, derived ones among them; kv: caches
    and states; buffers: the rest. They add up to `used`. owners: the same bytes by owner. decode_ms, prefill_ms: its work for one
    token, and for one chunk of a prompt."""

    device: Device
    name: str
    attention: int
    ffn: int
    experts: int
    kv: int
    buffers: int
    owners: DeviceBytes
    decode_ms: float
    prefill_ms: float

    @property
    def used(self) -> int:
        """Bytes, all together."""
        return self.owners.used

    @property
    def capacity(self) -> int:
        """Bytes that can be taken of it."""
        return self.owners.capacity

    @property
    def over(self) -> int:
        """Bytes that are missing, 0 where it fits."""
        return self.owners.over


@dataclass(frozen=True, slots=True)
class Prediction:
    """A placement as it will be. devices: those of the machine, used or not, nodes first.

    decode_tok_s, prefill_tok_s: as predicted, at the beginning of a context; bound_tok_s: what the busiest memory alone would
    allow if all else took no time. limit_device, limit: what holds it up. load_s: until it answers. exact: whether buffers are
    those of the lowered plans to the byte, or so far an approximation of them that `Planner.refine` makes exact. calibrated:
    whether the rates are this machine's own.
    """

    devices: tuple[DevicePrediction, ...]
    decode_tok_s: float
    prefill_tok_s: float
    load_s: float
    bound_tok_s: float
    limit_device: Device
    limit: Limit
    fits: bool
    n_ctx: int
    exact: bool = True
    calibrated: bool = False

    def of(self, device: Device) -> DevicePrediction:
        """One device. Raises: KeyError."""
        found = next((one for one in self.devices if one.device == device), None)
        if found is None:
            raise KeyError(str(device))
        return found

    @property
    def tightest(self) -> DevicePrediction:
        """The device in use with the least room: most bytes over, else fullest."""
        return max(self.devices, key=lambda one: (one.over, one.used / max(1, one.capacity)))


@dataclass(frozen=True, slots=True)
class ContextPlan:
    """What a longer context costs. extra_bytes: of caches, windows and tables of positions, all devices together; placement: the
    one that fits with it, the same where nothing has to move; moves: what leaves which device, a sentence each; fits: whether it
    can be had at all; sentence: all of it, for people."""

    n_ctx: int
    extra_bytes: int
    placement: Placement
    moves: tuple[str, ...]
    fits: bool
    sentence: str
