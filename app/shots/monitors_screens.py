"""The screens of the Monitors page: at work, at rest, without a card, with a hot one, and with sensors that do not answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from PySide6.QtWidgets import QWidget

from app.shots import monitors_machine as machine
from app.shots.monitors_stage import SECONDS, MonitorsStage
from app.shots.screens import Frame
from engine.api.values import EngineSample, HardwareSnapshot

NARROW = (760, 900)
_STOPPED = 0.7
"""Where in the shown minutes the answer ended."""


class MonitorsFrame(Frame):
    """Starts the page once it is in a window, and ends the stage with the picture."""

    def __init__(self, stage: MonitorsStage, fill: Callable[[MonitorsStage], None]) -> None:
        super().__init__(stage.page, "monitors")
        self.stage, self._fill = stage, fill

    def showEvent(self, event: object) -> None:
        if not self.stage.controller.is_seen:
            self._fill(self.stage)

    def shut_down(self) -> None:
        """Its threads end."""
        self.stage.close()


def new_stage(n_nodes: int = 2, n_cores: int = machine.N_CORES, threads: int = 2) -> MonitorsStage:
    """A page over the picture's machine."""
    built = machine.topology(n_nodes, n_cores, threads)
    return MonitorsStage(built, machine.facts(built))


def _working(at: float, stage: MonitorsStage) -> HardwareSnapshot:
    return machine.snapshot(at, stage.machine)


def generating() -> QWidget:
    """An answer is being written."""
    return MonitorsFrame(new_stage(), lambda stage: stage.remember(lambda at: _working(at, stage), machine.sample))


def idle() -> QWidget:
    """It was written some minutes ago."""
    stage = new_stage()
    stage.facts.told = replace(stage.facts.told, trace_time="14:02:11")
    end = _STOPPED * SECONDS

    def work(at: float) -> EngineSample:
        sample = machine.sample(at)
        return sample if at < end else _rested(sample)

    return MonitorsFrame(stage, lambda stage: stage.remember(lambda at: machine.snapshot(at, stage.machine, busy=at < end), work))


def _rested(sample: EngineSample) -> EngineSample:
    """Nothing is written, and the last step is remembered."""
    devices = tuple(
        replace(
            one, working_percent=0.0, token_ms=None, waiting_ms=None, read_bytes_per_s=None,
            in_bytes_per_s=0.0 if one.card else None, out_bytes_per_s=0.0 if one.card else None,
        )
        for one in sample.devices
    )  # fmt: skip
    return replace(sample, n_answers=0, n_decode_steps=0, n_decoded=0, decode_tok_s=None, step_ms=None, devices=devices)


def no_gpu() -> QWidget:
    """Everything runs on the processors."""
    stage = new_stage()
    stage.facts.told = replace(stage.facts.told, held={})

    def fill(stage: MonitorsStage) -> None:
        stage.remember(
            lambda at: replace(machine.snapshot(at, stage.machine, gpus=()), gpu_problem="No NVIDIA driver is installed."),
            lambda at: machine.sample(at, n_gpus=0),
        )

    return MonitorsFrame(stage, fill)


def one_hot() -> QWidget:
    """Four cards, one of them hot."""

    def fill(stage: MonitorsStage) -> None:
        stage.remember(lambda at: machine.snapshot(at, stage.machine, gpus=machine.hot(machine.cards(at))), machine.sample)

    return MonitorsFrame(new_stage(), fill)


def silent() -> QWidget:
    """The driver does not answer; the rest does."""

    def reading(at: float, stage: MonitorsStage) -> HardwareSnapshot:
        gpus = machine.cards(at)
        return machine.snapshot(at, stage.machine, gpus=machine.silent(gpus) if at > SECONDS - 12 else gpus)

    return MonitorsFrame(new_stage(), lambda stage: stage.remember(lambda at: reading(at, stage), machine.sample))


def recording() -> QWidget:
    """What is shown stands still while a file is written; two gauges are pinned."""

    def fill(stage: MonitorsStage) -> None:
        stage.remember(lambda at: _working(at, stage), machine.sample)
        stage.settings.set("monitors.pinned", ("gpu/GPU-2/temperature_c", "device/numa0/read_bytes_per_s"))
        stage.monitors.record()
        stage.controller.toggle_pause()

    return MonitorsFrame(new_stage(), fill)


def many() -> QWidget:
    """Eight nodes of 16 cores: the page scrolls."""

    def fill(stage: MonitorsStage) -> None:
        stage.remember(lambda at: _working(at, stage), lambda at: machine.sample(at, n_nodes=8))

    return MonitorsFrame(new_stage(8, 16), fill)


MONITORS: Mapping[str, Callable[[], QWidget]] = {
    "monitors": generating,
    "monitors_idle": idle,
    "monitors_no_gpu": no_gpu,
    "monitors_hot": one_hot,
    "monitors_silent": silent,
    "monitors_recording": recording,
    "monitors_many": many,
}
