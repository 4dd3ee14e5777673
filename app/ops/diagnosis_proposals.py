"""Proposals: what the planner would change about the placement of the loaded model, for the worker thread; one model at a
time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace

from app.errors import UserFacingError
from app.ops.diagnosis_facts import Asked
from engine.advice.diagnosis.departures import eased, lightened, vacated
from engine.advice.diagnosis.finding import Gain
from engine.advice.diagnosis.gains import rebalanced, relief
from engine.api.errors import EngineError
from engine.api.pure import Machine, ModelOutline, Placement, Planner, load_rates, read_outline, this_machine
from engine.api.values import LoadOptions, ModelInfo


class Proposals:
    """Calls may come from any thread, and are carried out one after another."""

    def __init__(self, read: Callable[[str], ModelOutline] = read_outline, machine: Callable[[], Machine] = this_machine) -> None:
        self._read, self._machine = read, machine
        self._lock = threading.Lock()
        self._outline: tuple[str, ModelOutline] | None = None

    def gain(self, asked: Asked) -> Gain | None:
        """What moving work would bring; None where it is not worth it.

        Raises:
            UserFacingError: it cannot be worked out.
        """
        placement = asked.info.placement
        if placement is None:
            return None
        with self._lock:
            try:
                return _proposed(self._planner(asked, placement), placement, asked)
            except EngineError as error:
                raise UserFacingError(str(error)) from error

    def _planner(self, asked: Asked, placement: Placement) -> Planner:
        """With the rates of this machine, and taught by how fast the model is now."""
        info = asked.info
        if self._outline is None or self._outline[0] != info.path:
            self._outline = info.path, self._read(info.path)
        outline, machine = self._outline[1], self._with_own_room(info)
        options = LoadOptions(n_ctx=info.n_ctx, k_type=placement.k_type, v_type=placement.v_type)
        planner = Planner(outline, options, machine, load_rates(machine))
        if asked.tok_s is None:
            return planner
        depth = 0 if asked.measured is None else asked.measured.depth
        taught = planner.learned(placement, decode_tok_s=asked.tok_s, depth=depth)
        return Planner(outline, options, machine, taught)

    def _with_own_room(self, info: ModelInfo) -> Machine:
        """This machine with what the model itself holds counted as free: a placement is judged as if nothing were loaded."""
        machine = self._machine()
        held: dict[str, int] = {}
        for one in info.holdings:
            held[one.device] = held.get(one.device, 0) + one.nbytes * (not one.mapped)
        gpus = tuple(
            one if one.free_bytes is None else replace(one, free_bytes=one.free_bytes + held.get(f"gpu{one.index}", 0))
            for one in machine.gpus
        )
        return replace(machine, gpus=gpus)

    def ceilings(self) -> tuple[Mapping[str, float], int]:
        """Bytes a second that each node gives to all its cores, where that was measured on this machine; tokens of a prompt that
        are read at once.

        Raises:
            UserFacingError: this machine cannot be read.
        """
        with self._lock:
            try:
                machine = self._machine()
                rates = load_rates(machine)
            except EngineError as error:
                raise UserFacingError(str(error)) from error
        chunk = LoadOptions().prefill_chunk
        if rates is None or not rates.measured:
            return {}, chunk
        nodes = zip(machine.nodes, rates.nodes, strict=False)
        return {f"numa{node.node}": 1e9 * max((gbps for _, gbps in one.read_gbps), default=0.0) for node, one in nodes}, chunk


def _proposed(planner: Planner, placement: Placement, asked: Asked) -> Gain | None:
    """What a button of this kind shows; None: nothing worth it."""
    action, measured = asked.action, asked.measured
    match action.does:
        case "without":
            return vacated(planner, placement, action.device, measured)
        case "ease":
            return eased(planner, placement, action.device, measured)
        case "make room":
            return lightened(planner, placement, action.device, action.nbytes, measured)
        case "relieve" if action.nbytes:
            return lightened(planner, placement, action.device, action.nbytes, measured)
        case "relieve" if measured is not None:
            return relief(planner, placement, action.device, measured)
        case "rebalance" if measured is not None:
            prompts = action.target == "prompts"
            return rebalanced(planner, placement, measured, lambda one: replace(one, workers=placement.workers), prompts=prompts)
    return None
