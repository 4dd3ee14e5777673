"""Which GPUs can write into the memory of others, proven by copies: some machines say that they can and lose what is written.

Behind an IOMMU that translates addresses, copies between cards may arrive nowhere without any error.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.placement.placement import Device, Gpu
from engine.runtime.gpu import GpuDevice, guarded

log = logging.getLogger("engine")

PROBE_WORDS = 1 << 22
"""Of four bytes; what goes wrong with cards goes wrong for whole pages, so that a few thousand of them tell."""

Carry = Callable[[GpuDevice, Tensor, Tensor], None]
"""(sender, what it has, where that goes on another device): enqueues nothing that outlasts the call."""


@dataclass(frozen=True, slots=True)
class Peers:
    """apart: (sender, receiver) of which one cannot write into the other's memory. notes: why, a sentence a pair."""

    apart: frozenset[tuple[Device, Device]]
    notes: tuple[str, ...]


def by_engine(sender: GpuDevice, sent: Tensor, came: Tensor) -> None:
    """A copy as the driver makes it; the first one switches on the access."""
    came.copy_(sent)
    sender.synchronize()


def by_kernel(sender: GpuDevice, sent: Tensor, came: Tensor) -> None:
    """A copy by a kernel of the sender, as exchanges are made. After `by_engine`, without which it may not."""
    if sender.emulated:
        came.copy_(sent)
        return
    # Emulated devices need no Triton.
    from engine.triton_kernels.pointwise import rows

    with torch.cuda.device(sender.torch_device):
        first = torch.zeros(1, dtype=torch.int32, device=sender.torch_device)
        rows(sent[None].view(torch.float32), first, came[None].view(torch.float32))
    sender.synchronize()


WAYS: tuple[Carry, ...] = (by_engine, by_kernel)


def try_peers(devices: Sequence[GpuDevice], ways: Sequence[Carry] | None = None) -> Peers:
    """Tries every pair both ways. What is lost one way is not trusted the other way either.

    Raises:
        DeviceLost.
    """
    apart: set[tuple[Device, Device]] = set()
    notes = []
    for i, first in enumerate(devices):
        for second in devices[:i]:
            why = _why_apart(second, first, WAYS if ways is None else ways)
            if not why:
                continue
            apart |= {(Gpu(first.index), Gpu(second.index)), (Gpu(second.index), Gpu(first.index))}
            notes.append(f"{second} and {first} exchange through the memory of the machine, which is slower: {why}.")
            log.warning("%s", notes[-1])
    return Peers(frozenset(apart), tuple(notes))


def _why_apart(one: GpuDevice, other: GpuDevice, ways: Sequence[Carry]) -> str:
    """Why they cannot reach each other, or ""."""
    if one.emulated != other.emulated:
        return "only one of them is real"
    for sender, receiver in ((one, other), (other, one)):
        if not one.emulated and not torch.cuda.can_device_access_peer(sender.index, receiver.index):
            return f"{sender} has no access to {receiver}"
        for way in ways:
            if not _arrives(sender, receiver, way):
                return (
                    f"what {sender} wrote into {receiver} was not what arrived, as it happens where an IOMMU translates "
                    "addresses (iommu=pt as a kernel parameter, or IOMMU off, helps)"
                )
    return ""


def _arrives(sender: GpuDevice, receiver: GpuDevice, way: Carry) -> bool:
    with guarded(sender):
        sent = torch.arange(PROBE_WORDS, dtype=torch.int32, device=sender.torch_device) * 2654435 + 97
        sent &= 0x3FFFFFFF  # as f32 no NaN, whose bits some copies change
        came = torch.full((PROBE_WORDS,), -1, dtype=torch.int32, device=receiver.torch_device)
        sender.synchronize()
        receiver.synchronize()
        way(sender, sent, came)
        receiver.synchronize()
        return torch.equal(sent.cpu(), came.cpu())
