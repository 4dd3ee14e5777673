"""What the button of each rule is: a placement to look at, or the control that changes what the rule is about, filled in."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest

from engine.advice.diagnosis.diagnose import diagnose
from engine.advice.diagnosis.finding import PREVIEWS, Action, Does
from engine.advice.diagnosis.window import Lost, Window
from engine.advice.doctor.table import CHECKS
from engine.api.values import CoreSample, HoldingInfo, ProcessSample, Topology
from engine.api.workers import read_threads
from tests.engine.advice.test_diagnosis_rules import CHIPLETS, FIRES
from tests.helpers.windows import (
    GB,
    N_CORES,
    card,
    facts,
    hybrid,
    info,
    memory,
    snapshot,
    thread,
    topology,
    window,
    with_cards,
    work,
)

ROWS = frozenset(check.id for check in CHECKS)


def action_of(found: Window, rule: str) -> Action:
    return next(one.action for one in diagnose(found) if one.id == rule)


def whole(action: Action) -> list[Action]:
    """It, and what is offered in its place."""
    return [action, *([] if action.otherwise is None else whole(action.otherwise))]


@pytest.mark.parametrize(("rule", "found"), FIRES, ids=[f"{rule}-{i}" for i, (rule, _) in enumerate(FIRES)])
def test_a_button_has_all_that_it_needs_to_do_what_it_says(rule: str, found: Window) -> None:
    for action in whole(action_of(found, rule)):
        assert action.does in get_args(Does)
        assert bool(action.text) == (action.does != "none")
        assert not action.text.endswith(".")
        if action.does == "doctor":
            assert action.target in ROWS, action
        if action.does in ("without", "ease", "make room"):
            assert action.device.startswith("gpu")
        if action.does == "make room":
            assert action.nbytes > 0
        if action.does == "pin":
            assert isinstance(found.facts.topology, Topology)
            workers = read_threads(action.cpus, found.facts.topology)
            assert workers and set(workers) <= set(found.facts.topology.allowed_cpus)
        if action.does == "context":
            assert found.facts.info is not None
            assert 2048 <= action.n_ctx <= found.facts.info.context_length and action.n_ctx != found.facts.info.n_ctx
    assert all(one.does not in PREVIEWS for one in whole(action_of(found, rule))[1:])


def test_rules_with_a_cure_offer_it() -> None:
    told = {rule: {one.does for r, found in FIRES if r == rule for one in whole(action_of(found, rule))} for rule, _ in FIRES}
    nothing = {rule for rule, does in told.items() if does == {"none"}}
    assert nothing == {"R-PSI", "R-GPU-BOUND", "R-KV-SPD", "R-PREFILL", "R-COLD", "R-QUEUE"}
    assert told["R-LOST"] == {"without", "model", "none"}  # none where the model does not use the card
    assert told["R-SWAP"] == {"model"}  # no cards in these windows
    assert told["R-THERM-G"] == told["R-BRAKE"] == {"ease", "doctor"}
    assert "make room" in told["R-VRAM"]
    assert told["R-NUMA-1"] == {"place again", "rebalance"}
    assert told["R-SMT"] == told["R-NUMA-2"] == {"pin"}
    assert told["R-FRAG"] == {"load again"}


def test_memory_that_is_missing_is_asked_of_cards_where_there_are_any() -> None:
    swapping = memory(swap_in_bytes_per_s=38e6, process_swap_bytes=6 * GB)
    found = window(with_cards(card(), memory=swapping), hybrid(0.6, 0.3), facts(1))
    action = action_of(found, "R-SWAP")
    assert (action.does, action.device, action.nbytes) == ("relieve", "numa0", 6 * GB)
    assert action.otherwise is not None and action.otherwise.does == "model"
    alone = next(one for one in diagnose(window(lambda i: snapshot(i, memory=swapping))) if one.id == "R-SWAP")
    assert alone.action.does == "model" and "smaller model" in alone.sentence and "GPU" not in alone.sentence


def test_so_much_leaves_a_full_card_that_it_has_room_again() -> None:
    full = window(with_cards(card(memory_free_bytes=400_000_000)), hybrid(0.5, 0.4), facts(1))
    action = action_of(full, "R-VRAM")
    assert (action.device, action.nbytes) == ("gpu0", 300_000_000)
    # Without a cache of ours there, a shorter context frees nothing.
    assert action.otherwise is not None and action.otherwise.does == "model"
    here = info(1)
    cached = replace(here, holdings=(*here.holdings, HoldingInfo("gpu0", "kv", 3_200_000_000)))
    full = window(with_cards(card(memory_free_bytes=400_000_000)), hybrid(0.5, 0.4), facts(1, info=cached))
    otherwise = action_of(full, "R-VRAM").otherwise
    assert otherwise is not None
    assert (otherwise.does, otherwise.n_ctx) == ("context", 28_672)  # 3,328 of 32,000 tokens took 333 MB
    assert "28,672" in otherwise.text
    busy = window(with_cards(card(memory_free_bytes=400_000_000)), hybrid(0.5, 0.4, kv_used_tokens=25_000), facts(1, info=cached))
    otherwise = action_of(busy, "R-VRAM").otherwise
    assert otherwise is not None and otherwise.does == "model"  # the conversation would not fit


def test_who_holds_a_card_is_shown_while_it_has_room() -> None:
    grown = facts(1, foreign_bytes={"GPU-0": 800_000_000})
    roomy = window(with_cards(card(memory_used_bytes=6 * GB)), hybrid(0.5, 0.4), grown)
    assert action_of(roomy, "R-VRAM-EXT").target == "D-GPU-4"
    full = window(with_cards(card(memory_used_bytes=6 * GB, memory_free_bytes=GB // 2)), hybrid(0.5, 0.4), grown)
    assert action_of(full, "R-VRAM-EXT").does == "make room"


def test_the_longest_context_of_a_model_is_not_offered_again() -> None:
    full = window(works=lambda i: work(i, kv_used_tokens=26_100))
    assert action_of(full, "R-KV-1").n_ctx == 40_000
    longest = facts(info=replace(info(), n_ctx=40_000))
    found = next(one for one in diagnose(window(works=lambda i: work(i, kv_used_tokens=26_100), known=longest)))
    assert found.id == "R-KV-1" and found.action.does == "none" and "no longer one" in found.why


def test_quieter_cores_are_those_that_others_leave_alone() -> None:
    def busy(i: int):  # type: ignore[no-untyped-def]
        uses = [97.0, 97.0, 99.0, 99.0, 3.0, 2.0, 4.0, 1.0]
        cores = tuple(CoreSample(n, (n,), (uses[n],), 3400.0) for n in range(N_CORES))
        # The model's four workers: two have their cores for themselves, two get half of theirs.
        threads = tuple(thread(n, waiting=20.0 if n > 1 else 0.3) for n in range(4))
        threads = tuple(replace(one, cpu_percent=97.0 if one.cpu < 2 else 48.0) for one in threads)
        return snapshot(i, cores=cores, process=ProcessSample(2.9, threads), use=50.0)

    found = window(busy, known=facts(info=info(workers=(0, 1, 2, 3))))
    action = action_of(found, "R-CONT")
    assert (action.does, action.cpus) == ("pin", "0-1,4-5")
    # Where there are no others, fewer work.
    all_of_them = facts(info=info(workers=tuple(range(N_CORES))))

    def full(i: int):  # type: ignore[no-untyped-def]
        cores = tuple(CoreSample(n, (n,), (99.0,), 3400.0) for n in range(N_CORES))
        threads = tuple(replace(thread(n, waiting=20.0), cpu_percent=97.0 if n < 6 else 40.0) for n in range(N_CORES))
        return snapshot(i, cores=cores, process=ProcessSample(6.6, threads))

    assert action_of(window(full, known=all_of_them), "R-CONT").cpus == "0-5"


def test_workers_share_no_core_once_the_list_is_applied() -> None:
    crowded = facts(info=info(workers=(-1,) * 16))
    action = action_of(window(lambda i: snapshot(i), known=crowded), "R-SMT")
    assert (action.does, action.cpus, action.text) == ("pin", "0-7", "Choose 8 workers")
    # Chiplet 1 is slow: the others' cores are filled in.
    slow = next(found for rule, found in FIRES if rule == "R-IMB")
    assert action_of(slow, "R-IMB").cpus == "0-3"
    assert slow.facts.topology == topology(2)
    packed = next(found for rule, found in FIRES if rule == "R-IMB" and found.facts.topology == CHIPLETS)
    assert (action_of(packed, "R-IMB").cpus, action_of(packed, "R-IMB").text) == ("0,2,4,6", "Spread over chiplets")


def test_a_lost_card_is_planned_around() -> None:
    found = window(known=facts(lost=Lost("gpu1", "14:02", "Xid 79")))
    action = action_of(found, "R-LOST")
    assert (action.does, action.device, action.text) == ("without", "gpu1", "Plan without it")
    gone = with_cards(card(), card(1, state="lost", problem="it fell off the bus"))
    used, unused = (diagnose(window(gone, hybrid(0.5, 0.4), facts(n)))[0] for n in (2, 1))
    assert used.level == "fatal" and used.action == action
    assert unused.level == "external" and unused.action.does == "none" and "does not use it" in unused.sentence
