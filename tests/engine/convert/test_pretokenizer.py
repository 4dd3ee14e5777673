"""The rule of a tokenizer is found by what it does."""

from __future__ import annotations

from pathlib import Path

import pytest
import tokenizers
from tokenizers import models, pre_tokenizers

from engine.convert.pretokenizer import NAMES, recognise
from engine.errors import ConversionError
from tests.helpers.checkpoints import write_tokenizer


@pytest.mark.parametrize("name", NAMES)
def test_every_rule_is_told_from_the_others(tmp_path: Path, name: str) -> None:
    write_tokenizer(tmp_path, name)
    assert recognise((tmp_path / "tokenizer.json").read_text()) == name


def bare(cut: object) -> str:
    made = tokenizers.Tokenizer(models.BPE({"a": 0}, []))
    if cut is not None:
        made.pre_tokenizer = cut  # type: ignore[assignment]
    text: str = made.to_str()
    return text


def test_other_spellings_of_a_rule_are_the_same_rule() -> None:
    assert recognise(bare(pre_tokenizers.ByteLevel(add_prefix_space=False))) == "gpt-2"
    digits = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )  # type: ignore[list-item]
    assert recognise(bare(digits)) == "smollm"


def test_unknown_rules_are_refused() -> None:
    for cut in (pre_tokenizers.Whitespace(), pre_tokenizers.BertPreTokenizer()):
        with pytest.raises(ConversionError, match="by a rule that is not known"):
            recognise(bare(cut))
    with pytest.raises(ConversionError, match="it cuts no text"):
        recognise(bare(None))
