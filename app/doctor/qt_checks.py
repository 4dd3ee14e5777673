"""The checks about Qt: platform and version, drawing, fonts, input method, locale, scale, the longest wait, libraries.

The application registers them beside those of the engine. They judge facts that were read on the window's thread.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

from app.doctor.qt_facts import QtFacts
from app.i18n import filled, tr
from app.preflight import FONT_PACKAGE, Missing, missing, pyside_folder
from engine.advice.doctor.check import Check, CheckResult, Fix, Status
from engine.advice.doctor.context import Context

GROUP = "Window"
LONG_S, VERY_LONG_S = 0.25, 2.0
_CJK_FIX = Fix(
    f"sudo apt-get install --no-install-recommends {FONT_PACKAGE}",
    "installs fonts for Chinese, Japanese and Korean",
    f"sudo apt-get remove {FONT_PACKAGE}",
)


def qt_checks(
    facts: QtFacts, root: Path = Path("/"), lacking: Callable[[str], Missing | None] | None = None
) -> tuple[Check, ...]:
    """All of them over these facts. root: in front of what is read of the system; lacking: what a platform lacks of libraries."""
    find = _lacking if lacking is None else lacking
    rows: tuple[tuple[str, str, Callable[[Row], CheckResult], bool], ...] = (
        ("D-QT-1", tr("Doctor", "Qt and platform"), partial(_platform, facts), True),
        ("D-QT-2", tr("Doctor", "Drawing"), partial(_drawing, facts, root), True),
        ("D-QT-3", tr("Doctor", "Fonts"), partial(_fonts, facts), True),
        ("D-QT-4", tr("Doctor", "Input method"), partial(_input, facts), True),
        ("D-QT-5", tr("Doctor", "Locale"), partial(_locale, facts), True),
        ("D-QT-6", tr("Doctor", "Scale of the display"), partial(_scale, facts), True),
        ("D-QT-7", tr("Doctor", "Longest wait of the window"), partial(_wait, facts), True),
        ("D-QT-8", tr("Doctor", "Libraries of Qt"), partial(_libraries, facts, root, find), False),
    )
    return tuple(_check(id, title, judge, quick) for id, title, judge, quick in rows)


class Row:
    """What a check's result is made of: its id and title are known."""

    def __init__(self, id: str, title: str) -> None:
        self.id, self.title = id, title

    def result(self, status: Status, observed: str, why: str, fixes: tuple[Fix, ...] = (), evidence: str = "") -> CheckResult:
        """A result of this check."""
        return CheckResult(self.id, GROUP, self.title, status, observed, why, fixes, evidence)


def _check(id: str, title: str, judge: Callable[[Row], CheckResult], quick: bool) -> Check:
    def run(_context: Context) -> CheckResult:
        return judge(Row(id, title))

    return Check(id, GROUP, title, run, quick)


def _platform(facts: QtFacts, row: Row) -> CheckResult:
    observed = filled(tr("Doctor", "Qt %1, %2"), facts.qt, facts.platform)
    evidence = f"PySide6 {facts.pyside}\nPython {facts.python[0]}.{facts.python[1]}"
    version = tuple(int(part) for part in re.findall(r"\d+", facts.pyside)[:2])
    if version >= (6, 12) and facts.python < (3, 12):
        why = tr("Doctor", "PySide6 6.12 ends the program after some hundred signals on this Python.")
        fix = Fix(
            'pip install "PySide6-Essentials>=6.10.3,<6.12"',
            "the version of Qt in this environment",
            "pip install -U PySide6-Essentials",
        )
        return row.result("fail", observed, why, (fix,), evidence)
    return row.result("pass", observed, tr("Doctor", "The window is shown through it."), (), evidence)


def _drawing(facts: QtFacts, root: Path, row: Row) -> CheckResult:
    why = tr("Doctor", "Without a graphics device the processor draws all windows, and they may feel slow.")
    if not facts.has_display:
        return row.result("n/a", tr("Doctor", "no display"), why)
    devices = sorted(path.name for path in (root / "dev/dri").glob("renderD*"))
    evidence = f"/dev/dri: {', '.join(devices) or '-'}"
    if facts.environ.get("LIBGL_ALWAYS_SOFTWARE", "0") not in ("", "0"):
        fix = Fix(
            "unset LIBGL_ALWAYS_SOFTWARE",
            "programs started from this shell draw with the graphics card",
            "export LIBGL_ALWAYS_SOFTWARE=1",
        )
        observed = tr("Doctor", "by the processor, as LIBGL_ALWAYS_SOFTWARE asks")
        return row.result("warn", observed, why, (fix,), evidence)
    if not devices:
        return row.result("warn", tr("Doctor", "by the processor: no graphics device"), why, (), evidence)
    return row.result("pass", filled(tr("Doctor", "graphics device %1"), devices[0]), why, (), evidence)


def _fonts(facts: QtFacts, row: Row) -> CheckResult:
    why = tr("Doctor", "Without a font for them, Chinese, Japanese and Korean are rows of boxes.")
    own = [name for name in ("Inter", "JetBrains Mono") if name not in facts.families]
    evidence = "\n".join(facts.chinese[:6])
    if not facts.chinese:
        return row.result("warn", tr("Doctor", "no font with Chinese"), why, (_CJK_FIX,), evidence)
    if own:
        observed = filled(tr("Doctor", "missing of those that Layerdeck brings: %1"), ", ".join(own))
        return row.result("warn", observed, tr("Doctor", "Another font is used, and texts may not fit."), (), evidence)
    return row.result("pass", filled(tr("Doctor", "Inter, JetBrains Mono, %1"), facts.chinese[0]), why, (), evidence)


def _input(facts: QtFacts, row: Row) -> CheckResult:
    why = tr("Doctor", "Chinese, Japanese and Korean are written through it.")
    env = facts.environ
    asked = env.get("QT_IM_MODULE", "")
    wanted = asked or re.sub(r"^@im=", "", env.get("XMODIFIERS", "")) or env.get("GTK_IM_MODULE", "")
    evidence = "\n".join(f"{name}={env[name]}" for name in ("QT_IM_MODULE", "XMODIFIERS", "GTK_IM_MODULE") if name in env)
    if not facts.has_display:
        return row.result("n/a", tr("Doctor", "no display"), why, (), evidence)
    if facts.platform.startswith("wayland") and not asked:
        return row.result("pass", tr("Doctor", "by the desktop (text-input)"), why, (), evidence)
    if not wanted or wanted in ("none", "xim", "compose"):
        return row.result("pass", tr("Doctor", "none is set; the keyboard writes directly"), why, (), evidence)
    if asked in facts.input_plugins:
        return row.result("pass", asked, why, (), evidence)
    fix = Fix(
        "export QT_IM_MODULE=ibus",
        "Qt programs started from this shell speak ibus, which fcitx5 answers too",
        "unset QT_IM_MODULE",
    )
    return row.result("warn", filled(tr("Doctor", "%1 is set, but Qt has no plugin for it"), wanted), why, (fix,), evidence)


def _locale(facts: QtFacts, row: Row) -> CheckResult:
    why = tr("Doctor", "Names of files and of models may hold any character.")
    evidence = "\n".join(f"{name}={facts.environ[name]}" for name in ("LC_ALL", "LC_CTYPE", "LANG") if name in facts.environ)
    if facts.encoding.replace("-", "").lower() == "utf8":
        return row.result("pass", "UTF-8", why, (), evidence)
    fix = Fix("export LC_ALL=C.UTF-8", "programs started from this shell take all characters", "unset LC_ALL")
    return row.result("warn", facts.encoding, why, (fix,), evidence)


def _scale(facts: QtFacts, row: Row) -> CheckResult:
    why = tr("Doctor", "Text and pictures are drawn in the pixels of the screen.")
    evidence = "\n".join(
        f"{name}={value}" for name, value in sorted(facts.environ.items()) if name.startswith("QT_") and "IM" not in name
    )
    if not facts.screens or not facts.has_display:
        return row.result("n/a", tr("Doctor", "no display"), why, (), evidence)
    observed = "; ".join(f"{one.width} × {one.height}, {one.scale * 100:.0f} %" for one in facts.screens)
    off = [name for name in ("QT_ENABLE_HIGHDPI_SCALING", "QT_AUTO_SCREEN_SCALE_FACTOR") if facts.environ.get(name) == "0"]
    if off and any(one.width >= 3000 for one in facts.screens):
        fix = Fix(
            f"unset {' '.join(off)}", "windows of Qt started from this shell follow the scale of the screen", f"export {off[0]}=0"
        )
        return row.result(
            "warn", observed, filled(tr("Doctor", "%1 keeps windows small on this screen."), off[0]), (fix,), evidence
        )
    return row.result("pass", observed, why, (), evidence)


def _wait(facts: QtFacts, row: Row) -> CheckResult:
    wait = facts.wait
    observed = filled(tr("Doctor", "%1 ms"), f"{wait.seconds * 1000:,.0f}")
    why = tr("Doctor", "While the window waits for something, it takes no keys and paints nothing.")
    lines = [filled(tr("Doctor", "the window's thread computed %1 ms of it"), f"{wait.worked_s * 1000:,.0f}"), *wait.stack]
    evidence = "\n".join(lines) if wait.seconds >= LONG_S else ""
    if wait.seconds < LONG_S:
        return row.result("pass", observed, why, (), evidence)
    if wait.worked_s < 0.5 * wait.seconds:
        why = tr("Doctor", "Other programs had the processor, or the disk kept the window waiting.")
    return row.result("warn" if wait.seconds >= VERY_LONG_S else "pass", observed, why, (), evidence)


def _libraries(facts: QtFacts, root: Path, lacking: Callable[[str], Missing | None], row: Row) -> CheckResult:
    why = tr("Doctor", "Qt ends a program at once where a library of its platform is missing.")
    found = {platform: lacking(platform) for platform in dict.fromkeys((facts.platform, "xcb", "wayland"))}
    evidence = "\n".join(f"{name}: {', '.join(one.packages) if one is not None else 'complete'}" for name, one in found.items())
    here = found[facts.platform]
    elsewhere = {name: one for name, one in found.items() if one is not None and name != facts.platform}
    if here is not None:
        return row.result("warn", ", ".join(here.packages), why, _install(here.packages, root), evidence)
    if facts.has_display or not elsewhere:
        return row.result("pass", filled(tr("Doctor", "complete for %1"), facts.platform), why, (), evidence)
    observed = filled(tr("Doctor", "a window on %1 would lack something"), " / ".join(elsewhere))
    packages = tuple(sorted({package for one in elsewhere.values() for package in one.packages}))
    return row.result("warn", observed, why, _install(packages, root), evidence)


def _install(packages: tuple[str, ...], root: Path) -> tuple[Fix, ...]:
    """The line of apt, where the system has it."""
    try:
        release = (root / "etc/os-release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        release = ""
    if not re.search(r"^ID(_LIKE)?=.*(debian|ubuntu)", release, re.MULTILINE):
        return ()
    names = " ".join(packages)
    return (
        Fix(f"sudo apt-get install --no-install-recommends {names}", "installs these packages", f"sudo apt-get remove {names}"),
    )


def _lacking(platform: str) -> Missing | None:
    folder = pyside_folder()
    if folder is None or shutil.which("ldd") is None:
        return None
    found = missing(platform, folder, fonts=())
    packages = () if found is None else tuple(name for name in found.packages if name != FONT_PACKAGE)
    return Missing(platform, packages) if packages else None
