"""The values that cross the door between application and engine."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NewType

from engine.api.expert_use import ExpertUse
from engine.hardware.process_sample import ForeignProcess, ProcessSample, ThreadSample
from engine.hardware.snapshot import (
    CoreSample,
    CpuSample,
    DiskSample,
    GpuProcess,
    GpuSample,
    GpuState,
    HardwareSnapshot,
    MemorySample,
    NodeSample,
    PressureSample,
    SensorCost,
    why,
)
from engine.hardware.topology import Core, CpuFacts, L3Group, Node, PciGpu, Topology
from engine.hardware.work import Astray, DeviceWork, EngineSample, OpTime, StrayWorker, TokenTrace, TraceKind, TraceSpan
from engine.placement.options import KvType, LoadOptions, NodeChoice, StreamExperts
from engine.placement.placement import Placement
from engine.sampling.params import RANGES, SamplingParams

__all__ = [
    "RANGES",
    "Astray",
    "ChatMessage",
    "Core",
    "CoreSample",
    "CpuFacts",
    "CpuSample",
    "DeviceShare",
    "DeviceWork",
    "DiskSample",
    "EngineSample",
    "ExpertUse",
    "FinishReason",
    "ForeignProcess",
    "GpuProcess",
    "GpuSample",
    "GpuState",
    "HardwareSnapshot",
    "HoldingInfo",
    "HoldingTrend",
    "KvType",
    "L3Group",
    "LoadOptions",
    "MemorySample",
    "ModelInfo",
    "Node",
    "NodeChoice",
    "NodeSample",
    "OpTime",
    "PciGpu",
    "Placement",
    "PoolMode",
    "PressureSample",
    "ProcessSample",
    "RequestId",
    "SamplingParams",
    "SensorCost",
    "StrayWorker",
    "StreamExperts",
    "ThreadSample",
    "TokenTrace",
    "Topology",
    "TraceKind",
    "TraceSpan",
    "Usage",
    "why",
]

RequestId = NewType("RequestId", str)
PoolMode = Literal["promote", "keep", "off"]
"""What pools of experts do: change with the text, hold what they hold, or stand aside."""
FinishReason = Literal["stop", "length", "cancelled", "done"]
"""`stop`: end of generation or a stop string; `length`: max_tokens or context; `done`: a command that generates nothing."""


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message of a conversation, as templates see it."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str


@dataclass(frozen=True, slots=True)
class DeviceShare:
    """What a loaded model holds on one device: `numa0`, `gpu0`; name: as its maker calls it, empty for the machine's memory."""

    device: str
    name: str
    nbytes: int


@dataclass(frozen=True, slots=True)
class HoldingInfo:
    """Bytes that a loaded model really holds on a device for one owner: `weights`, `derived`, `kv`, `kept windows`, `state`,
    `workspace`. mapped: pages of the file's own cache, which the system takes back when it needs them.
    """

    device: str
    owner: str
    nbytes: int
    mapped: bool = False


@dataclass(frozen=True, slots=True)
class HoldingTrend:
    """How what is held on a device develops: bytes now, and bytes a second over the last span_s seconds.

    sentence: where it grows without a reason that is known; else empty.
    """

    device: str
    nbytes: int
    slope_bytes_s: float
    span_s: float
    sentence: str = ""


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """A loaded or inspected model. `quant` is the label of the largest share of the bytes, e.g. Q4_1.

    `exact_formats`: formats of the file that are multiplied exactly, as f32, and so several times slower.
    derived_bytes: of weights that loading makes beside those of the file. devices: of a loaded model, where it lies.
    placement: of a loaded model, None for one that the reference run serves. holdings: what it really holds, by device and owner.
    fallbacks: which kernels are not the fast ones for their device, one sentence each. placement_notes: those of the warnings
    that are about the placement. tuned: what of workers and chunks comes from an earlier TuneWorkers, one sentence, "": nothing.
    prefill_chunk: of a loaded model, tokens of a prompt computed at once.
    """

    path: str
    name: str
    architecture: str
    quant: str
    n_params: int
    n_layers: int
    n_vocab: int
    file_bytes: int
    context_length: int
    n_ctx: int
    has_template: bool
    isa: str = ""
    warnings: tuple[str, ...] = ()
    exact_formats: tuple[str, ...] = ()
    derived_bytes: int = 0
    devices: tuple[DeviceShare, ...] = ()
    placement: Placement | None = None
    holdings: tuple[HoldingInfo, ...] = ()
    fallbacks: tuple[str, ...] = ()
    placement_notes: tuple[str, ...] = ()
    tuned: str = ""
    prefill_chunk: int = 0


@dataclass(frozen=True, slots=True)
class Usage:
    """Figures of one answer. n_reused: prompt tokens whose KV was already there. Rates are None when nothing was measured.

    experts: of a model with experts, which were passed on the way, prompt and answer.
    """

    n_prompt: int = 0
    n_reused: int = 0
    n_generated: int = 0
    ttft_s: float | None = None
    prefill_tok_s: float | None = None
    decode_tok_s: float | None = None
    token_ids: tuple[int, ...] = field(default=(), repr=False)
    experts: ExpertUse | None = None
