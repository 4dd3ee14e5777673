"""Bands of cards and processors by temperature, reasons for a low clock and state; and the power supply's budget."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from engine.advice.health import cpu_health, gpu_health, psu_budget
from engine.api.values import CpuSample, GpuSample, HardwareSnapshot

CARD = GpuSample("GPU-1", "0000:01:00.0", "RTX 3090", "nvidia", temperature_c=60.0, slow_bits=0)
CPU = CpuSample("EPYC", (1.0,), 61.0)


@pytest.mark.parametrize(
    ("change", "level", "words"),
    [
        ({}, "ok", ""),
        ({"slow_bits": 0x1 | 0x4}, "ok", ""),  # idle, power limit: normal
        ({"temperature_c": 79.9}, "ok", ""),
        ({"temperature_c": 80.0}, "warm", "80 °C"),
        ({"slow_bits": 0x20}, "warm", "because of heat"),
        ({"slow_bits": 0x80}, "warm", "power supply"),
        ({"temperature_c": 90.0}, "hot", "90 °C"),
        ({"temperature_c": 84.0, "slowdown_temperature_c": 83.0}, "hot", "slows itself down"),
        ({"temperature_c": 84.0, "margin_c": 0.0}, "hot", "slows itself down"),
        ({"temperature_c": 84.0, "margin_c": 6.0}, "warm", "84 °C"),
        ({"temperature_c": None, "missing": (("temperature_c", "this card does not offer it"),)}, "unknown", "does not offer it"),
        ({"temperature_c": None, "slow_bits": 0x40}, "warm", "because of heat"),
        ({"state": "lost", "problem": "it fell off the bus"}, "lost", "fell off the bus"),
        ({"state": "silent", "problem": "its sensors do not answer", "temperature_c": 95.0}, "unknown", "do not answer"),
        ({"state": "off", "problem": "not asked again"}, "unknown", "not asked again"),
        ({"state": "asleep", "problem": "switched off to save power", "temperature_c": None}, "ok", "save power"),
    ],
)
def test_the_band_of_a_card(change: dict[str, Any], level: str, words: str) -> None:
    found = gpu_health(replace(CARD, **change))
    assert found.level == level
    assert words in found.sentence
    assert bool(found.sentence) == bool(words)
    assert not words or found.sentence.startswith("RTX 3090: ")


@pytest.mark.parametrize(("celsius", "level"), [(None, "unknown"), (79.0, "ok"), (80.0, "warm"), (90.0, "hot")])
def test_the_band_of_the_processor(celsius: float | None, level: str) -> None:
    found = cpu_health(replace(CPU, temperature_c=celsius, missing=(("temperature_c", "no sensor in this virtual machine"),)))
    assert found.level == level
    assert ("virtual machine" in found.sentence) == (celsius is None)


def test_the_power_supply_counts_what_tells_its_power() -> None:
    cards = tuple(replace(CARD, key=str(i), power_w=300.0, power_limit_w=350.0) for i in range(2))
    snapshot = HardwareSnapshot(1.0, replace(CPU, package_power_w=100.0), 1, 2, 1, gpus=cards)
    assert psu_budget(0, snapshot) is None
    plenty = psu_budget(1200, snapshot)
    assert plenty is not None
    assert (plenty.limit_w, plenty.drawn_w, plenty.possible_w, plenty.is_tight) == (1200.0, 700.0, 800.0, False)
    assert plenty.sentence == "Cards and processors draw 700 of the 1,200 W that the power supply gives"
    near = psu_budget(770, snapshot)
    assert near is not None
    assert near.is_tight
    assert "short peaks" in near.sentence
    beyond = psu_budget(790, replace(snapshot, cpu=replace(CPU, package_power_w=100.0)))
    assert beyond is not None
    assert beyond.is_tight
    assert "at their limits they would draw 800 W" in beyond.sentence


def test_a_power_that_nobody_tells_is_said_to_be_left_out() -> None:
    snapshot = HardwareSnapshot(1.0, CPU, 1, 2, 1, gpus=(replace(CARD, power_w=250.0),))
    found = psu_budget(850, snapshot)
    assert found is not None
    assert found.drawn_w == 250.0
    assert "without the processors" in found.sentence
    assert psu_budget(850, replace(snapshot, gpus=())) is None
