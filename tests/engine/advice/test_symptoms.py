"""The tree of symptoms: whole, walkable by evidence and by answers, every end with something to do, and no false advice."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.advice.doctor.table import CHECKS
from engine.advice.symptom_walk import (
    Answer,
    Cause,
    Evidence,
    FromCheck,
    FromFigure,
    FromFinding,
    Myth,
    Question,
    Said,
    Symptom,
    Tree,
    tree_of,
    walk,
)
from engine.advice.symptoms import QUESTIONS, SYMPTOMS, TREE
from tests.helpers.false_advice import false_advice_in

CAUSES = [node for node in TREE.nodes.values() if isinstance(node, Cause)]
SOURCES = [source for question in QUESTIONS for answer in question.answers for source in answer.told_by]
CHECKS_ASKED = sorted({source.id for source in SOURCES if isinstance(source, FromCheck)})
RULES = sorted({source.rule for source in SOURCES if isinstance(source, FromFinding)})
NOTHING = Evidence()


def ends(symptom: Symptom) -> set[str]:
    """The causes that a person can come to."""
    found, open_nodes = set(), [symptom.first]
    seen: set[str] = set()
    while open_nodes:
        node = TREE.nodes[open_nodes.pop()]
        if node.id in seen:
            continue
        seen.add(node.id)
        if isinstance(node, Cause):
            found.add(node.id)
        else:
            open_nodes += [answer.then for answer in node.answers]
    return found


def test_every_cause_can_be_reached_and_every_symptom_ends() -> None:
    reached = set().union(*(ends(symptom) for symptom in SYMPTOMS))
    assert reached == {cause.id for cause in CAUSES}
    assert all(ends(symptom) for symptom in SYMPTOMS)


def test_every_check_that_is_asked_or_linked_exists() -> None:
    rows = {check.id for check in CHECKS} | {f"D-QT-{n}" for n in range(1, 9)}
    asked = set(CHECKS_ASKED) | {link.target for cause in CAUSES for link in cause.links if link.kind == "check"}
    assert asked <= rows, asked - rows


def test_no_walk_is_long() -> None:
    def depth(id: str) -> int:
        node = TREE.nodes[id]
        return 0 if isinstance(node, Cause) else 1 + max(depth(answer.then) for answer in node.answers)

    assert max(depth(symptom.first) for symptom in SYMPTOMS) <= 5


@pytest.mark.parametrize("cause", CAUSES, ids=lambda one: one.id)
def test_every_cause_is_one_sentence_with_something_to_do(cause: Cause) -> None:
    assert cause.todo and all(step.endswith(".") for step in cause.todo)
    assert cause.links or len(cause.todo) > 1
    assert cause.cause.endswith(".") and cause.cause.count("\n") == 0


@pytest.mark.parametrize("cause", CAUSES, ids=lambda one: one.id)
def test_no_step_holds_false_advice(cause: Cause) -> None:
    for text in (cause.cause, *cause.todo, *(link.text for link in cause.links)):
        assert not false_advice_in(text), text


@pytest.mark.parametrize("cause", CAUSES, ids=lambda one: one.id)
def test_claims_are_answered_and_read_as_claims(cause: Cause) -> None:
    for myth in cause.myths:
        assert myth.text.startswith("You may have read that ")
        assert myth.claim[0] == myth.claim[0].lower() or myth.claim.startswith(("OMP", "PCIe", "AER", "DDR", "C-s"))
        assert not myth.claim.endswith(".") and myth.truth.endswith(".")
        assert not false_advice_in(myth.truth.replace("/sys/module/pcie_aspm", "")) or "ethtool reads" in myth.truth


def test_the_field_reports_claims_about_faults_are_answered() -> None:
    told = " ".join(myth.text for cause in CAUSES for myth in cause.myths)
    for word in (
        "OMP_NUM_THREADS", "glibc", "535.129", "NVLink", "drop_caches", "swappiness", "taskset", "numactl", "rope_theta", "IOMMU",
        "AER", "C-states", "CMOS", "lanes", "16 GB/s", "aspm", "persistenced", "systemd-resolved", "F16", "DDR4-3600",
        "scheduler", "ethtool", "PowerMizer", "warm", "MemUsed", "65 to 75 %", "OpenGL", "4-bit", "sound card", "multithreading",
    ):  # fmt: skip
        assert word in told, word


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda one: one.id)
def test_every_question_can_be_answered_by_a_person(question: Question) -> None:
    assert len(question.answers) >= 2 and len({answer.key for answer in question.answers}) == len(question.answers)
    assert question.text.endswith("?")
    for answer in question.answers:
        tree = _only(question)
        done = walk(tree, tree.symptom("s"), NOTHING, {question.id: answer.key})
        assert [step.answer for step in done.steps] == [answer] and not done.steps[0].told
    tree = _only(question)
    assert walk(tree, tree.symptom("s"), NOTHING, {question.id: "no such answer"}).end is question


def _only(question: Question) -> Tree:
    """The question alone, each answer an end."""
    ends_ = (Cause(id, "x.", ("y.",)) for id in {answer.then for answer in question.answers})
    return tree_of((Symptom("s", "", "", question.id),), (question, *ends_))


@pytest.mark.parametrize("symptom", SYMPTOMS, ids=lambda one: one.id)
@given(data=st.data())
def test_any_evidence_and_any_answers_lead_to_a_question_or_a_cause(symptom: Symptom, data: st.DataObject) -> None:
    status = st.sampled_from(("pass", "warn", "fail", "unknown", "n/a"))
    said = st.dictionaries(st.sampled_from(CHECKS_ASKED), status.map(lambda one: Said(one, "A sentence.")))
    finding = st.dictionaries(st.sampled_from(RULES), st.just("A finding."))
    figure = st.dictionaries(
        st.sampled_from(("prompt_tokens", "answers", "context_percent", "gpu_percent", "n_gpus", "growth_mb_h")),
        st.floats(0, 1e6),
    )
    evidence = Evidence(data.draw(said), data.draw(finding), data.draw(figure))
    keys = st.sampled_from(sorted({answer.key for question in QUESTIONS for answer in question.answers}))
    given_answers = data.draw(st.dictionaries(st.sampled_from([one.id for one in QUESTIONS]), keys))
    done = walk(TREE, symptom, evidence, given_answers)
    assert len(done.steps) <= 6
    for step in done.steps:
        assert step.told == (step.answer.key != given_answers.get(step.question.id)) or step.told is False
    if isinstance(done.end, Question):
        assert done.end.told(evidence) is None
        ruled = {answer.key for answer, _because in done.end.ruled_out(evidence)}
        assert ruled < {answer.key for answer in done.end.answers}


TWO = Question(
    "q",
    "Which?",
    (
        Answer("a", "A", "left", (FromCheck("D-1"), FromFinding("R-1"))),
        Answer("b", "B", "right", (FromFigure("n", "There are %1 of them.", 2, 9),)),
        Answer("c", "C", "rest"),
    ),
)
SMALL = tree_of((Symptom("s", "S", "", "q"),), (TWO, *(Cause(id, "x.", ("y.",)) for id in ("left", "right", "rest"))))


def end(evidence: Evidence, given_answers: dict[str, str] | None = None) -> str:
    return walk(SMALL, SMALL.symptoms[0], evidence, given_answers or {}).end.id


def test_evidence_answers_and_the_person_overrules_it() -> None:
    warned = Evidence({"D-1": Said("warn", "It is so.")})
    done = walk(SMALL, SMALL.symptom("s"), warned, {})
    assert (done.end.id, done.steps[0].told, done.steps[0].because) == ("left", True, "It is so.")
    assert end(warned, {"q": "b"}) == "right"
    assert end(Evidence(findings={"R-1": "Now."})) == "left"
    figured = walk(SMALL, SMALL.symptom("s"), Evidence(figures={"n": 3}), {})
    assert (figured.end.id, figured.steps[0].because) == ("right", "There are 3 of them.")


@pytest.mark.parametrize(("status", "n"), list(product(("pass", "n/a"), (1.0, 10.0))))
def test_the_last_answer_is_taken_when_all_others_are_denied(status: str, n: float) -> None:
    assert end(Evidence({"D-1": Said(status, "Not so.")}, figures={"n": n})) == "rest"


@pytest.mark.parametrize("status", ["unknown", ""])
def test_what_is_not_known_is_asked(status: str) -> None:
    checks = {"D-1": Said(status, "")} if status else {}
    done = walk(SMALL, SMALL.symptoms[0], Evidence(checks, figures={"n": 1}), {})
    assert done.end is TWO
    assert [answer.key for answer, _because in TWO.ruled_out(Evidence(checks, figures={"n": 1}))] == ["b"]


def test_a_tree_with_a_hole_is_refused() -> None:
    with pytest.raises(ValueError, match="no such node: left"):
        tree_of((Symptom("s", "S", "", "q"),), (TWO, *(Cause(id, "x.", ("y.",)) for id in ("right", "rest"))))
    with pytest.raises(ValueError, match="one id"):
        tree_of((), (TWO, TWO))
    again = Question("again", "Again?", (Answer("yes", "Yes", "again"), Answer("no", "No", "rest")))
    with pytest.raises(ValueError, match="circle"):
        tree_of((Symptom("s", "S", "", "again"),), (again, Cause("rest", "x.", ("y.",))))
    with pytest.raises(KeyError):
        TREE.symptom("none")


def test_a_claim_reads_as_one() -> None:
    assert Myth("it is so", "It is not.").text == "You may have read that it is so. It is not."
