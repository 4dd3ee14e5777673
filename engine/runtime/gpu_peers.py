"""Whether one GPU can write into the memory of another, proven by a copy: some machines say that it can and lose what is written.

Behind an IOMMU that translates addresses, copies between cards may arrive nowhere without any error.
"""

from __future__ import annotations

import logging

import torch

from engine.runtime.gpu import GpuDevice, guarded

log = logging.getLogger("engine")

PROBE_WORDS = 1 << 20


def can_write(source: GpuDevice, target: GpuDevice) -> bool:
    """Whether what `source` writes into memory of `target` arrives. Switches the access on.

    Raises:
        DeviceLost.
    """
    if source.emulated or target.emulated:
        return source.emulated and target.emulated
    with guarded(source):
        if not torch.cuda.can_device_access_peer(source.index, target.index):
            return False
        sent = torch.arange(PROBE_WORDS, dtype=torch.int32, device=source.torch_device) * 2654435 + 97
        came = torch.zeros(PROBE_WORDS, dtype=torch.int32, device=target.torch_device)
        came.copy_(sent)
        torch.cuda.synchronize(source.torch_device)
        torch.cuda.synchronize(target.torch_device)
        arrived = bool((sent.cpu() == came.cpu()).all())
    log.info("%s to %s: checksum of %d bytes %s", source, target, 4 * PROBE_WORDS, "right" if arrived else "WRONG")
    return arrived
