"""Rows about whether cards can be computed on: driver, versions, and code for the card."""

from __future__ import annotations

import shutil

from engine.advice.doctor.check import Fix, Outcome, count, failed, listed, passed, row, unknown, warned, without_object
from engine.advice.doctor.context import Context
from engine.advice.doctor.drivers import LEAST_DRIVER, driver_version, runs_on
from engine.advice.doctor.system_facts import os_release

GROUP = "Graphics cards"
NO_NVIDIA = "This machine has no card of NVIDIA's, the only ones that models are computed on."
RESTART = Fix("", "restart the computer", "")
INSTALL = {
    "ubuntu": Fix(
        "sudo ubuntu-drivers install", "installs the driver that the distribution recommends", "sudo apt-get remove 'nvidia-*'"
    ),
    "debian": Fix(
        "sudo apt-get install nvidia-driver",
        "installs the driver of the distribution (section non-free)",
        "sudo apt-get remove nvidia-driver",
    ),
}
OTHERWISE = Fix("", "install NVIDIA's driver as your distribution describes it", "remove its packages")
IN_CONTAINER = Fix(
    "docker run --gpus all ...",
    "on the host: gives the container the host's cards, where NVIDIA's container toolkit is installed; start it anew with this",
    "start it without the option",
)


def _driver_fix(context: Context) -> Fix:
    release = os_release(context.root)
    family = (release.get("ID", ""), *release.get("ID_LIKE", "").split())
    return next((INSTALL[name] for name in family if name in INSTALL), OTHERWISE)


def _has_nvidia(context: Context) -> bool:
    if any(card.maker == "nvidia" for card in context.topology.gpus) or driver_version(context.root):
        return True
    return context.snapshot is not None and any(gpu.maker == "nvidia" for gpu in context.snapshot.gpus)


def _unusable(context: Context, observed: str, why: str, fix: Fix, evidence: str) -> Outcome:
    """A problem for a model that is to lie on cards; otherwise all runs on the processor, which is slower."""
    planned = context.model is not None and bool(context.model.gpu_bytes)
    return (failed if planned else warned)(observed, why, fix, evidence=evidence)


@row("D-GPU-1", GROUP, "Driver")
def driver(context: Context) -> Outcome:
    """Whether NVIDIA's driver is loaded and its library answers."""
    if not _has_nvidia(context):
        others = [card.maker for card in context.topology.gpus]
        why = f"{NO_NVIDIA} There is one of {others[0].upper()}'s." if others else NO_NVIDIA
        return without_object(f"{why} Everything runs on the processor.")
    version, snapshot = driver_version(context.root), context.snapshot
    evidence = "/sys/module/nvidia/version, /proc/driver/nvidia/version, NVML"
    problem = snapshot.gpu_problem if snapshot else ""
    if version is None and (problem.startswith("there is no") or (context.root / "sys/module").is_dir()):
        fix = IN_CONTAINER if context.topology.container else _driver_fix(context)
        return _unusable(context, "no driver", "There is a card, and no driver to compute on it with.", fix, evidence)
    if problem:
        return _unusable(context, version or "installed", f"{problem[0].upper()}{problem[1:]}.", RESTART, evidence)
    if version is None:
        return unknown("The system does not tell of its drivers.", evidence)
    if snapshot is None:
        return unknown("The driver is loaded; its library was not asked.", evidence)
    cards = [gpu for gpu in snapshot.gpus if gpu.maker == "nvidia"]
    silent = [f"{gpu.name}: {gpu.problem}" for gpu in cards if gpu.state in ("silent", "off")]
    if silent and len(silent) == len(cards):
        return unknown(f"{listed(silent)}.", evidence)
    if silent:
        return warned(version or "installed", f"{listed(silent)}.", RESTART, evidence=evidence)
    return passed(f"{version or 'installed'}, {count(len(cards), 'card')}", evidence=evidence)


@row("D-GPU-2", GROUP, "Driver and CUDA")
def versions(context: Context) -> Outcome:
    """The driver against the oldest one that the installed torch can run on; newer ones are always fine."""
    if not _has_nvidia(context):
        return without_object(NO_NVIDIA)
    version, cuda = driver_version(context.root), context.torch_cuda
    if not context.live and not cuda:
        return unknown("It can only be told on the machine itself.")
    if cuda is None:
        fix = Fix("pip install 'layerdeck[gpu]'", "installs torch and Triton beside Layerdeck", "pip uninstall torch triton")
        return _unusable(context, "torch is not installed", "Cards cannot be computed on without it.", fix, "torch")
    if not cuda:
        fix = Fix(
            "pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/cu128",
            "replaces torch by a build for cards, some gigabytes",
            "pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/cpu",
        )
        return _unusable(context, "torch is built without CUDA", "This build computes on the processor alone.", fix, "torch")
    if version is None:
        return unknown("The driver does not tell its version.", "/proc/driver/nvidia/version")
    found, evidence = f"driver {version}, torch for CUDA {cuda}", "/sys/module/nvidia/version, torch/version.py"
    least = LEAST_DRIVER.get(int(cuda.partition(".")[0]))
    if least is None:
        return passed(found, "Which drivers it needs is not known here.", evidence=evidence)
    if int(version.partition(".")[0]) < least:
        why = f"Builds for CUDA {cuda.partition('.')[0]} need a driver of {least} or newer."
        return failed(found, why, _driver_fix(context), evidence=evidence)
    return passed(found, f"{least} or newer is needed.", evidence=evidence)


@row("D-GPU-3", GROUP, "Code for the card", quick=False)
def code(context: Context) -> Outcome:
    """Whether the installed torch holds code for each card's generation."""
    if not _has_nvidia(context):
        return without_object(NO_NVIDIA)
    if context.torch is None:
        return unknown("The installed torch was not asked.")
    torch = context.torch()
    if torch.problem:
        return unknown(f"{torch.problem}.")
    cards = list(torch.capabilities)
    if not cards and context.snapshot:
        cards = [(gpu.name, gpu.compute_capability) for gpu in context.snapshot.gpus if gpu.compute_capability]
    if not cards or not torch.archs:
        return unknown("The installed torch sees no card.")
    found, evidence = listed([f"{name}: {capability}" for name, capability in cards]), f"torch for {' '.join(torch.archs)}"
    without = [name for name, capability in cards if not runs_on(capability, torch.archs)]
    if not without:
        return passed(found, evidence=evidence)
    fix = Fix(
        "",
        "install a build of torch for this generation of cards: https://pytorch.org/get-started/locally",
        "install the old one",
    )
    return failed(found, f"The installed torch has no code for {listed(without)}.", fix, evidence=evidence)


@row("D-GPU-11", GROUP, "Compiler for kernels")
def compiler(context: Context) -> Outcome:
    """Triton builds a small launcher with a C compiler when it starts."""
    if not _has_nvidia(context):
        return without_object(NO_NVIDIA)
    if not context.live:
        return unknown("It can only be looked for on the machine itself.")
    names = (context.env["CC"],) if context.env.get("CC") else ("gcc", "clang", "cc")
    found = next((path for name in names if (path := shutil.which(name, path=context.env.get("PATH")))), None)
    if found is not None:
        return passed(found, evidence="PATH")
    fix = Fix("sudo apt-get install gcc libc6-dev", "installs a C compiler", "sudo apt-get remove gcc libc6-dev")
    return failed("none", "Models on cards need one: Triton builds a small launcher with it.", fix, evidence="PATH")
