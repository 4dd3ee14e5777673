"""Rows about Qt: each in its states, from facts alone, and once from this process."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.doctor.qt_checks import qt_checks
from app.doctor.qt_facts import QtFacts, ScreenFact, WaitFact, read_facts
from app.preflight import Missing
from engine.advice.doctor.check import CheckResult
from engine.advice.doctor.context import Context
from engine.advice.doctor.table import run_checks
from tests.helpers.false_advice import false_advice_in

GOOD = QtFacts(
    platform="wayland",
    qt="6.11.3",
    pyside="6.11.3",
    families=frozenset({"Inter", "JetBrains Mono"}),
    chinese=("Noto Sans CJK SC",),
    input_plugins=("compose", "ibus"),
    screens=(ScreenFact(3840, 2160, 1.5),),
    wait=WaitFact(0.041, 0.03),
)


def results(facts: QtFacts, root: Path, lacking: dict[str, Missing] | None = None) -> dict[str, CheckResult]:
    rows = qt_checks(facts, root, (lacking or {}).get)
    return {result.id: result for result in run_checks(Context(), rows)}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A system with a graphics device, of Debian's family."""
    (tmp_path / "dev/dri").mkdir(parents=True)
    (tmp_path / "dev/dri/renderD128").touch()
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/os-release").write_text('ID=ubuntu\nID_LIKE=debian\nVERSION_ID="24.04"\n')
    return tmp_path


def test_all_is_well_on_a_desktop(root: Path) -> None:
    found = results(GOOD, root)
    assert {result.status for result in found.values()} == {"pass"}
    assert found["D-QT-1"].observed == "Qt 6.11.3, wayland"
    assert found["D-QT-2"].observed == "graphics device renderD128"
    assert found["D-QT-6"].observed == "3840 × 2160, 150 %"
    assert found["D-QT-7"].observed == "41 ms"


def test_without_a_display_what_needs_one_does_not_apply(root: Path) -> None:
    found = results(replace(GOOD, platform="offscreen"), root)
    assert {id for id, result in found.items() if result.status == "n/a"} == {"D-QT-2", "D-QT-4", "D-QT-6"}


@pytest.mark.parametrize(
    ("id", "facts", "status", "words"),
    [
        ("D-QT-1", replace(GOOD, pyside="6.12.0"), "fail", "6.12 ends the program"),
        ("D-QT-1", replace(GOOD, pyside="6.12.0", python=(3, 13)), "pass", ""),
        ("D-QT-2", replace(GOOD, environ={"LIBGL_ALWAYS_SOFTWARE": "1"}), "warn", "LIBGL_ALWAYS_SOFTWARE"),
        ("D-QT-3", replace(GOOD, chinese=()), "warn", "no font with Chinese"),
        ("D-QT-3", replace(GOOD, families=frozenset({"Inter"})), "warn", "JetBrains Mono"),
        ("D-QT-4", replace(GOOD, platform="xcb", environ={"QT_IM_MODULE": "fcitx"}), "warn", "fcitx is set"),
        ("D-QT-4", replace(GOOD, platform="xcb", environ={"XMODIFIERS": "@im=fcitx"}), "warn", "fcitx is set"),
        ("D-QT-4", replace(GOOD, platform="xcb", environ={"QT_IM_MODULE": "ibus", "XMODIFIERS": "@im=fcitx"}), "pass", "ibus"),
        ("D-QT-4", replace(GOOD, platform="xcb"), "pass", "none is set"),
        ("D-QT-5", replace(GOOD, encoding="ascii"), "warn", "ascii"),
        ("D-QT-6", replace(GOOD, environ={"QT_ENABLE_HIGHDPI_SCALING": "0"}), "warn", "keeps windows small"),
        ("D-QT-7", replace(GOOD, wait=WaitFact(3.1, 3.0, ("app/a.py:1 f",))), "warn", "app/a.py:1 f"),
        ("D-QT-7", replace(GOOD, wait=WaitFact(3.1, 0.1)), "warn", "Other programs had the processor"),
        ("D-QT-7", replace(GOOD, wait=WaitFact(0.4, 0.4)), "pass", "computed 400 ms of it"),
    ],
)
def test_what_is_wrong_is_said_with_a_way_out(root: Path, id: str, facts: QtFacts, status: str, words: str) -> None:
    result = results(facts, root)[id]
    assert result.status == status
    assert words in "\n".join((result.observed, result.why, result.evidence))
    if status in ("warn", "fail") and id != "D-QT-7" and "JetBrains" not in words:
        assert result.fixes and all(fix.changes and fix.undo and fix.command for fix in result.fixes)
    assert not any(false_advice_in(fix.command + fix.changes) for fix in result.fixes)


def test_no_graphics_device(tmp_path: Path) -> None:
    assert results(GOOD, tmp_path)["D-QT-2"].status == "warn"


def test_missing_libraries_name_their_packages(root: Path, tmp_path: Path) -> None:
    lacking = {"wayland": Missing("wayland", ("libwayland-cursor0",))}
    here = results(GOOD, root, lacking)["D-QT-8"]
    assert (here.status, here.observed) == ("warn", "libwayland-cursor0")
    assert here.fixes[0].command.endswith("install --no-install-recommends libwayland-cursor0")
    elsewhere = results(replace(GOOD, platform="xcb"), root, lacking)["D-QT-8"]
    assert (elsewhere.status, elsewhere.observed) == ("pass", "complete for xcb")
    without = results(replace(GOOD, platform="offscreen"), root, lacking)["D-QT-8"]
    assert (without.status, without.observed) == ("warn", "a window on wayland would lack something")
    (root / "etc/os-release").write_text("ID=fedora\n")
    assert results(GOOD, root, lacking)["D-QT-8"].fixes == ()


def test_facts_of_this_process(qtbot: QtBot) -> None:
    facts = read_facts(WaitFact(0.1, 0.05))
    assert facts.platform == "offscreen" and facts.qt.startswith("6.") and facts.screens
    assert "ibus" in facts.input_plugins
    quick = [check for check in qt_checks(facts) if check.quick]
    assert len(quick) == 7
    found = list(run_checks(Context(), quick))
    assert [result.id for result in found] == [f"D-QT-{n}" for n in range(1, 8)]
    assert all(result.why and result.observed for result in found)
