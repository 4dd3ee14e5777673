"""Every rule, one row each."""

from __future__ import annotations

from engine.advice.diagnosis.rule import Rule
from engine.advice.diagnosis.rules import context, cpu, device, gpu, link, memory, numa, strays, thermal

RULES: tuple[Rule, ...] = (
    Rule("R-LOST", "fatal", device.lost, needs_fresh=False, at_once=True),
    Rule("R-NAN", "wrong", device.invalid, needs_fresh=False, at_once=True),
    Rule("R-NAN", "wrong", device.repeated),
    Rule("R-SWAP", "external", memory.swap),
    Rule("R-DISK", "external", memory.disk),
    Rule("R-PSI", "external", memory.pressure),
    Rule("R-THERM-G", "external", thermal.heat),
    Rule("R-BRAKE", "external", thermal.brake),
    Rule("R-THERM-C", "external", thermal.processor_heat),
    Rule("R-CONT", "external", cpu.contended),
    Rule("R-VRAM-EXT", "external", memory.card_foreign),
    Rule("R-PCIE-W", "external", link.narrow),
    Rule("R-PCIE-G", "external", link.slow),
    Rule("R-POWER", "external", thermal.power_limit),
    Rule("R-CLK", "external", thermal.saving),
    Rule("R-SENS", "external", device.silent, needs_fresh=False),
    Rule("R-FRAG", "misplaced", memory.fragmented),
    Rule("R-PIN", "misplaced", strays.strayed),
    Rule("R-SMT", "misplaced", cpu.crowded),
    Rule("R-NUMA-1", "misplaced", numa.elsewhere),
    Rule("R-NUMA-2", "misplaced", numa.far_card),
    Rule("R-XFER", "misplaced", link.crossing),
    Rule("R-GPU-IMB", "misplaced", gpu.unequal),
    Rule("R-IMB", "misplaced", cpu.uneven),
    Rule("R-CPU-EFF", "misplaced", cpu.inefficient),
    Rule("R-GPU-STARVE", "misplaced", gpu.starving),
    Rule("R-VRAM", "capacity", memory.card_full),
    Rule("R-KV-1", "capacity", context.context_full),
    Rule("R-CPU-BW", "capacity", cpu.bandwidth),
    Rule("R-CPU-COMP", "capacity", cpu.computing),
    Rule("R-GPU-BOUND", "capacity", gpu.limit),
    Rule("R-KV-SPD", "note", context.long_is_slow),
    Rule("R-QUEUE", "note", context.queue),
    Rule("R-PREFILL", "note", context.long_prompt),
    Rule("R-COLD", "note", context.cold),
)
"""Within a level, what stands first is said first: heat before the full memory that it may hide."""
