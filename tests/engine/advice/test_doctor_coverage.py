"""What people are told to check is answered by rows that exist, or has a reason; the document says the same as the data."""

from __future__ import annotations

import re
from pathlib import Path

from engine.advice.doctor import coverage
from engine.advice.doctor.coverage import COVERAGE, as_markdown
from engine.advice.doctor.table import CHECKS

IDS = {check.id for check in CHECKS}
README = Path(coverage.__file__).with_name("README.md")


def test_each_item_is_answered_or_has_a_reason() -> None:
    for one in COVERAGE:
        assert set(one.by) <= IDS, one.item
        assert one.by or one.note, one.item
    assert len({one.item for one in COVERAGE}) == len(COVERAGE)


def test_the_document_says_the_same_as_the_data() -> None:
    assert as_markdown() in README.read_text(encoding="utf-8")


def test_the_document_names_every_row() -> None:
    text = README.read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| (D-[A-Z]+-\d+) \|", text, re.MULTILINE))
    assert listed == IDS
    assert set(re.findall(r"D-[A-Z]+-\d+", text)) <= IDS
