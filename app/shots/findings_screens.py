"""Pictures of what limits the machine, as the diagnosis finds it in the readings of the picture's machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from PySide6.QtWidgets import QWidget

from app.monitors.finding_strip import FindingStrip
from app.shots import monitors_machine as machine
from app.shots.monitors_screens import MonitorsFrame, new_stage
from app.shots.monitors_stage import SECONDS, MonitorsStage
from app.windows.findings_controller import OF_CARDS
from engine.advice.diagnosis.diagnose import balance
from engine.advice.diagnosis.diagnostician import Diagnostician
from engine.advice.diagnosis.window import Facts, Reading, spoken
from engine.api.values import GpuSample

LOOKED_S = 25
SCORES = "The last 5 predictions were off by 4 % (median); 9 of 10 of all 12 by at most 11 %."


def _picture(hot: bool) -> QWidget:
    """The page with what is found in its last seconds."""

    def fill(stage: MonitorsStage) -> None:
        facts = Facts(topology=stage.machine, ceilings={"numa0": 230e9, "numa1": 230e9})
        doctor, strip = Diagnostician(), FindingStrip()
        strip.resized.connect(stage.page.fit_notices)

        def cards(at: float) -> tuple[GpuSample, ...]:
            return machine.hot(machine.cards(at)) if hot else machine.cards(at)

        stage.remember(lambda at: machine.snapshot(at, stage.machine, gpus=cards(at)), machine.sample)
        for second in range(SECONDS - LOOKED_S, SECONDS):
            at = float(second)
            doctor.push(Reading(machine.snapshot(at, stage.machine, gpus=cards(at)), machine.sample(at)), facts)
        stage.page.set_strip(strip)
        strip.show_findings(doctor.findings, balance(doctor.window), SCORES)
        for i in range(len(doctor.findings)):
            strip.row(i).why.click()
        stage.page.told = frozenset(spoken(one.about) for one in doctor.findings if one.id in OF_CARDS)
        stage.controller.refresh()
        stage.page.fit_notices()

    return MonitorsFrame(new_stage(), fill)


FINDINGS: Mapping[str, Callable[[], QWidget]] = {
    "findings_hot": lambda: _picture(hot=True),
    "findings_balanced": lambda: _picture(hot=False),
}
