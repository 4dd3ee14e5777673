"""Which parts of a loaded model are computed by other kernels than the fast ones of their device, one sentence each."""

from __future__ import annotations

from collections import Counter

from engine.placement.placement import Gpu
from engine.quants.formats import BY_ID
from engine.runtime.loaded_model import LoadedModel
from kernels_pyx.cpu_features import active_isa


def fallbacks_of(model: LoadedModel) -> tuple[str, ...]:
    """Formats that the CPU multiplies exactly, a CPU without vector kernels, GPUs that are played by the CPU."""
    placed = model.placed
    if placed is None:
        return ("The reference run computes everything, in numpy.",)
    found = []
    emulated = {Gpu(one.index) for one in model.source.machine.gpus if one.emulated}
    exact: Counter[str] = Counter()
    for name in placed.on_cpu:
        form = BY_ID.get(model.source.types.get(name, -1))
        if form is not None and form.path != "fast":
            exact[form.name] += 1
    for name, n in sorted(exact.items()):
        found.append(
            f"{n} {'tensor' if n == 1 else 'tensors'} of format {name} on the CPU are multiplied exactly, which is slow."
        )
    if placed.on_cpu and active_isa() == "scalar":
        found.append("The CPU computes without vector instructions.")
    played = sorted(str(device) for device in placed.names if device in emulated)
    if played:
        found.append(f"{', '.join(played)}: played by the CPU, with kernels in plain torch.")
    return tuple(found)
