"""Checks with scripted results, for the doctor's page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from app.doctor.rows import CheckView
from engine.advice.doctor.check import Check, CheckResult, Fix
from engine.advice.doctor.context import Context

FIX = Fix("sudo sysctl kernel.numa_balancing=0", "until the next start", "sudo sysctl kernel.numa_balancing=1")
GOOD = CheckResult("D-CPU-1", "Processor", "Instruction set", "pass", "AVX2", "Layers on the CPU need it.")
SLOW = CheckResult("D-NUMA-2", "Memory", "Balancing", "warn", "it is on", "The kernel may move memory.", (FIX,), "/proc/sys: 1")
BAD = CheckResult("D-PCI-1", "PCIe", "Lanes", "fail", "4 of 16 lanes", "Fewer lanes carry less.")
NONE = CheckResult("D-CPU-6", "Processor", "Battery", "n/a", "does not apply", "No battery.")


def check(*results: CheckResult, quick: bool = True, before: Callable[[], None] | None = None) -> Check:
    """A check that finds these. before: what it does first, on its thread."""

    def run(_context: Context) -> CheckResult | tuple[CheckResult, ...]:
        if before is not None:
            before()
        return results if len(results) != 1 else results[0]

    return Check(results[0].id, results[0].group, results[0].title, run, quick)


def broken(id: str = "D-DSK-1") -> Check:
    """A check that fails itself."""

    def run(_context: Context) -> CheckResult:
        raise PermissionError("not for you")

    return Check(id, "Disk", "Disk of the models", run)


def view(result: CheckResult, **changed: object) -> CheckView:
    """A result as the page shows it."""
    from app.windows.doctor_controller import view_of

    return replace(view_of(result), **changed)  # type: ignore[arg-type]
