"""Where cards stand: nothing lies over anything else or beyond the edge, for any width and any number of devices."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from app.monitors.board_layout import Box, Places, place
from app.monitors.core_grid import place_cells


def placed(width: int, n_gpus: int, n_nodes: int, height: int = 844) -> Places:
    return place(width, height, 6, n_gpus, n_nodes, lambda _width: 340, 300)


def apart(a: Box, b: Box) -> bool:
    return a.x + a.width <= b.x or b.x + b.width <= a.x or a.y + a.height <= b.y or b.y + b.height <= a.y


@given(st.integers(480, 4000), st.integers(0, 16), st.integers(1, 16), st.integers(200, 3000))
@settings(max_examples=200, deadline=None)
def test_no_card_lies_over_another(width: int, n_gpus: int, n_nodes: int, height: int) -> None:
    found = placed(width, n_gpus, n_nodes, height)
    boxes = [*found.tiles, *found.gpus, *found.nodes, found.trace]
    assert (len(found.gpus), len(found.nodes)) == (n_gpus, n_nodes)
    assert all(apart(a, b) for a, b in combinations(boxes, 2))
    assert all(box.x >= 0 and box.x + box.width <= width and box.y + box.height <= found.height for box in boxes)
    assert all(box.height >= 340 for box in found.nodes)
    assert found.trace.height >= 300


def test_the_usual_machine_fills_the_window() -> None:
    found = placed(1368, 4, 2)
    assert len({box.y for box in found.gpus}) == 1
    assert found.trace.y == found.nodes[0].y
    assert found.height == 844


def test_without_cards_nodes_take_the_width() -> None:
    found = placed(1368, 0, 2)
    assert found.nodes[1].x + found.nodes[1].width == 1348
    assert found.trace.y > found.nodes[0].y
    assert found.gpu_note is not None


def test_many_devices_stand_in_rows() -> None:
    found = placed(1368, 8, 8)
    assert [sum(box.y == y for box in found.gpus) for y in sorted({box.y for box in found.gpus})] == [4, 4]
    assert found.height > 844


@given(st.lists(st.integers(1, 40), min_size=1, max_size=24), st.integers(200, 1400))
@settings(max_examples=200, deadline=None)
def test_cells_of_cores_never_overlap_and_stay_inside(groups: list[int], width: int) -> None:
    of_core = [number for number, size in enumerate(groups) for _ in range(size)]
    rects = place_cells(of_core, width)
    assert len(rects) == len(of_core)
    assert len({(rect.x(), rect.y()) for rect in rects}) == len(rects)
    step = min((abs(a.x() - b.x()) for a, b in combinations(rects[:60], 2) if a.y() == b.y()), default=99.0)
    assert step >= rects[0].width()
