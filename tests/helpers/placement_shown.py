"""The placement page with its controller over a bench, shown."""

from __future__ import annotations

from app.windows.placement_controller import PlacementController
from engine.api.pure import Gpu, UnitId
from tests.helpers.placement_bench import PlacementBench


class Page:
    """The page with its controller, shown 1368 x 900."""

    def __init__(self, bench: PlacementBench) -> None:
        self.bench = bench
        self.controller = PlacementController(bench.parts)
        self.page = self.controller.page
        self.notices: list[str] = []
        self.controller.notice.connect(self.notices.append)
        self.controller.setParent(self.page)  # goes with it, and so do the timers of its parts
        bench.qtbot.addWidget(self.page)
        self.page.resize(1368, 900)
        self.page.show()

    def open(self) -> None:
        """Plans the model."""
        self.controller.open(self.bench.path)
        desk = self.bench.desk
        self.bench.qtbot.waitUntil(lambda: desk.state in ("ready", "does not fit") and desk.outline is not None, timeout=30_000)

    def load(self) -> None:
        """Loads it as planned and shows the page."""
        self.open()
        self.bench.load()
        self.controller.shown(True)

    def move(self, *layers: int) -> None:
        """Moves experts of layers to the second GPU."""
        assert self.bench.desk.move([UnitId("experts", layer) for layer in layers], Gpu(1))

    def figures(self) -> dict[str, str]:
        """The summary: label and what stands below it."""
        return {one.label: f"{one.value} {one.unit} {one.delta}".strip() for one in self.page.summary.figures}
