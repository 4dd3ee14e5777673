"""Going back to any earlier token of a conversation with a recurrent model gives the ids that computing it anew gives."""

from __future__ import annotations

from array import array

import pytest

from engine.api.events import Event, Finished
from engine.api.values import LoadOptions, RequestId, SamplingParams
from engine.session.generate import Session
from tests.helpers.fake_model import FakeTokenizer
from tests.helpers.golden_models import golden, greedy
from tests.helpers.runs import EXACT, open_model

N_ANSWER = 6


def ask(session: Session, events: list[Event], ids: list[int], n: int) -> Finished:
    """The end of a greedy answer of n tokens."""
    name = RequestId(str(len(events)))
    session.add(name, ids, SamplingParams(temperature=0.0, max_tokens=n), 0.0, ends_at_eog=False)
    while not session.idle:
        session.step()
    end = events[-1]
    assert isinstance(end, Finished)
    return end


@pytest.mark.parametrize("name", ["qwen35", "qwen35moe", "qwen3next"])
def test_any_earlier_token(name: str) -> None:
    model, anew = open_model(golden(name).path, EXACT), open_model(golden(name).path, EXACT)
    events: list[Event] = []
    session = Session(model, FakeTokenizer(n_vocab=512), 64, events.append)  # type: ignore[arg-type]
    ids = golden(name).ids("medium")
    first = ask(session, events, ids, 32)
    assert list(first.usage.token_ids) == golden(name).greedy("medium")
    tokens = [*ids, *first.usage.token_ids]
    reused = []
    for n in range(len(tokens) - 1, 4, -9):
        end = ask(session, events, tokens[:n], N_ANSWER)
        assert list(end.usage.token_ids) == greedy(anew, tokens[:n], N_ANSWER)
        reused.append(end.usage.n_reused)
    assert max(reused) > 0
    model.close()
    anew.close()


def test_memory_for_one_snapshot_is_enough() -> None:
    model = open_model(golden("qwen35").path, LoadOptions(n_threads=1, snapshot_bytes=1))
    assert model.state_slots == (4, 1)
    events: list[Event] = []
    session = Session(model, FakeTokenizer(n_vocab=512), 64, events.append)  # type: ignore[arg-type]
    ids = golden("qwen35").ids("medium")
    first = ask(session, events, ids, 8)
    following = [*array("i", ids), *first.usage.token_ids, 5, 6, 7]
    assert ask(session, events, following, 4).usage.n_reused == len(ids) + 7
    model.close()
