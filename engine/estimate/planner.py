"""Placements of one model on one machine: predictions, moves, and what to do where something does not fit. Starts nothing, loads
nothing, and holds no state but what it has worked out before."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from engine.arch.units import UnitId
from engine.estimate.automatic import automatic_placement, filled
from engine.estimate.calibration import learned, node_gbps
from engine.estimate.chunks import longer_chunks
from engine.estimate.context import plan_context
from engine.estimate.described import HasModel
from engine.estimate.heat import Counts, Heat
from engine.estimate.memory import DeviceBytes, Estimate, Estimator
from engine.estimate.moves import find_move
from engine.estimate.pool_filler import ExpertSet, PoolFiller
from engine.estimate.pools import slot_bytes
from engine.estimate.prediction import ContextPlan, DevicePrediction, Limit, Prediction
from engine.estimate.quick import QuickBytes
from engine.estimate.rates import Calibration, assumed
from engine.estimate.roofline import Part, Roofline
from engine.estimate.solver import ANSWER, PROMPT, Judged, solve
from engine.estimate.speed import Speed, StepTime
from engine.estimate.team_sizes import is_here, team_sizes
from engine.estimate.work import ModelWork
from engine.hardware.machine import Machine
from engine.placement.options import LoadOptions
from engine.placement.over_nodes import over_nodes, shares_of, with_spread
from engine.placement.placement import Device, Gpu, Numa, Placement, default_placement
from engine.placement.pools import with_sensible_pools
from engine.placement.spread import expert_cuts
from engine.placement.streaming import streams

_FOLLOWS = ("kv", "state")


class Planner:
    """See the module."""

    def __init__(
        self,
        outline: HasModel,
        options: LoadOptions,
        machine: Machine,
        calibration: Calibration | None = None,
        *,
        _beside: QuickBytes | None = None,
    ) -> None:
        """calibration: None: what is assumed of such a machine.

        Raises:
            InvalidRequest, UnsupportedModel: see `Estimator` and `team_sizes`.
        """
        self.model, self.options, self.machine = outline.model, options, machine
        self.calibration = calibration or assumed(machine)
        spec, tensors = self.model.spec, self.model.file.tensors
        self.estimator = Estimator(spec, self.model.graph, tensors, options, machine)
        self._bytes = QuickBytes(spec, self.estimator, _beside)
        rows = min(options.prefill_chunk, self.estimator.n_ctx)
        self.work = ModelWork(spec, tensors, options, rows)
        emulated = any(one.emulated for one in machine.gpus)
        self._streams = streams(options, rows, emulated=emulated)
        self._heat = Heat()
        self._speeds: dict[tuple[tuple[int, int], ...], Speed] = {}
        self._speed = self._with_teams(team_sizes(machine, options))
        self._longer: dict[int, Planner] = {}
        self._here = is_here(machine)
        self._unreadable = self.estimator.without_gpu_kernels()

    def _speed_of(self, placement: Placement) -> Speed:
        """With the workers that the placement has, on this machine: they change while a model is loaded."""
        return self._with_teams(team_sizes(self.machine, self.options, placement.workers)) if self._here else self._speed

    def _with_teams(self, sizes: dict[int, int]) -> Speed:
        key = tuple(sorted(sizes.items()))
        if key not in self._speeds:
            roofline = Roofline(self.calibration, sizes)
            self._speeds[key] = Speed(self.model.spec, self.work, roofline, self._heat, streams=self._streams)
        return self._speeds[key]

    def set_rates(self, rates: Calibration) -> None:
        """What was measured of the machine since the planner was made."""
        self.calibration = rates
        self._speeds.clear()
        self._speed = self._with_teams(team_sizes(self.machine, self.options))
        for longer in self._longer.values():
            longer.set_rates(rates)

    def set_counts(self, counts: Counts) -> None:
        """How often experts were passed, by layer: what pools of them serve is predicted from it, and `fit` fills pools by it."""
        self._heat = Heat(counts)
        self._speeds.clear()
        self._speed = self._with_teams(team_sizes(self.machine, self.options))
        for longer in self._longer.values():
            longer.set_counts(counts)

    def estimator_with(self, options: LoadOptions) -> Estimator:
        """Estimates for the same model and machine with other options."""
        return Estimator(self.model.spec, self.model.graph, self.model.file.tensors, options, self.machine)

    @property
    def n_ctx(self) -> int:
        """Tokens of context that everything is planned for."""
        return self.estimator.n_ctx

    @property
    def devices(self) -> tuple[Device, ...]:
        """The devices of the machine, nodes first."""
        return (*(Numa(one.node) for one in self.machine.nodes), *(Gpu(one.index) for one in self.machine.gpus))

    def default(self) -> Placement:
        """What loading without a placement gives."""
        if not self.machine.gpus:
            return self._home()
        return automatic_placement(self.model.spec, self.estimator, self.options, self._bytes, self._home())

    def _home(self) -> Placement:
        """All in memory, over all nodes as they were measured."""
        usual = default_placement(self.model.spec, self.options)
        return over_nodes(usual, self.machine, node_gbps(self.calibration, self.machine))

    def fit(self) -> Placement:
        """The placement that is fastest of those that fit.

        Raises:
            PlacementError: nothing fits; with the arithmetic.
        """
        home = self._home()
        start = filled(home, self.model.spec, self.estimator, self._quickly) if self.machine.gpus else home
        judged = Judged(
            bytes_of=self._quickly,
            seconds_of=self._conversation_s,
            unit_seconds=self._unit_seconds,
            sizes=self.estimator.unit_bytes(start),
            unreadable=self._unreadable,
            filler=PoolFiller(self._expert_sets(), self._heat, self._quickly, self._unit_seconds),
        )
        return solve(start, home, self.machine, judged)

    def _unit_seconds(self, unit: UnitId, device: Device) -> float:
        return self._speed.unit(unit, device).seconds

    def _expert_sets(self) -> dict[int, ExpertSet]:
        """Of the layers whose experts GPUs can compute."""
        ops = (op for op in self.estimator.experts() if UnitId("experts", op.unit.layer) not in self._unreadable)
        return {op.unit.layer: ExpertSet(op.n_experts, slot_bytes(op, self.estimator.tensors)) for op in ops}

    def _quickly(self, placement: Placement) -> Estimate:
        return self._bytes.estimate(placement)[0]

    def _conversation_s(self, placement: Placement) -> float:
        prompt = self._speed.step(placement, "prefill").seconds / self.work.rows
        return PROMPT * prompt + ANSWER * self._speed.step(placement, "decode").seconds

    def estimate(self, placement: Placement, *, depth: int = 0) -> Prediction:
        """What the placement takes and how fast it is. depth: tokens that are in the cache when a token is decoded."""
        there = self._as_loaded(placement)
        found, exact = there._bytes.estimate(placement)
        return there._predicted(placement, found, depth, exact=exact)

    def refine(self, placement: Placement, *, depth: int = 0) -> Prediction:
        """The same with buffers as the lowered plans have them, which takes longer; `estimate` knows them from then on."""
        there = self._as_loaded(placement)
        return there._predicted(placement, there._bytes.refine(placement), depth, exact=True)

    def _as_loaded(self, placement: Placement) -> Planner:
        """The planner with the chunk of prompts that loading the placement would choose, see `engine.estimate.chunks`: by quick
        estimates, so that a drag need not wait."""
        for options in longer_chunks(self.options, placement):
            if options.prefill_chunk > self.n_ctx:
                continue
            longer = self._with_chunk(options)
            if longer._bytes.streamed(placement) is None:
                break
            if longer._bytes.streaming(placement) is not None:
                return longer
        return self

    def _with_chunk(self, options: LoadOptions) -> Planner:
        found = self._longer.get(options.prefill_chunk)
        if found is None:
            found = Planner(self, options, self.machine, self.calibration, _beside=self._bytes)
            found.set_counts(self._heat.counts)
            self._longer[options.prefill_chunk] = found
        return found

    def move(self, placement: Placement, units: Iterable[UnitId], device: Device) -> Placement:
        """The placement with these units on a device. Caches and states go with their mixer; pools that lose
        their sense are dropped."""
        went = _with_followers(placement, units)
        units_there = tuple((unit, device if unit in went else where) for unit, where in placement.units)
        return with_sensible_pools(replace(placement, units=units_there))

    def into_memory(self, placement: Placement, units: Iterable[UnitId]) -> Placement:
        """The placement with these units in the machine's memory, over its nodes as loading without a placement has them."""
        went, home = _with_followers(placement, units), self._home()
        units_there = tuple((unit, home.device_of(unit) if unit in went else where) for unit, where in placement.units)
        kept = tuple((unit, spread) for unit, spread in placement.spreads if unit not in went)
        spread = tuple((unit, one) for unit, one in home.spreads if unit in went)
        return with_sensible_pools(replace(placement, units=units_there, spreads=(*kept, *spread)))

    def off_nodes(self, placement: Placement, units: Iterable[UnitId]) -> Placement:
        """The placement with these units on the first of their nodes alone."""
        return with_spread(placement, _with_followers(placement, units), None)

    def nodes_refusal(self, placement: Placement, units: Iterable[UnitId]) -> str:
        """Why these units cannot be split over the nodes of memory, and what can be done; "": they can."""
        split = shares_of(self.machine, node_gbps(self.calibration, self.machine))
        if split is None:
            return (
                "This machine has one memory node that computes, so there is nothing to split over; move them to another device."
            )
        widths = {op.unit.layer: op.n_ff for op in self.estimator.experts()}
        uneven = next((one for one in units if one.kind == "experts" and expert_cuts(widths[one.layer], split) is None), None)
        return "" if uneven is None else f"{uneven} cannot be cut into parts that kernels read; leave them on one memory node."

    def refusal(self, placement: Placement, units: Iterable[UnitId], device: Device) -> str:
        """Why these units cannot lie on the device, and what can be done; "": they can."""
        chosen = list(units)
        if device not in self.devices:
            there = ", ".join(str(one) for one in self.devices)
            return f"There is no {device}; this machine has {there}."
        if isinstance(device, Gpu):
            unreadable = [unit for unit in chosen if unit in self._unreadable]
            if unreadable:
                return f"{unreadable[0]} holds a format that GPUs cannot read; leave it in memory or get another file."
        known = placement.places
        strange = next((unit for unit in chosen if unit not in known), None)
        return "" if strange is None else f"This model has no {strange}."

    def fix(self, placement: Placement, held: Collection[UnitId] = ()) -> tuple[str, Placement] | None:
        """What to do so that a placement that does not fit does, as an imperative, and the placement after it; None: it fits, or
        nothing helps. held: units that stay where they are."""
        sentences: list[str] = []
        there, found = placement, self._quickly(placement)
        while not found.fits and len(sentences) < len(found.devices):
            worst = found.limit
            move = find_move(self.estimator, there, worst.device, worst.over, self._quickly, held)
            if move is None:
                return None
            sentences.append(move.sentence)
            there, found = move.placement, self._quickly(move.placement)
        if not sentences or not found.fits:
            return None
        text = " and ".join(sentences)
        return f"{text[0].upper()}{text[1:]}", there

    def context(self, placement: Placement, n_ctx: int, held: Collection[UnitId] = ()) -> ContextPlan:
        """What a context of n_ctx tokens costs under this placement, and what would have to leave which device for it. held:
        units that stay where they are.

        Raises:
            InvalidRequest: more than the model was made for.
        """
        other = Planner(self, replace(self.options, n_ctx=n_ctx), self.machine, self.calibration)
        before = self._quickly(placement)
        return plan_context(placement, other.n_ctx, before, other._quickly, lambda there: other.fix(there, held))

    def unit_bytes(self, placement: Placement) -> dict[UnitId, int]:
        """Bytes of the tensors of each unit, of a cache or of the states of a layer."""
        return self._bytes.sums.by_unit(placement)

    def unit_ms(self, unit: UnitId, device: Device) -> float:
        """Milliseconds of a decoded token that a unit takes on a device."""
        return 1e3 * self._unit_seconds(unit, device)

    def learned(
        self, placement: Placement, *, decode_tok_s: float | None = None, prefill_tok_s: float | None = None, depth: int = 0
    ) -> Calibration:
        """The calibration after the engine ran at these rates under this placement: of one answer alone, behind `depth` tokens,
        and of prompts of whole chunks. A planner with it predicts what lies between."""
        found = self.calibration
        if decode_tok_s:
            found = learned(found, "decode", self._speed_of(placement).step(placement, "decode", depth), 1.0 / decode_tok_s)
        if prefill_tok_s:
            there = self._as_loaded(placement)
            step = there._speed_of(placement).step(placement, "prefill", 0)
            found = learned(found, "prefill", step, there.work.rows / prefill_tok_s)
        return found

    def prepare(self, placement: Placement) -> None:
        """Works out what the next moves from here may need, a tenth of a second or two; for a thread that nobody waits for."""
        self._bytes.prepare(placement)
        for options in longer_chunks(self.options, placement):
            if options.prefill_chunk <= self.n_ctx:
                self._with_chunk(options)._bytes.prepare(placement)

    def _predicted(self, placement: Placement, estimate: Estimate, depth: int, *, exact: bool) -> Prediction:
        decode = self._speed_of(placement).step(placement, "decode", depth)
        prefill = self._speed_of(placement).step(placement, "prefill", 0)
        device, limit = self._limit(decode)
        if not estimate.fits:
            device, limit = estimate.limit.device, "room"
        colours = self._bytes.sums.colours(placement)
        bound = max(part.bound for part in decode.parts.values())
        return Prediction(
            devices=tuple(self._device(one, colours.get(one.device, (0, 0, 0)), decode, prefill) for one in estimate.devices),
            decode_tok_s=1.0 / decode.seconds,
            prefill_tok_s=self.work.rows / prefill.seconds,
            load_s=self._load_s(estimate),
            bound_tok_s=1.0 / bound,
            limit_device=device,
            limit=limit,
            fits=estimate.fits,
            n_ctx=estimate.n_ctx,
            exact=exact,
            calibrated=self.calibration.measured,
        )

    @staticmethod
    def _limit(step: StepTime) -> tuple[Device, Limit]:
        device = step.busiest()
        part = step.parts[device]
        if step.crossing > part.seconds:
            return device, "transfers"
        fixed: Limit = "launches" if isinstance(device, Gpu) else "meetings"
        kinds: tuple[tuple[float, Limit], ...] = ((part.read, "memory read"), (part.multiply, "computing"), (part.fixed, fixed))
        return device, max(kinds)[1]

    def _load_s(self, estimate: Estimate) -> float:
        """Memory is mapped, not read; what GPUs hold comes from the file through the machine's memory."""
        rate = self.calibration.file_gbps * 1e9
        return 0.5 + sum(one.weights for one in estimate.devices if isinstance(one.device, Gpu)) / rate

    def _device(
        self, owners: DeviceBytes, weights: tuple[int, int, int], decode: StepTime, prefill: StepTime
    ) -> DevicePrediction:
        attention, experts, ffn = weights
        kv = owners.kv + owners.kept_windows + owners.state
        return DevicePrediction(
            device=owners.device,
            name=self._name(owners.device),
            attention=attention + owners.derived,
            ffn=ffn,
            experts=experts,
            kv=kv,
            buffers=owners.used - attention - owners.derived - ffn - experts - kv,
            owners=owners,
            decode_ms=1e3 * decode.parts.get(owners.device, Part()).seconds,
            prefill_ms=1e3 * prefill.parts.get(owners.device, Part()).seconds,
        )

    def _name(self, device: Device) -> str:
        if isinstance(device, Gpu):
            return next((one.name for one in self.machine.gpus if one.index == device.index), "")
        node = self.machine.node(device.node)
        return "" if node is None else node.name


def _with_followers(placement: Placement, units: Iterable[UnitId]) -> set[UnitId]:
    """Units, and what goes where they go: caches and states with their mixer, and it with them."""
    chosen = set(units)
    mixers = {unit.layer for unit in chosen if unit.kind == "mixer" or unit.kind in _FOLLOWS}
    goes = {unit for unit, _ in placement.units if unit.kind in ("mixer", *_FOLLOWS) and unit.layer in mixers}
    return chosen | goes
