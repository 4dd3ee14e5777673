"""What the command brings together: cards through their own process, counters twice, what was measured, probes."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from engine.advice.doctor import gather as gathering
from engine.advice.doctor.drivers import torch_cuda
from engine.advice.doctor.gather import gather
from engine.advice.doctor.probes import Probes
from engine.advice.doctor.table import CHECKS, quick, run_checks
from engine.estimate.calibration import save_calibration
from engine.estimate.rates import assumed
from engine.hardware.machine import this_machine
from tests.helpers.doctoring import made
from tests.helpers.nvml import Cards, build


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def cards(tmp_path: Path, library: Path, monkeypatch: pytest.MonkeyPatch) -> Cards:
    return Cards(tmp_path, library, monkeypatch)


def test_cards_are_asked_by_their_own_process(cards: Cards) -> None:
    context = gather(cards.root, env={}, thorough=True)
    assert context.snapshot is not None
    assert len(context.snapshot.gpus) == 4
    found = {one.id: one for one in run_checks(context, quick())}
    assert (found["D-GPU-1"].status, found["D-GPU-1"].observed) == ("pass", "580.00, 4 cards")
    assert "21.2 GB of 25.8 GB free" in found["D-GPU-4"].observed


def test_a_driver_that_does_not_match_is_told(cards: Cards) -> None:
    cards.become("gpus 4", "init 18")
    context = gather(cards.root, env={}, thorough=True)
    found = next(run_checks(context, [check for check in CHECKS if check.id == "D-GPU-1"]))
    assert found.status == "warn"
    assert "restart" in found.why


def test_cards_that_hang_cost_the_quick_set_no_more_than_its_time(cards: Cards, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "QUICK_S", 0.6)
    cards.become("gpus 4", "hang 0")
    began = time.monotonic()
    context = gather(cards.root, env={})
    found = {one.id: one for one in run_checks(context, quick())}
    assert time.monotonic() - began < 10, "a hanging driver would take a minute"
    assert "itself failed" not in found["D-GPU-4"].why


def test_a_machine_without_cards_waits_for_counters_alone(tmp_path: Path) -> None:
    root = made(tmp_path, {"proc/stat": "cpu  1 1 1 1 1 1 1 1 0 0\n"})
    context = gather(root, env={})
    assert context.before is not None
    assert context.now.time_s - context.before.time_s >= gathering.APART_S
    assert context.node_gbps == ()


def test_what_was_measured_is_looked_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    env = {"LAYERDECK_HOME": str(tmp_path), "LAYERDECK_GPU": "none"}
    monkeypatch.setenv("LAYERDECK_GPU", "none")
    machine = this_machine()
    monkeypatch.setattr(gathering, "QUICK_S", 20.0)
    assert gather(env=env).node_gbps == ()
    save_calibration(replace(assumed(machine), measured=True), tmp_path / "data", machine)
    found = gather(env=env).node_gbps
    assert len(found) == len(machine.nodes)
    assert min(found) > 0


def test_probes_answer_without_cards() -> None:
    probes = Probes()
    try:
        torch = probes.torch()
        assert torch.problem or torch.cuda == (torch_cuda() or "")
        if not torch.capabilities:
            assert probes.links() == ()
            peers = probes.peers()
            assert peers is None or (peers.n_pairs, peers.lost) == (0, ())
    finally:
        probes.close()


def test_a_probe_that_cannot_be_started_says_so() -> None:
    probes = Probes("engine.advice.doctor.nothing_here")
    try:
        assert "did not start" in probes.torch().problem
        assert probes.links() == ()
        assert probes.peers() is None
    finally:
        probes.close()
