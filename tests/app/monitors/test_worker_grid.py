"""The picture of the cores: where each stands, and how people choose the ones that work."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import QPoint, Qt
from pytestqt.qtbot import QtBot

from app.monitors.core_layout import laid_out
from app.monitors.worker_grid import WorkerGrid
from app.shots.worker_screens import machine
from engine.hardware.topology_read import read_topology
from tests.helpers import machines


@pytest.mark.parametrize("name", ["epyc7b13_2s", "epyc9374f_nps4", "threadripper_4ccd", "container_cpuset"])
@pytest.mark.parametrize("width", [320, 700, 1400])
def test_every_thread_stands_in_its_group_and_node(tmp_path: Path, name: str, width: int) -> None:
    topology = read_topology(machines.unpack(name, tmp_path))
    found = laid_out(topology, width)
    assert sorted(cell.cpu for cell in found.cells) == sorted(cpu for core in topology.cores for cpu in core.cpus)
    groups = {box.l3: box for box in found.boxes if box.l3 >= 0}
    heads = {box.node: box.y for box in found.boxes if box.l3 < 0}
    places = set()
    for cell in found.cells:
        box = groups[cell.l3]
        assert box.x <= cell.x and cell.x + cell.width <= box.x + box.width and box.node == cell.node
        assert box.y <= cell.y and cell.y + cell.height <= box.y + box.height <= found.height
        assert heads[cell.node] < box.y and not any(heads[cell.node] < y <= box.y for n, y in heads.items() if n != cell.node)
        places.add((cell.x, cell.y))
        assert found.at(cell.x + 1, cell.y + 1) == cell
    assert len(places) == len(found.cells) and found.at(width + 50, 0) is None


def test_arrows_reach_every_thread(tmp_path: Path) -> None:
    found = laid_out(read_topology(machines.unpack("epyc9374f_nps4", tmp_path)), 500)
    at, seen = found.cells[0].cpu, set()
    for _ in range(len(found.cells)):
        seen.add(at)
        at = found.step(at, 1, 0)
    assert len(seen) == len(found.cells) and found.step(at, 1, 0) == at
    below = found.step(found.cells[0].cpu, 0, 1)
    assert below != found.cells[0].cpu and found.step(below, 0, -1) == found.cells[0].cpu


def shown(qtbot: QtBot, allowed: tuple[int, ...] = ()) -> WorkerGrid:
    topology = machine(2, 2, 4, 2)
    grid = WorkerGrid(replace(topology, allowed_cpus=allowed) if allowed else topology)
    qtbot.addWidget(grid)
    grid.resize(700, 400)
    grid.show()
    return grid


def middle(grid: WorkerGrid, cpu: int) -> QPoint:
    cell = next(one for one in grid._layout.cells if one.cpu == cpu)
    return QPoint(cell.x + cell.width // 2, cell.y + cell.height // 2)


def test_the_mouse_paints_and_wipes(qtbot: QtBot) -> None:
    grid = shown(qtbot)
    with qtbot.waitSignal(grid.painted):
        qtbot.mousePress(grid, Qt.MouseButton.LeftButton, pos=middle(grid, 0))
    for cpu in (16, 1):
        qtbot.mouseMove(grid, middle(grid, cpu))
        grid.mouseMoveEvent(moved(grid, cpu))
    qtbot.mouseRelease(grid, Qt.MouseButton.LeftButton, pos=middle(grid, 1))
    assert grid.chosen == (0, 1, 16)
    qtbot.mousePress(grid, Qt.MouseButton.LeftButton, pos=middle(grid, 16))
    grid.mouseMoveEvent(moved(grid, 1))
    qtbot.mouseRelease(grid, Qt.MouseButton.LeftButton, pos=middle(grid, 1))
    assert grid.chosen == (0,)


def moved(grid: WorkerGrid, cpu: int) -> object:
    from PySide6.QtCore import QEvent, QPointF
    from PySide6.QtGui import QMouseEvent

    at, left = QPointF(middle(grid, cpu)), Qt.MouseButton.LeftButton
    return QMouseEvent(QEvent.Type.MouseMove, at, at, Qt.MouseButton.NoButton, left, Qt.KeyboardModifier.NoModifier)


def test_keys_do_all_that_the_mouse_does(qtbot: QtBot) -> None:
    grid = shown(qtbot)
    grid.setFocus(Qt.FocusReason.TabFocusReason)
    qtbot.keyClick(grid, Qt.Key.Key_Space)
    for _ in range(2):
        qtbot.keyClick(grid, Qt.Key.Key_Right, Qt.KeyboardModifier.ShiftModifier)
    assert grid.chosen == (0, 1, 16)
    qtbot.keyClick(grid, Qt.Key.Key_Space)
    assert grid.chosen == (0, 16)
    assert "Processor 1, core 1, thread 1 of its core, L3 group 0, node 0, does not work" in grid.accessibleDescription()
    qtbot.keyClick(grid, Qt.Key.Key_A, Qt.KeyboardModifier.ControlModifier)
    assert grid.chosen == tuple(range(16))
    qtbot.keyClick(grid, Qt.Key.Key_End)
    assert "Processor 31" in grid.accessibleDescription()


def test_what_may_not_be_used_stays_empty_and_says_why(qtbot: QtBot) -> None:
    grid = shown(qtbot, allowed=(0, 1, 2))
    qtbot.mouseClick(grid, Qt.MouseButton.LeftButton, pos=middle(grid, 5))
    assert grid.chosen == ()
    grid.choose((0, 5))
    assert grid.chosen == (0,)
    assert "outside the processors that this program may use" in grid.sentence(5)


def test_a_node_is_brought_into_view_and_use_is_told(qtbot: QtBot) -> None:
    grid = shown(qtbot)
    assert grid.look_at(1) > grid.look_at(0) == 0
    grid.look_at(1)
    assert "node 1" in grid.accessibleDescription()
    grid.set_use({3: 41.6})
    assert grid.sentence(3).endswith("42 % busy")
    assert "kept back by the worker plan" in grid.sentence(15)
