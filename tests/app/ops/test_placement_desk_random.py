"""Whatever is done to a placement desk, its cards, its figures and its history agree with its placement."""

from __future__ import annotations

import random

import pytest
from pytestqt.qtbot import QtBot

from app.ops.placement_cards import CardId, HotSet
from app.ops.placement_desk import PlacementDesk
from app.ops.placement_moves import differing
from engine.api.pure import Gpu, Numa, Placement, UnitId
from tests.helpers.fake_planner import N_EXPERTS, outline
from tests.helpers.placement_table import opened_desk


def agrees(desk: PlacementDesk, first: Placement) -> None:
    """Every unit is one card at its place, every pool another; caches lie with their attention; figures are those of now."""
    placement = desk.placement
    assert placement is not None and desk.planner is not None
    cards = desk.cards()
    assert len({card.id for card in cards}) == len(cards)
    assert {card.id: card.device for card in cards if isinstance(card.id, UnitId)} == dict(placement.units)
    sets = {(card.id, card.n_hot) for card in cards if isinstance(card.id, HotSet)}
    assert sets == {(HotSet(pool.layer, pool.gpu), len(pool.experts)) for pool in placement.pools}
    assert {card.id for card in cards if card.pinned} == desk.pins & {card.id for card in cards}
    for unit, device in placement.units:
        if unit.kind == "kv":
            assert placement.device_of(UnitId("mixer", unit.layer)) == device
    for pool in placement.pools:
        assert isinstance(placement.device_of(UnitId("experts", pool.layer)), Numa)
        assert placement.device_of(UnitId("ffn", pool.layer)) == pool.gpu
    assert desk.prediction == desk.planner.estimate(placement)
    assert desk.pending == len(differing(first, placement))
    assert desk.state == ("ready" if desk.prediction.fits else "does not fit")


@pytest.mark.parametrize("seed", range(3))
def test_cards_figures_and_placement_agree(qtbot: QtBot, seed: int) -> None:
    rng = random.Random(seed)
    with opened_desk(qtbot, outline(12, 2)) as desk:
        first = desk.placement
        assert first is not None
        devices = [row.device for row in desk.devices()]
        for _ in range(50):
            cards: list[CardId] = [card.id for card in desk.cards()]
            some = rng.sample(cards, rng.choice((1, 1, 3, 10)))
            match rng.randrange(10):
                case 0:
                    desk.pin(some, rng.random() < 0.4)
                case 1:
                    desk.split(range(2, 12), rng.choice((0, 16, 64)))
                case 2:
                    desk.undo()
                case 3:
                    desk.redo()
                case 4:
                    desk.set_heat({rng.randrange(2, 12): [rng.randrange(9) for _ in range(N_EXPERTS)]})
                case 5:
                    desk.discard()
                case _:
                    device = rng.choice(devices)
                    preview, refusal = desk.preview(some, device), desk.refusal(some, device)
                    if desk.move(some, device):
                        assert not refusal
                        assert desk.prediction == preview
            agrees(desk, first)
        while desk.redo():
            agrees(desk, first)
        last = desk.placement
        while desk.undo():
            agrees(desk, first)
        assert desk.placement == first
        while desk.redo():
            agrees(desk, first)
        assert desk.placement == last
        assert {device for device in devices if isinstance(device, Gpu)} == {Gpu(0), Gpu(1)}
