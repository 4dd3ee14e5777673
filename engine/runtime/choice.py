"""Where the parts of a model shall lie: as asked for, else over the GPUs that are there, else in the machine's memory."""

from __future__ import annotations

from engine.arch.spec import ModelSpec
from engine.errors import PlacementError
from engine.estimate.automatic import automatic_placement
from engine.estimate.calibration import load_calibration, node_gbps
from engine.estimate.memory import Estimator
from engine.gguf.info import GgufFile
from engine.graph.ops import Graph
from engine.hardware.gpus import find_gpus
from engine.hardware.machine import this_machine
from engine.hardware.user_data import user_data_dir
from engine.placement.options import LoadOptions
from engine.placement.over_nodes import over_nodes
from engine.placement.placement import Placement, default_placement
from engine.placement.source import resolve_here


def choose_placement(file: GgufFile, spec: ModelSpec, graph: Graph, options: LoadOptions) -> tuple[Placement, tuple[str, ...]]:
    """The placement, and what of the wish could not be met or why no GPU is used; one sentence each.

    Raises:
        PlacementError: the options ask for one that means nothing here. InvalidRequest: a setting that means nothing.
    """
    gpus, machine = find_gpus(), this_machine()
    gbps = node_gbps(load_calibration(user_data_dir(), machine), machine)
    if options.placement:
        try:
            found = resolve_here(options.placement, spec, graph, file, machine, options, gbps, gpus.usable)
        except PlacementError as error:
            raise PlacementError(f"{error} ({gpus.problem})" if gpus.problem else str(error)) from error
        return found.placement, found.differences + found.notes
    if gpus.usable:
        estimator = Estimator(spec, graph, file.tensors, options, machine)
        home = over_nodes(default_placement(spec, options), machine, gbps)
        return automatic_placement(spec, estimator, options, home=home), ()
    notes = (f"No GPU is used: {gpus.problem}.",) if gpus.found else ()
    return over_nodes(default_placement(spec, options), machine, gbps), notes
