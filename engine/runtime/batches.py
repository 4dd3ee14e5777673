"""Batches of more sequences than a step takes, in parts."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from engine.errors import InvalidRequest
from engine.runtime.step import StepBatch


def parts_of(batch: StepBatch, most: int) -> Iterator[StepBatch]:
    """A batch of one row for each of many sequences, in parts of `most`, its wanted rows in the order of the batch.

    Raises:
        InvalidRequest: rows or wanted rows that are in another order.
    """
    order = np.argsort(batch.out_rows, kind="stable")
    if not np.array_equal(order, np.arange(len(order))) or not np.array_equal(batch.seq_of_row, np.arange(len(batch.token_ids))):
        raise InvalidRequest(f"a step of {len(batch.block_tables)} sequences whose rows are not in order; make it smaller")
    for start in range(0, len(batch.token_ids), most):
        rows = slice(start, start + most)
        wanted = batch.out_rows[(batch.out_rows >= start) & (batch.out_rows < start + most)] - start
        yield StepBatch(
            batch.phase,
            batch.token_ids[rows],
            batch.positions[rows],
            batch.seq_of_row[rows] - start,
            batch.block_tables[rows],
            wanted.astype(np.int32),
            None if batch.states is None else batch.states[rows],
        )
