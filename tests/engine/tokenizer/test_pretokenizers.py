"""Splitting rules of families that no golden vocabulary covers, by hand."""

from __future__ import annotations

import pytest
from tokenizers import Regex
from tokenizers.pre_tokenizers import Split

from engine.tokenizer.pretokenizers import PRETOKENIZERS


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("Hello world", ["Hello", " world"]),
        ("it's", ["it", "'s"]),  # an apostrophe goes with the letters after it; contractions have no rule of their own
        ("camelCase HTTPServer", ["camel", "Case", " HTTPServer"]),
        ("x1234 5", ["x", "1", "2", "3", "4", " ", "5"]),
        ("Grüße ÉCOLE", ["Grüße", " ÉCOLE"]),
        ("a //\n b", ["a", " //\n", " b"]),
        ("a   b", ["a", "  ", " b"]),
    ],
)
def test_tekken(text: str, pieces: list[str]) -> None:
    rule = PRETOKENIZERS["tekken"]
    found = Split(Regex(rule.regexes[0]), "isolated").pre_tokenize_str(text)
    assert [piece for piece, _ in found] == pieces
    assert rule.ignore_merges and rule.add_bos


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("Hello 世界abc漢字test", ["Hello", " ", "世界", "abc", "漢字", "test"]),  # no word takes in Chinese characters
        ("日本語ひらがなカタカナ 한국어", ["日本語", "ひらがなカタカナ", " 한국어"]),
        ("camelCase HTTPServer'll", ["camel", "Case", " HTTPServer'll"]),
        ("x12345!!\n\n  a/\n/", ["x", "123", "45", "!!\n\n", " ", " a", "/\n", "/"]),
        ("漢's  。、b", ["漢", "'s", " ", " 。、", "b"]),
        ("re\u0301sume\u0301", ["re\u0301sume\u0301"]),
    ],
)
def test_kimi_k2(text: str, pieces: list[str]) -> None:
    (regex,) = PRETOKENIZERS["kimi-k2"].regexes
    assert [piece for piece, _ in Split(Regex(regex), "isolated").pre_tokenize_str(text)] == pieces


@pytest.mark.parametrize(
    ("name", "like"),
    [
        ("hunyuan", "qwen2"),
        ("solar-open", "qwen2"),
        ("minimax-m2", "gpt-4o"),
        ("kanana2", "gpt-4o"),
        ("joyai-llm", "deepseek-v3"),
        ("minerva-7b", "starcoder"),
    ],
)
def test_rules_that_are_those_of_another_family(name: str, like: str) -> None:
    assert PRETOKENIZERS[name] == PRETOKENIZERS[like]
