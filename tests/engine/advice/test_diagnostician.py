"""Findings last before they are shown, stay for a while, and are dismissed for good."""

from __future__ import annotations

from collections.abc import Sequence

from engine.advice.diagnosis.diagnostician import Diagnostician
from engine.advice.diagnosis.finding import Finding
from engine.advice.diagnosis.window import Facts, Invalid, Lost, Reading
from tests.helpers.windows import card, facts, hybrid, snapshot, with_cards, work

HEALTHY = [(with_cards(card()), hybrid(0.5, 0.4))]
HOT = with_cards(card(slow_bits=0x40))


def shown(doctor: Diagnostician, seconds: Sequence[int], *, hot: bool, known: Facts | None = None) -> list[tuple[Finding, ...]]:
    """What is shown at each of these seconds."""
    each, works = (HOT if hot else with_cards(card())), hybrid(0.5, 0.4)
    return [doctor.push(Reading(each(i), works(i)), known or facts(1)) for i in seconds]


def test_a_finding_is_shown_after_it_lasted_and_leaves_later() -> None:
    doctor = Diagnostician()
    before = shown(doctor, range(10), hot=False)
    during = shown(doctor, range(10, 30), hot=True)
    after = shown(doctor, range(30, 60), hot=False)
    assert not any(before)
    first = next(i for i, one in enumerate(during) if one)
    assert 5 <= first <= 8
    assert all(one[0].id == "R-THERM-G" for one in during[first:])
    gone = next(i for i, one in enumerate(after) if not one)
    # The window still holds heat for most of its span, then the finding stays for LEAVE_S.
    assert 10 <= gone <= 19
    assert not any(after[gone:])


def test_what_flickers_is_never_shown() -> None:
    doctor = Diagnostician()
    for i in range(60):
        crowd = 3 if i % 4 == 0 else 0
        assert doctor.push(Reading(snapshot(i), work(i, n_waiting=crowd)), facts()) == ()


def test_facts_are_shown_at_once() -> None:
    doctor = Diagnostician()
    found = doctor.push(Reading(snapshot(0), work(0)), facts(lost=Lost("gpu0", "14:02")))
    assert [one.id for one in found] == ["R-LOST"]
    assert [one.id for one in Diagnostician().look(facts(lost=Lost("gpu0", "14:02")), 5.0)] == ["R-LOST"]


def test_two_at_most_and_what_is_dismissed_stays_quiet() -> None:
    doctor = Diagnostician()
    each = with_cards(card(slow_bits=0x40, memory_free_bytes=1000))
    works = hybrid(0.5, 0.4, n_waiting=4)
    for i in range(20):
        found = doctor.push(Reading(each(i), works(i)), facts(1))
    assert [one.id for one in found] == ["R-THERM-G", "R-VRAM"]
    doctor.dismiss(found[0])
    assert [one.id for one in doctor.findings] == ["R-VRAM", "R-QUEUE"]
    for i in range(20, 60):
        found = doctor.push(Reading(each(i), works(i)), facts(1))
    assert [one.id for one in found] == ["R-VRAM", "R-QUEUE"]


def test_readings_that_stop_are_told_and_silence_the_rest() -> None:
    doctor = Diagnostician()
    shown(doctor, range(20), hot=True)
    told = [doctor.look(facts(1), 119.0 + i) for i in range(30)]
    first = next(i for i, one in enumerate(told) if any(f.id == "R-SENS" for f in one))
    assert first <= 12
    assert [one.id for one in told[-1]] == ["R-SENS"]


def test_another_model_begins_anew() -> None:
    doctor = Diagnostician()
    assert shown(doctor, range(20), hot=True)[-1]
    doctor.forget()
    assert doctor.findings == ()
    assert not any(shown(doctor, range(20, 25), hot=True))


def test_invalid_numbers_are_first_at_once_and_stay_for_a_window() -> None:
    doctor = Diagnostician()
    shown(doctor, range(20), hot=True)
    known = facts(1, invalid=Invalid(119.5, "layer 7"))
    after = shown(doctor, range(20, 60), hot=True, known=known)
    assert [one.id for one in after[0]] == ["R-NAN", "R-THERM-G"]
    gone = next(i for i, found in enumerate(after) if found[0].id != "R-NAN")
    # For the window's span, then for as long as any finding stays.
    assert 18 <= gone <= 21
    assert [one.id for one in after[-1]] == ["R-THERM-G"]
