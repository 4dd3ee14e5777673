"""What rules say of machines with several memory nodes: which of them, and whose workers and pages."""

from __future__ import annotations

from engine.advice.diagnosis.diagnose import diagnose
from engine.api.values import Astray, StrayWorker
from tests.helpers.windows import BROWSER, EVEN, TWO, facts, hog, snapshot, window, work


def test_the_node_that_others_took_is_named() -> None:
    first = diagnose(window(hog, known=facts(topology=TWO)))[0]
    assert first.id == "R-CONT" and first.sentence == (
        "ffmpeg uses 2 of the 8 cores the model works on, all on memory node 1: the other nodes wait for it."
    )
    assert "memory node" not in diagnose(window(hog))[0].sentence
    spread = window(lambda i: snapshot(i, use=97.0, process=BROWSER), known=facts(topology=TWO))
    assert "memory node" not in diagnose(spread)[0].sentence


def test_who_was_moved_and_where_to_is_said() -> None:
    one = diagnose(window(works=lambda i: work(i, strays=(StrayWorker(6, (1,)),)), known=facts(topology=TWO)))[0]
    assert one.sentence == (
        "A worker was moved off processor 6 by another program and may run on 1, on memory node 0: each step waits for it."
    )
    assert one.action.does == "repin" and one.action.cpus == "0-7"
    some = diagnose(window(works=lambda i: work(i, strays=(StrayWorker(2, (2, 3)), StrayWorker(3, (2, 3)))), known=facts()))[0]
    assert some.sentence == (
        "2 of 8 workers were let go from processors 2-3 by another program and may run on 2-3: each step waits for them."
    )


def test_which_node_should_have_the_pages_is_said() -> None:
    found = diagnose(window(works=lambda i: work(i, EVEN, astray=Astray(0.48, 1, 0)), known=facts(topology=TWO)))[0]
    assert found.sentence.startswith(
        "48 % of the weights sit on another memory node than they should, most of them on node 0 instead of"
    )
