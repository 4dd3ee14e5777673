"""All rows, in the order in which they are shown, and the loop that runs them."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace

from engine.advice.doctor import bandwidth, cpu, disk, files, gpu, gpu_driver, memory, network, numa, pcie, system
from engine.advice.doctor.check import Check, CheckResult
from engine.advice.doctor.context import Context

log = logging.getLogger("engine")

CHECKS: tuple[Check, ...] = (
    cpu.instruction_set,
    cpu.workers,
    cpu.allowed,
    cpu.clock_policy,
    cpu.temperature,
    cpu.battery,
    cpu.steal,
    cpu.threads,
    memory.fits,
    bandwidth.channels,
    bandwidth.measured,
    bandwidth.chiplets,
    memory.swap,
    memory.locked,
    memory.reserved,
    memory.errors,
    memory.huge_pages,
    memory.pressure,
    numa.nodes,
    numa.balancing,
    numa.lopsided,
    numa.cards,
    numa.policy,
    gpu_driver.driver,
    gpu_driver.versions,
    gpu_driver.code,
    gpu.free_memory,
    gpu.power_limit,
    gpu.slowed,
    gpu.persistence,
    gpu.xids,
    gpu.asleep,
    gpu.shared,
    gpu_driver.compiler,
    pcie.width,
    pcie.under_load,
    pcie.errors,
    pcie.saving,
    pcie.window,
    pcie.between,
    pcie.nvlink,
    disk.model_disk,
    disk.scheduler,
    disk.free_space,
    files.header,
    files.parts,
    files.content,
    files.template,
    system.listener,
    system.engines,
    system.versions,
    system.locale_and_clock,
    system.out_of_memory,
    system.board,
    system.environment,
    system.program,
    system.container,
    network.download,
)


def quick(checks: Iterable[Check] = CHECKS) -> tuple[Check, ...]:
    """Those of the checks that take milliseconds."""
    return tuple(check for check in checks if check.quick)


def run_checks(context: Context, checks: Iterable[Check] = CHECKS) -> Iterator[CheckResult]:
    """Each row as soon as it is made, with the time it took. Never raises: a check that fails itself is `unknown`."""
    for check in checks:
        began = time.perf_counter()
        results = _results(check, context)
        ms = round((time.perf_counter() - began) * 1e3, 3)
        for result in results:
            yield replace(result, ms=ms)


def _results(check: Check, context: Context) -> tuple[CheckResult, ...]:
    try:
        found = check.run(context)
    except Exception as error:  # the edge of the doctor: one bad row must not take the others with it
        log.warning("check %s failed: %s", check.id, error, exc_info=True)
        why = f"The check itself failed ({type(error).__name__}: {error}); this is a fault of Layerdeck."
        return (CheckResult(check.id, check.group, check.title, "unknown", "not known", why),)
    return found if isinstance(found, tuple) else (found,)
