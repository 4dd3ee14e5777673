"""Counts of experts through the engine: of the model as events, of each answer with its usage."""

from __future__ import annotations

import numpy as np
import pytest

from engine.api.commands import Cancel, Generate, UnloadModel, WatchExperts
from engine.api.events import ExpertCounts, Finished, TokenDelta
from engine.api.expert_use import ExpertUse
from engine.api.values import LoadOptions, RequestId, SamplingParams
from tests.helpers.golden_models import LLAMAS, golden
from tests.helpers.recorder import Recorder, new_id

MOE, DENSE = golden("qwen3moe").path, golden(LLAMAS[0]).path
OPTIONS = LoadOptions(n_threads=1, k_type="f32", v_type="f32", f32_activations=True)


@pytest.fixture
def recorder() -> object:
    with Recorder() as made:
        yield made


def ask(n_prompt: int, n: int, first: int = 3) -> Generate:
    ids = tuple(range(first, first + n_prompt))
    return Generate(new_id(), ids=ids, sampling=SamplingParams(temperature=0.0, max_tokens=n), ignore_eog=True)


def use_of(end: Finished) -> ExpertUse:
    assert end.usage.experts is not None
    return end.usage.experts


def counted(recorder: Recorder, watch: RequestId) -> list[ExpertCounts]:
    return [event for event in recorder.of(watch) if isinstance(event, ExpertCounts)]


def test_an_answer_has_its_own_counts(recorder: Recorder) -> None:
    """Every token but the last, which is not computed, passes each layer; a prompt leaves the last one with a single token."""
    recorder.load(MOE, OPTIONS)
    use = use_of(recorder.finished(ask(20, 9)))
    assert use.rows == (*(28,) * (len(use.layers) - 1), 9)
    assert use.counts().sum(axis=1).tolist() == [rows * 4 for rows in use.rows]
    again = use_of(recorder.finished(ask(20, 9)))
    assert again.n_tokens == 9  # of the prompt only the last token is computed
    assert (again.counts() <= use.counts()).all()


def test_answers_at_the_same_time_share_what_the_model_counted(recorder: Recorder) -> None:
    recorder.load(MOE, OPTIONS)
    watch = WatchExperts(new_id("watch"), 0.05)
    recorder.finished(watch)
    asked = [ask(5 + 40 * i, 30 + i, 3 + 50 * i) for i in range(3)]
    for one in asked:
        recorder.engine.submit(one)
    uses = [use_of(end) for one in asked if isinstance(end := recorder.end_of(one.request_id), Finished)]
    total = sum(use.n_tokens for use in uses)
    recorder.wait_for(lambda events: any(isinstance(e, ExpertCounts) and e.n_tokens == total for e in events))
    last = counted(recorder, watch.request_id)[-1]
    np.testing.assert_array_equal(sum(use.counts().astype(np.uint64) for use in uses), last.counts)
    assert last.layers == uses[0].layers
    assert last.rows == tuple(np.sum([use.rows for use in uses], axis=0).tolist())
    alone = use_of(recorder.finished(ask(5, 30, 200)))
    assert alone.counts().sum() == 4 * sum(alone.rows)


def test_a_watch_tells_while_an_answer_is_made_and_rests_with_it(recorder: Recorder) -> None:
    recorder.load(MOE, OPTIONS)
    watch = WatchExperts(new_id("watch"), 0.05)
    recorder.finished(watch)
    endless = ask(4, 1500)
    recorder.engine.submit(endless)
    recorder.wait_for(lambda events: sum(isinstance(e, ExpertCounts) for e in events) >= 4)
    told = [event.n_tokens for event in counted(recorder, watch.request_id)]
    assert told == sorted(set(told))
    recorder.finished(Cancel(new_id("cancel"), endless.request_id))
    usage = recorder.end_of(endless.request_id).usage
    assert usage.experts is not None
    n = usage.experts.n_tokens
    recorder.wait_for(lambda events: any(isinstance(e, ExpertCounts) and e.n_tokens == n for e in events))
    recorder.finished(WatchExperts(new_id("watch"), 0))
    before = len(counted(recorder, watch.request_id))
    recorder.finished(ask(4, 20))
    assert len(counted(recorder, watch.request_id)) == before


def test_models_without_experts_and_none_at_all_tell_nothing(recorder: Recorder) -> None:
    watch = WatchExperts(new_id("watch"), 0.05)
    recorder.finished(watch)
    recorder.load(DENSE, OPTIONS)
    end = recorder.finished(ask(4, 12))
    assert end.usage.experts is None
    recorder.finished(UnloadModel(new_id()))
    assert not counted(recorder, watch.request_id)
    assert any(isinstance(event, TokenDelta) for event in recorder.events)


def test_counts_begin_anew_with_each_model(recorder: Recorder) -> None:
    recorder.load(MOE, OPTIONS)
    watch = WatchExperts(new_id("watch"), 0.05)
    recorder.finished(watch)
    recorder.finished(ask(4, 12))
    recorder.wait_for(lambda events: any(isinstance(e, ExpertCounts) and e.n_tokens == 15 for e in events))
    recorder.load(MOE, OPTIONS)
    recorder.wait_for(lambda events: isinstance(events[-1], ExpertCounts) and events[-1].n_tokens == 0)
