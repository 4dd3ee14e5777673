"""A session that goes back to any earlier token of a conversation answers as if nothing had been computed before: every golden
model, every token, one by one backwards and in no order. The medium prompt; the long one for models with windows, and
for all with LAYERDECK_LONG=1."""

from __future__ import annotations

import os
import random
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from engine.api.events import Event, Finished
from engine.api.values import RequestId, SamplingParams, Usage
from engine.runtime.cache_groups import CacheGroup
from engine.runtime.choices import Chosen
from engine.runtime.loader import LoadedModel
from engine.runtime.step import StepBatch
from engine.runtime.tally import ExpertTally
from engine.session.generate import Session
from engine.session.states import TAIL
from tests.helpers.fake_model import FakeTokenizer
from tests.helpers.golden_models import F32, HYBRIDS, MODELS, golden, same_until_close_call
from tests.helpers.runs import EXACT, open_model

WINDOWED = ("gemma3", "gpt-oss")
LONG = MODELS if os.environ.get("LAYERDECK_LONG") else WINDOWED
N_ANSWER = 3
CLOSE = 1e-3
"""Chunks of other sizes round otherwise; two ids this close may change places."""


class Watched:
    """A model that remembers by how much the first id of each row was ahead."""

    def __init__(self, model: LoadedModel) -> None:
        self._model, self.margins = model, list[float]()

    @property
    def n_ctx(self) -> int:
        return self._model.n_ctx

    @property
    def cache_groups(self) -> tuple[CacheGroup, ...]:
        return self._model.cache_groups

    @property
    def state_slots(self) -> tuple[int, int]:
        return self._model.state_slots

    @property
    def experts(self) -> ExpertTally | None:
        return self._model.experts

    @property
    def chosen(self) -> tuple[Chosen, ...]:
        return self._model.chosen

    def step(self, batch: StepBatch) -> F32:
        logits = self._model.step(batch)
        best = np.partition(logits, -2, axis=1)[:, -2:]
        self.margins += (best[:, 1] - best[:, 0]).tolist()
        return logits


def session_on(model: Watched, n_vocab: int, events: list[Event]) -> Session:
    return Session(model, FakeTokenizer(n_vocab=n_vocab), 64, events.append)  # type: ignore[arg-type]


def ask(session: Session, events: list[Event], ids: list[int], n: int) -> Usage:
    events.clear()
    session.add(RequestId("one"), ids, SamplingParams(temperature=0.0, max_tokens=n), 0.0, ends_at_eog=False)
    while not session.idle:
        session.step()
    end = events[-1]
    assert isinstance(end, Finished)
    return end.usage


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", MODELS)
def test_going_back_to_every_earlier_token(name: str) -> None:
    one, prompt = golden(name), "long" if name in LONG else "medium"
    ids, n_vocab, options = one.ids(prompt), one.logits("short").shape[1], replace(EXACT, prefill_chunk=64, n_ctx=512)
    models = [open_model(one.path, options) for _ in range(2)]
    kept, anew = Watched(models[0]), Watched(models[1])
    events: list[Event] = []
    session = session_on(kept, n_vocab, events)
    tokens = [*ids, *ask(session, events, ids, 32).token_ids]
    assert tokens[len(ids) :] == one.greedy(prompt)

    def answer_anew(n: int) -> tuple[tuple[int, ...], list[float]]:
        anew.margins.clear()
        return ask(session_on(anew, n_vocab, events), events, tokens[:n], N_ANSWER).token_ids, list(anew.margins)

    wanted = {n: answer_anew(n) for n in range(1, len(tokens))}
    go_back = partial(ask, session, events)
    compared, n_far = 0, 0
    for n in reversed(wanted):
        usage = go_back(tokens[:n], N_ANSWER)
        compared += same_until_close_call(usage.token_ids, *wanted[n], CLOSE)
        n_far += n - usage.n_reused > (TAIL if name in HYBRIDS else 1)
    # Going back by one computes the last token again; sometimes all that follows a window that was dropped, or the beginning when
    # no snapshot is left, which makes one eight tokens earlier.
    n_rest = {**dict.fromkeys(HYBRIDS, len(tokens) // TAIL + 2), **dict.fromkeys(WINDOWED, len(tokens) // 40)}
    assert n_far <= n_rest.get(name, 0)
    mixed = list(wanted)
    random.Random(1).shuffle(mixed)
    for n in mixed:
        compared += same_until_close_call(go_back(tokens[:n], N_ANSWER).token_ids, *wanted[n], CLOSE)
    assert compared > 0.98 * 2 * N_ANSWER * len(wanted)
    for model in models:
        model.close()
