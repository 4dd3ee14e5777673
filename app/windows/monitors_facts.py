"""MonitorsFacts: what the Monitors page knows beside the readings: what the loaded model was given of each device, what each
node's memory gives, where pages of the model lie. Found by a worker, and again when another model or placement is loaded.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from PySide6.QtCore import QObject, Signal

from app.bridge.engine_bridge import EngineBridge
from app.bridge.engine_state import EngineState
from app.bridge.op import Op
from app.bridge.ui_thread import UiThread
from app.monitors.facts import Facts, Held
from app.ops.monitor_ops import MonitorOps
from engine.api.commands import AskHoldings
from engine.api.errors import EngineError
from engine.api.events import Holdings
from engine.api.pure import Device, DevicePrediction, Gpu, Machine, load_rates, planner_of, read_outline, this_machine
from engine.api.values import LoadOptions, ModelInfo

PAGES_S = 30.0
"""Between two looks at where pages lie: they move rarely, and the system is asked for each of them."""

WEIGHTS, CACHES = ("weights", "derived"), ("kv", "kept windows", "state")
"""Owners of the ledger; what is left of them are buffers."""


@dataclass(frozen=True, slots=True)
class Found:
    """What the worker found out for a model, or without one."""

    held: Mapping[str, Held] = field(default_factory=dict)
    ceilings: Mapping[int, float] = field(default_factory=dict)


def find_out(model: ModelInfo | None, machine: Callable[[], Machine] = this_machine) -> Found:
    """What devices hold by name, and GB/s that each node gives where that was measured. Takes up to some hundred ms."""
    here = machine()
    rates = load_rates(here)
    ceilings = {} if rates is None else {node.node: rate.limit for node, rate in zip(here.nodes, rates.nodes, strict=False)}
    if model is None or model.placement is None:
        return Found({}, ceilings)
    placement = model.placement
    options = LoadOptions(n_ctx=model.n_ctx, k_type=placement.k_type, v_type=placement.v_type)
    try:
        prediction = planner_of(read_outline(model.path), options, here).estimate(placement)
    except (EngineError, OSError):
        # The file may be gone by now, or the model run by what no planner knows: the bar then has one colour.
        return Found({}, ceilings)
    return Found({_name(one.device): held_by(model, one) for one in prediction.devices}, ceilings)


def _name(device: Device) -> str:
    return f"gpu{device.index}" if isinstance(device, Gpu) else f"numa{device.node}"


def held_by(model: ModelInfo, planned: DevicePrediction) -> Held:
    """What the model holds of a device, by the engine's ledger; weights, which that has as one, in the proportion that they are
    planned in. planned: all of it, where the ledger has nothing of the device."""
    owners: dict[str, int] = {}
    for one in model.holdings:
        if one.device == _name(planned.device):
            owners[one.owner] = owners.get(one.owner, 0) + one.nbytes
    kinds = (planned.attention, planned.ffn, planned.experts)
    if not owners:
        return Held(*kinds, planned.kv, planned.buffers)
    weights = sum(owners.pop(owner, 0) for owner in WEIGHTS)
    attention, ffn, experts = (round(weights * one / max(1, sum(kinds))) for one in kinds)
    kv = sum(owners.pop(owner, 0) for owner in CACHES)
    return Held(attention, ffn, experts, kv, sum(owners.values()))


class MonitorsFacts(QObject):
    """changed(): `facts` are others."""

    changed = Signal()

    def __init__(
        self,
        monitors: MonitorOps,
        bridge: EngineBridge,
        ui: UiThread,
        worker: ThreadPoolExecutor,
        find: Callable[[ModelInfo | None], Found] = find_out,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._monitors, self._bridge, self._ui, self._worker, self._find = monitors, bridge, ui, worker, find
        self._found = Found()
        self._of: ModelInfo | None = None
        self._asked = False
        self._off_node: float | None = None
        self._pages_s = -PAGES_S
        self._host = socket.gethostname()
        self._answering = False
        bridge.state_changed.connect(self._on_state)

    def facts(self) -> Facts:
        """As they are known by now. Asks for what is not."""
        state = self._bridge.state
        if not self._asked or state.model != self._of:
            self._ask(state.model)
        topology = self._monitors.topology
        if len(topology.nodes) > 1 and state.model is not None and time.monotonic() - self._pages_s >= PAGES_S:
            self._ask_pages()
        usage, trace = self._monitors.last_usage, self._monitors.trace
        idle = not state.answers
        placement = None if state.model is None else state.model.placement
        workers = None if placement is None else placement.workers
        return Facts(
            topology=topology,
            model=state.model,
            held=self._found.held,
            ceilings=self._found.ceilings,
            worker_cpus=frozenset() if workers is None else frozenset(cpu for cpu in workers.cores if cpu >= 0),
            kept_cpus=frozenset() if workers is None else frozenset(workers.kept),
            off_node=self._off_node,
            prompt_tokens=None if usage is None else usage.n_prompt - usage.n_reused,
            first_token_p95_s=self._monitors.first_token_p95_s,
            trace_time=clock_text(trace.time_s) if idle and trace is not None else "",
            host=self._host,
        )

    def _ask(self, model: ModelInfo | None) -> None:
        same_file = model is not None and self._of is not None and model.path == self._of.path
        self._asked, self._of, self._off_node, self._pages_s = True, model, None, -PAGES_S
        if not same_file:
            self._found = replace(self._found, held={})

        def found(result: Found) -> None:
            if self._of is model:
                self._found = result
                self.changed.emit()

        self._ui.deliver(self._worker.submit(self._find, model), found, lambda _error: None)

    def _ask_pages(self) -> None:
        self._pages_s = time.monotonic()
        bridge = self._bridge
        Op(bridge, AskHoldings(bridge.new_id())).on(Holdings, self._on_holdings).failure(lambda _event: None).run()

    def _on_holdings(self, event: Holdings) -> None:
        self._off_node = event.off_node_share
        self.changed.emit()

    def _on_state(self, state: EngineState) -> None:
        if bool(state.answers) != self._answering or state.model is not self._of:
            self._answering = bool(state.answers)
            self.changed.emit()


def clock_text(monotonic_s: float) -> str:
    """`14:02:11`: a time of the clock of readings as people tell it."""
    return time.strftime("%H:%M:%S", time.localtime(time.time() - (time.monotonic() - monotonic_s)))
