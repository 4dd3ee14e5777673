"""The instruction set as people read it."""

from __future__ import annotations

import pytest

from engine.api.machine import instruction_set, isa_label
from kernels_pyx.cpu_features import active_isa
from kernels_pyx.isas import ISAS


def test_it_is_the_one_the_kernels_use() -> None:
    assert instruction_set() == isa_label(active_isa())


@pytest.mark.parametrize("isa", ISAS)
def test_every_instruction_set_has_a_name(isa: str) -> None:
    assert isa_label(isa) != isa


def test_an_unknown_one_is_shown_as_it_is() -> None:
    assert isa_label("sve2") == "sve2"
