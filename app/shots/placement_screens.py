"""The screens of the placement page: what it shows of a large model, and every state it can be in."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from PySide6.QtWidgets import QWidget

from app.shots.model_header import LatentShape
from app.shots.placement_stage import PlacementStage
from app.shots.screens import Frame
from engine.api.commands import ApplyPlacement, Generate
from engine.api.events import Failed, MigrationProgress, Queued, TokenDelta
from engine.api.pure import Gpu, UnitId
from engine.api.values import RequestId

GB = 1_000_000_000


class PlacementFrame(Frame):
    """Ends the stage with the picture."""

    def __init__(self, stage: PlacementStage) -> None:
        super().__init__(stage.page, "placement")
        self.stage = stage

    def shut_down(self) -> None:
        """Its threads end."""
        self.stage.close()


def _experts(*layers: int) -> tuple[UnitId, ...]:
    return tuple(UnitId("experts", layer) for layer in layers)


def _edited() -> PlacementStage:
    """Loaded, counted, with the experts of two layers moved to a card and three selected."""
    stage = PlacementStage()
    stage.load()
    stage.count_experts()
    stage.desk.move(_experts(3, 4), Gpu(1))
    stage.desk.split((5, 6, 7), 64)
    stage.controller.board.select(_experts(5, 6, 7))
    return stage


def placement() -> QWidget:
    """A model over two cards and two nodes, three cards selected."""
    return PlacementFrame(_edited())


def nothing() -> QWidget:
    """No model was chosen."""
    return PlacementFrame(PlacementStage())


def estimating() -> QWidget:
    """The header is being read."""
    stage = PlacementStage()
    stage.open()
    stage.controller.open(stage.path)
    return PlacementFrame(stage)


def over() -> QWidget:
    """What is planned does not fit."""
    stage = PlacementStage()
    stage.load()
    stage.count_experts()
    stage.desk.move(_experts(3, 4, 5, 6), Gpu(1))
    stage.settle(lambda: stage.desk.proposal is not None)
    return PlacementFrame(stage)


def while_generating() -> QWidget:
    """Changes wait while an answer is written."""
    stage = _edited()
    stage.bridge.submit(Generate(RequestId("chat"), prompt="x"))
    stage.client.tell(Queued(RequestId("chat"), 0))
    stage.client.tell(TokenDelta(RequestId("chat"), "x", 1, 1, 12.1))
    stage.settle(lambda: stage.bridge.state.kind == "generating")
    return PlacementFrame(stage)


def applying() -> QWidget:
    """Weights are on their way."""
    stage = _edited()
    stage.controller.apply()
    request = next(one.request_id for one in stage.client.commands if isinstance(one, ApplyPlacement))
    stage.client.tell(MigrationProgress(request, "weights", 5 * GB, 13 * GB))
    stage.settle(lambda: "13 GB" in stage.page.pending.text)
    return PlacementFrame(stage)


def failed() -> QWidget:
    """The placement could not be had."""
    stage = _edited()
    stage.controller.apply()
    request = next(one.request_id for one in stage.client.commands if isinstance(one, ApplyPlacement))
    sentence = "GPU 1 (RTX 3090) has 9.4 GB free and 13 GB are needed; move fewer layers there"
    stage.client.tell(Failed(request, "OutOfDeviceMemory", sentence))
    stage.settle(lambda: bool(stage.parts.apply.failure))
    return PlacementFrame(stage)


def device_lost() -> QWidget:
    """A card went away."""
    stage = PlacementStage()
    stage.load()
    stage.desk.set_lost(frozenset({Gpu(1)}))
    stage.settle(lambda: stage.desk.proposal is not None)
    return PlacementFrame(stage)


def dense() -> QWidget:
    """A model without experts."""
    stage = PlacementStage(LatentShape("Dense 32B", 40, 40, 4096, 32, 64_000, 16_384, q_rank=1024))
    stage.open()
    return PlacementFrame(stage)


def _with_pane(pane: str) -> Callable[[], QWidget]:
    def screen() -> QWidget:
        stage = _edited()
        frame = PlacementFrame(stage)
        stage.page.setVisible(True)
        stage.controller.show_pane(pane)
        return frame

    return screen


def longer_context() -> QWidget:
    """What four times the context costs."""
    frame = _with_pane("context")()
    assert isinstance(frame, PlacementFrame)
    pane = frame.stage.page.context
    frame.stage.settle(lambda: pane.slider.maximum() > 0)
    frame.stage.controller.context.propose(131_072)
    frame.stage.settle(lambda: not pane.take.isHidden())
    return frame


PLACEMENT: Mapping[str, Callable[[], QWidget]] = {
    "placement": placement,
    "placement_none": nothing,
    "placement_estimating": estimating,
    "placement_over": over,
    "placement_generating": while_generating,
    "placement_applying": applying,
    "placement_failed": failed,
    "placement_device_lost": device_lost,
    "placement_dense": dense,
    "placement_context": longer_context,
    "placement_compare": _with_pane("compare"),
    "placement_check": _with_pane("check"),
    "placement_command": _with_pane("command"),
}
