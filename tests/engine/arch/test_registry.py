"""Which architectures are run, and the sentence for those that are not."""

from __future__ import annotations

import pytest

from engine.arch.registry import NOT_YET, build_spec, supported
from engine.errors import GgufError, UnsupportedModel
from tests.helpers.headers import File


@pytest.mark.parametrize("name", [*NOT_YET, "some-model", "x" * 500])
def test_other_architectures_are_refused_in_a_sentence_that_lists_ours(name: str) -> None:
    with pytest.raises(UnsupportedModel) as caught:
        build_spec(File({"general.architecture": name}, {}))
    text = str(caught.value)
    assert name[:60] in text and "did you mean" not in text and "\n" not in text and len(text) < 600
    assert all(ours in text for ours in supported())


def test_a_slip_of_the_pen_is_named() -> None:
    with pytest.raises(UnsupportedModel, match=r"did you mean qwen3moe\?"):
        build_spec(File({"general.architecture": "qwen3-moe"}, {}))


def test_those_not_run_yet_are_not_among_those_run() -> None:
    assert not set(NOT_YET) & set(supported())


def test_a_file_that_names_none() -> None:
    with pytest.raises(GgufError, match=r"general\.architecture is missing"):
        build_spec(File({}, {}))
