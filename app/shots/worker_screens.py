"""The screens of the picture book about the cores that work: two nodes, the sweep's table, and a list with a mistake."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QWidget

from app import theme
from app.monitors.worker_pane import WorkerPane
from app.shots.overlays import Outline, inside
from app.shots.screens import Frame, chat_page
from engine.api.events import TunedRate, WorkersTuned
from engine.api.values import Core, CpuFacts, L3Group, Node, RequestId, Topology
from engine.api.workers import planned_cpus

SIZE = (860, 700)


def machine(nodes: int, groups: int, cores: int, threads: int) -> Topology:
    """A machine of so many nodes, L3 groups each, cores each, threads each."""
    n = nodes * groups * cores
    made, l3 = list[Core](), list[L3Group]()
    for index in range(n):
        group, node = index // cores, index // (groups * cores)
        made.append(Core(index, tuple(index + n * t for t in range(threads)), node, node, group))
    for group in range(nodes * groups):
        l3.append(L3Group(group, group // groups, tuple(range(group * cores, (group + 1) * cores)), 32 << 20))
    cpus = tuple(range(n * threads))
    return Topology(
        sockets=nodes,
        nodes=tuple(
            Node(i, tuple(cpu for core in made if core.node == i for cpu in core.cpus), 256 << 30, (10,) * nodes)
            for i in range(nodes)
        ),
        l3_groups=tuple(l3),
        cores=tuple(made),
        cpus=cpus,
        n_cpus=len(cpus),
        allowed_cpus=cpus,
        quota_cores=None,
        memory_limit_bytes=None,
        cgroup_version=2,
        container=False,
        gpus=(),
        facts=CpuFacts("AMD EPYC 7543", "avx2", "acpi-cpufreq", "performance", None, False, False, "hidden"),
    )


class _Box(QWidget):
    """The window's own surface."""

    def __init__(self, pane: WorkerPane) -> None:
        super().__init__()
        self.resize(*SIZE)
        pane.setParent(self)
        pane.setGeometry(0, 0, *SIZE)

    def paintEvent(self, event: QPaintEvent) -> None:
        QPainter(self).fillRect(self.rect(), theme.color("bg"))


def _shown(pane: WorkerPane) -> Frame:
    frame = Frame(chat_page())
    x, y = (frame.width() - SIZE[0]) // 2, (frame.height() - SIZE[1]) // 2
    inside(frame, Outline(SIZE[0] + 2, SIZE[1] + 2), x - 1, y - 1)
    inside(frame, _Box(pane), x, y)
    return frame


def _pane(topology: Topology) -> WorkerPane:
    pane = WorkerPane(topology)
    plan = planned_cpus(topology)
    pane.set_working(plan)
    pane.grid.set_use({cpu: 12.0 + 83.0 * ((cpu * 7) % 10) / 10 if cpu in plan else 3.0 * (cpu % 4) for cpu in topology.cpus})
    return pane


def workers() -> QWidget:
    """The worker plan of two nodes, at work."""
    return _shown(_pane(machine(2, 4, 8, 2)))


def workers_tuned() -> QWidget:
    """What a sweep has found."""
    pane = _pane(machine(1, 2, 8, 2))
    decode = ((8, 21.4), (12, 26.9), (15, 27.2), (16, 26.1), (32, 19.8))
    prefill = ((128, 214.0), (256, 251.0), (512, 262.0))

    def rates(values: tuple[tuple[int, float], ...], n: int) -> tuple[TunedRate, ...]:
        return tuple(TunedRate(setting, tok_s, 0.011, n) for setting, tok_s in values)

    pane.tuning.show_result(WorkersTuned(RequestId("shot"), rates(decode, 3), rates(prefill, 2), 12, 512, 5.1, kept=True))
    return _shown(pane)


def workers_mistake() -> QWidget:
    """A list that names a processor which is not there."""
    pane = _pane(machine(1, 1, 8, 1))
    pane.list.setText("0-7,16-23")
    pane.list.textEdited.emit(pane.list.text())
    return _shown(pane)


WORKERS: Mapping[str, Callable[[], QWidget]] = {
    "workers": workers,
    "workers_tuned": workers_tuned,
    "workers_mistake": workers_mistake,
}
