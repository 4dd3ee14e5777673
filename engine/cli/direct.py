"""A loaded model without the service: for commands that want logits, not answers."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from engine.arch.registry import build_spec
from engine.cli.model import read_model
from engine.cli.options import load_options
from engine.cli.output import note
from engine.errors import InvalidRequest
from engine.gguf.info import GgufFile
from engine.graph.build import build_graph
from engine.runtime.cache_groups import BLOCK, ring_tables
from engine.runtime.loader import LoadedModel, load
from engine.runtime.step import StepBatch
from engine.service.loaded import too_many_threads, tuned_sentence
from kernels_pyx.executor import AbortFlag


@dataclass(frozen=True, slots=True)
class Direct:
    """One sequence over a model: rows at any position of the context, forwards; block tables [n_groups, blocks] are fixed."""

    file: GgufFile
    model: LoadedModel
    tables: npt.NDArray[np.int32]

    def step(self, ids: Sequence[int], position: int, n_out: int) -> npt.NDArray[np.float32]:
        """Computes `ids` from `position` on; the logits of the last n_out of them, [n_out, n_vocab]."""
        n = len(ids)
        return self.model.step(
            StepBatch(
                phase="decode" if n == 1 else "prefill",
                token_ids=np.asarray(ids, np.int32),
                positions=np.arange(position, position + n, dtype=np.int32),
                seq_of_row=np.zeros(n, np.int32),
                block_tables=(self.tables[:, : -(-(position + n) // BLOCK)],),
                out_rows=np.arange(n - n_out, n, dtype=np.int32),
            )
        )

    def logits(self, ids: Sequence[int], chunk: int) -> Iterator[tuple[int, npt.NDArray[np.float32]]]:
        """(first position, logits [n, n_vocab]) of each chunk of a sequence that starts at position 0.

        Raises:
            InvalidRequest: no ids, or an id that the model does not have.
        """
        if not ids:
            raise InvalidRequest("there are no token ids; give at least one")
        n_vocab = self.model.spec.n_vocab
        bad = next((one for one in ids if not 0 <= one < n_vocab), None)
        if bad is not None:
            raise InvalidRequest(f"token id {bad} is out of range; this model has the ids 0 to {n_vocab - 1}")
        for start in range(0, len(ids), chunk):
            rows = ids[start : start + chunk]
            yield start, self.step(rows, start, len(rows))


@contextmanager
def opened(args: argparse.Namespace, n_ctx: int) -> Iterator[Direct]:
    """The model that the arguments name, with room for n_ctx tokens (more if the arguments ask for more).

    Raises:
        EngineError: it cannot be loaded, or has a smaller context.
    """
    file = read_model(args)
    spec = build_spec(file)
    if n_ctx > spec.context_length:
        raise InvalidRequest(f"{n_ctx} tokens are wanted, the model's context holds {spec.context_length}; give fewer")
    options = load_options(args)
    options = replace(options, n_ctx=max(options.n_ctx, n_ctx))
    for warning in too_many_threads(options.n_threads):
        note(warning)
    model = load(file, spec, build_graph(spec), options, lambda phase, done, total: None, AbortFlag())
    for told in (*model.notes, *filter(None, (tuned_sentence(model),))):
        note(told)
    try:
        yield Direct(file, model, ring_tables(model.cache_groups, model.n_ctx))
    finally:
        model.close()
