"""A model and a tokenizer without weights: the next token is a hash of all tokens that the KV blocks hold.

A wrong block, a wrong position or a wrong reuse therefore changes the answer.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from engine.runtime.cache_groups import CacheGroup
from engine.runtime.choices import Chosen
from engine.runtime.step import StepBatch
from engine.runtime.tally import ExpertTally

BLOCK = 32
N_VOCAB = 97
EOG = 96


def next_token(tokens: list[int]) -> int:
    """What the fake model says after `tokens`."""
    value = 0
    for token in tokens:
        value = (value * 31 + token + 1) % 1_000_003
    return value % N_VOCAB


def answer(prompt: list[int], n: int) -> list[int]:
    """The greedy answer to a prompt, ending with EOG at the latest after n tokens."""
    tokens = list(prompt)
    while len(tokens) < len(prompt) + n:
        tokens.append(next_token(tokens))
        if tokens[-1] == EOG:
            break
    return tokens[len(prompt) :]


@dataclass
class FakeModel:
    """`step` as the executor has it. steps: the batches it got; fail_with: raised by the next step."""

    n_ctx: int = 256
    n_blocks: int = 8
    steps: list[StepBatch] = field(default_factory=list)
    fail_with: Exception | None = None
    state_slots: tuple[int, int] = (0, 0)
    experts: ExpertTally | None = None
    chosen: tuple[Chosen, ...] = ()

    def __post_init__(self) -> None:
        self.cache = np.full((self.n_blocks, BLOCK), -1, np.int64)

    @property
    def cache_groups(self) -> tuple[CacheGroup, ...]:
        """One pool of blocks."""
        return (CacheGroup(None, self.n_blocks, self.n_blocks, self.n_blocks),)

    def step(self, batch: StepBatch) -> npt.NDArray[np.float32]:
        """One-hot logits [n_out, N_VOCAB]."""
        self.steps.append(batch)
        if self.fail_with is not None:
            error, self.fail_with = self.fail_with, None
            raise error
        for token, position, seq in zip(batch.token_ids, batch.positions, batch.seq_of_row, strict=True):
            self.cache[batch.block_tables[seq][0][position // BLOCK], position % BLOCK] = token
        logits = np.zeros((len(batch.out_rows), N_VOCAB), np.float32)
        for out, row in enumerate(batch.out_rows):
            table, position = batch.block_tables[batch.seq_of_row[row]][0], batch.positions[row]
            seen = self.cache[table].reshape(-1)[: position + 1].tolist()
            logits[out, next_token(seen)] = 10.0
        return logits


@dataclass(frozen=True)
class FakeVocab:
    """Only what sessions look at."""

    eog_ids: frozenset[int] = frozenset({EOG})


@dataclass(frozen=True)
class FakeTokenizer:
    """Token i is the letter chr(48 + i)."""

    vocab: FakeVocab = FakeVocab()
    n_vocab: int = N_VOCAB

    def token_bytes(self, token: int) -> bytes:
        """UTF-8 of the letter."""
        return chr(48 + token).encode()


def text_of(tokens: list[int]) -> str:
    """The text of an answer, without EOG."""
    return "".join(chr(48 + token) for token in tokens if token != EOG)
