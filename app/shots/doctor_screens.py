"""The screens of the doctor's page: everything well, warnings, a problem opened, a run under way, and a walk from a symptom."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from PySide6.QtWidgets import QWidget

from app.doctor.doctor_page import DoctorPage
from app.doctor.rows import CheckView
from app.shots.doctor_script import FAILED_CHECK, NARROW_LINK, WARNINGS, WELL
from app.shots.screens import Frame
from app.windows.doctor_symptoms import DoctorSymptoms
from engine.advice.symptom_walk import Evidence, Said
from engine.advice.symptoms import TREE

WHEN = "checked at 14:02"
NARROW = (700, 900)


def _page(views: tuple[CheckView, ...], symptom: str = "") -> DoctorPage:
    page = DoctorPage()
    page.show_all(views, WHEN)
    said = {view.id: Said(view.status, f"{view.title}: {view.observed}.") for view in views}
    symptoms = DoctorSymptoms(page.symptoms, TREE, lambda: Evidence(said), page)
    if symptom:
        symptoms.choose(symptom)
        page.show_symptoms()
    return page


def _changed(*changed: CheckView) -> tuple[CheckView, ...]:
    """The machine that is well, with some rows as they are here."""
    by_id = {view.id: view for view in changed}
    rest = tuple(view for view in changed if view.id not in {one.id for one in WELL})
    return tuple(by_id.get(view.id, view) for view in WELL) + rest


def well() -> QWidget:
    """Nothing to do."""
    return Frame(_page(WELL), "doctor")


def warnings() -> QWidget:
    """It works, but slower than it could; the pane of symptoms beside it."""
    page = _page(_changed(*WARNINGS))
    page.show_symptoms()
    return Frame(page, "doctor")


def problem() -> QWidget:
    """A problem, opened."""
    page = _page(_changed(*WARNINGS, NARROW_LINK, FAILED_CHECK))
    frame = Frame(page, "doctor")
    page.reveal(NARROW_LINK.id)
    page.setFocus()
    return frame


def running() -> QWidget:
    """Results arrive; the others are of the run before."""
    views = _changed(*WARNINGS)
    page = _page(views)
    page.header.show_choice(all_checks=True)
    page.begin(len(views) + 6)
    for n, view in enumerate(views[:14], 1):
        page.add(view, n)
    return Frame(page, "doctor")


def symptom() -> QWidget:
    """A walk that the checks have answered to its end."""
    return Frame(_page(_changed(*WARNINGS, NARROW_LINK), "link"), "doctor")


def question() -> QWidget:
    """A walk that waits for the person."""
    known = tuple(replace(view, status="unknown", observed="") if view.id == "D-MEM-3" else view for view in WELL)
    return Frame(_page(known, "slow"), "doctor")


def narrow() -> QWidget:
    """The least width."""
    frame = Frame(_page(_changed(*WARNINGS)), "doctor")
    frame.resize(*NARROW)
    return frame


DOCTOR: Mapping[str, Callable[[], QWidget]] = {
    "doctor": well,
    "doctor_warnings": warnings,
    "doctor_problem": problem,
    "doctor_running": running,
    "doctor_symptom": symptom,
    "doctor_question": question,
    "doctor_narrow": narrow,
}
