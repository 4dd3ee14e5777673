"""`diagnose`: everything that the rules say of a window, what matters most first. Pure: the same window, the same words."""

from __future__ import annotations

from collections.abc import Sequence

from engine.advice.diagnosis.finding import ORDER, Finding
from engine.advice.diagnosis.rule import Rule
from engine.advice.diagnosis.table import RULES
from engine.advice.diagnosis.window import Window, percent_text

EXPLAINS: dict[str, frozenset[str]] = {
    "R-LOST": frozenset({"R-SENS"}),
    "R-SWAP": frozenset({"R-PSI"}),
    "R-DISK": frozenset({"R-PSI", "R-CPU-EFF", "R-KV-SPD"}),
    "R-THERM-G": frozenset({"R-GPU-BOUND", "R-POWER"}),
    "R-BRAKE": frozenset({"R-GPU-BOUND", "R-POWER", "R-THERM-G"}),
    "R-CONT": frozenset({"R-CPU-EFF", "R-IMB"}),
    "R-PIN": frozenset({"R-SMT", "R-CPU-EFF", "R-IMB"}),
    "R-SMT": frozenset({"R-CPU-EFF", "R-IMB"}),
    "R-NUMA-1": frozenset({"R-IMB", "R-CPU-EFF"}),
    "R-IMB": frozenset({"R-CPU-EFF"}),
    "R-PCIE-W": frozenset({"R-XFER", "R-PCIE-G"}),
    "R-VRAM-EXT": frozenset({"R-VRAM"}),
    "R-COLD": frozenset({"R-DISK"}),
}
"""What follows from a cause is not said beside it."""


def diagnose(window: Window, rules: Sequence[Rule] = RULES) -> tuple[Finding, ...]:
    """All findings, most important first. Without readings only facts speak."""
    found = [finding for rule in rules if (finding := rule.judge(window)) is not None]
    said = {one.id for one in found}
    explained = {other for one in said for other in EXPLAINS.get(one, ())}
    found = [one for one in found if one.id not in explained]
    return tuple(sorted(found, key=lambda one: ORDER.index(one.level)))


def balance(window: Window) -> str:
    """`Balanced: CPU 48 %, GPU 45 %, copies 7 %.` of a window in which tokens were decoded; "" where there is nothing to tell."""
    if window.is_stale or not window.decoding:
        return ""
    shares = [("CPU", window.cpu_share)]
    cards = [(f"GPU {one[3:]}" if len(window.cards) > 1 else "GPU", window.share(one)) for one in window.cards]
    parts = [f"{name} {percent_text(share)}" for name, share in (*shares, *cards) if share is not None]
    if window.cards and window.copy_share is not None:
        parts.append(f"copies {percent_text(window.copy_share)}")
    return f"Balanced: {', '.join(parts)}." if parts else ""
