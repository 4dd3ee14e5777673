"""What is the same wherever the parts of a model lie: its open file, what it computes, how it was asked for. And one attempt to
build it for a placement. Made by the loader; nothing in it changes while the model is loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from engine.arch.spec import ModelSpec
from engine.estimate.states import snapshot_budget_of
from engine.estimate.tuned import Tuned
from engine.gguf.info import GgufFile
from engine.graph.ops import Graph
from engine.hardware.machine import Machine
from engine.placement.options import LoadOptions
from engine.quants.formats import BY_ID
from engine.runtime.laps import Laps
from engine.runtime.node_memory import NodeMemory
from engine.runtime.rope_table import RopeTables
from engine.runtime.weights import Weights, no_pause
from kernels_pyx.executor import AbortFlag

Progress = Callable[[str, int, int], None]
"""(phase, done, total): `weights` in bytes really in memory, `warmup` in steps."""


@dataclass(frozen=True, slots=True)
class ModelSource:
    """n_ctx: tokens of a sequence; types: ggml type ids of the matrices that lanes multiply with; machine: as it was before
    anything of the model was in memory; tuned: what `options` have from an earlier sweep over numbers of workers. nodes: of
    memory, None where there is one."""

    file: GgufFile
    spec: ModelSpec
    graph: Graph
    options: LoadOptions
    n_ctx: int
    weights: Weights
    ropes: RopeTables
    types: Mapping[str, int]
    machine: Machine
    tuned: Tuned | None = None
    nodes: NodeMemory | None = None

    @property
    def chunk(self) -> int:
        """Most tokens of a prompt in one step."""
        return min(self.options.prefill_chunk, self.n_ctx)

    @property
    def snapshot_budget(self) -> int:
        """Bytes that snapshots of states may take, wherever they lie."""
        return snapshot_budget_of(self.machine, self.options.snapshot_bytes)

    @property
    def formats(self) -> dict[str, str]:
        """The name of each tensor's format."""
        found = {tensor.name: tensor.type_name for tensor in self.file.tensors.values()}
        return found | {name: BY_ID[one].name for name, one in self.types.items()}

    @property
    def f32(self) -> bool:
        """Whether activations are f32 in all linear layers."""
        return self.options.f32_activations


@dataclass(frozen=True, slots=True)
class Building:
    """One attempt. abort: stops it; steps: stops the steps of what it makes; undo: what gives back what was taken, for failures.

    pause: told behind each piece of work that can wait, with the seconds it took, by the threads that do it. laps: what took how
    long.
    """

    progress: Progress
    abort: AbortFlag
    steps: AbortFlag
    undo: list[Callable[[], None]] = field(default_factory=list)
    pause: Callable[[float], None] = no_pause
    laps: Laps = field(default_factory=Laps)

    def give_back(self) -> None:
        """Undoes what was done, the last first."""
        while self.undo:
            self.undo.pop()()
