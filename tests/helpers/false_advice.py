"""Advice that goes around and is wrong or harmful. No fix and no step of ours may hold any of it."""

from __future__ import annotations

import re

FALSE_ADVICE = (
    r"OMP_NUM_THREADS\s*=\s*1",
    r"drop_caches",
    r"nvidia-smi\s+(-r\b|--gpu-reset)",
    r"fuser\s+-k",
    r"(stop|disable|kill|mask)\S*\s+\S*nvidia-persistenced",
    r"(stop|disable|mask)\s+\S*systemd-resolved",
    r"535\.129",
    r"cuda[- ]12[.-]1\b",
    r"glibc\s*2\.35",
    r"22\.04",
    r"pci=noaer|(disable|switch(ed)? off|turn(ed)? off)\s+AER|AER:?\s*Disabled",
    r"rope_(theta|freq_base)\s*(=|to|:)\s*10000\b",
    r"taskset\s+-c\s+0-7,16-23",
    r"numactl",
    r"intel_iommu=on(?!\s+iommu=pt)|amd_iommu=on(?!\s+iommu=pt)|(enable|switch on|turn on) the IOMMU",
    r"clear(ing)?\s+(the\s+)?CMOS",
    r"(disable|switch off|turn off)\S*\s+(\S+\s+)?C-states",
    r"C-?states?:?\s*Disabled|CPPC:?\s*(Enable:?\s*)?Disabled",
    r"(disable|switch off|turn off)\s+(SMT|hyper-?threading)|nosmt",
    r"module/pci/parameters/aspm",
    r"msc0000|ethtool",
    r"DDR4-3600",
    r"Gear Down",
    r"--use-f16",
    r"no-opengl-files",
    r"ModelTC",
    r"(remove|unplug|pull out)\s+the\s+sound",
    r"-DGGML_NATIVE|-march=core-avx2",
)
"""Patterns, whatever their case."""

_PATTERN = re.compile("|".join(f"(?:{one})" for one in FALSE_ADVICE), re.IGNORECASE)


def false_advice_in(text: str) -> str:
    """The first piece of false advice in a text; empty when there is none."""
    found = _PATTERN.search(text)
    return found.group(0) if found else ""
