"""Recognises how a tokenizer.json cuts text before merging, by what it does: it and each rule that is known here cut the same
texts, and the rule that cuts them all alike is the one. Names of published models play no part."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import tokenizers
from tokenizers import pre_tokenizers

from engine.errors import ConversionError
from engine.tokenizer.pretokenizers import PRETOKENIZERS, PreTokenizer

_PROBES = (
    "Hello, World! It's he'll I'VE DON'T we'd o'clock 'tis",
    "1 12 123 1234 12345 3.14159 1,000,000 0x1F ²³ ٣٤٥ १२३ 四5",
    "a\nb\r\nc\n\n\nd \n e\t\tf   g\u00a0h\u3000i \u2009j \u200bk  \n  \n",
    "CamelCase XMLHttpRequest iPhone ÄÖÜ straße ǅ ʰa ﬁ ß ΑΒΓ абв ԱԲ გეო",
    "中文字符 日本語テスト ひらがな 한국어 ไทย हिन्दी தமிழ் עברית العربية e\u0301 n\u0303 ක්‍ර ខ្មែរ",
    "foo_bar(x[0]) != {'a': \"b\"}; // comment /* x */ a->b::c #!$%^&*~`|\\<>",
    "—–‘’“”…、。！？（）「」 €£¥ ∑√∞ →⇒ ☃😀👩‍👩‍👧 🇩🇪",
    " leading  two   three trailing ",
    "end of line/\n path/to/file /\r\n",
    "aé1中!b2한?c³д…",
)
_COMMON = (
    *("llama-bpe", "qwen2", "qwen35", "gpt-4o", "deepseek-v3", "deepseek-llm", "deepseek-coder", "smollm", "gpt-2"),
    *("chatglm-bpe", "default"),
)
"""Names that are found in many files; of names for the same rule the first one counts."""


def _one_name_each() -> tuple[str, ...]:
    """One name of each rule, the common ones first."""
    names: dict[tuple[tuple[str, ...], bool], str] = {}
    for name in (*_COMMON, *PRETOKENIZERS):
        rule = PRETOKENIZERS[name]
        names.setdefault((rule.regexes, rule.ignore_merges), name)
    return tuple(names.values())


NAMES = _one_name_each()


def recognise(tokenizer_json: str) -> str:
    """The name of the rule that cuts as the tokenizer in this file does.

    Raises: ConversionError where no known rule does.
    """
    theirs = tokenizers.Tokenizer.from_str(tokenizer_json)
    cut = theirs.pre_tokenizer
    if cut is None:
        raise ConversionError("tokenizer.json: it cuts no text before merging; such a tokenizer is not converted")
    pieces = [_pieces(cut, _normalised(theirs, text)) for text in _PROBES]
    ignores_merges = bool(_model(tokenizer_json).get("ignore_merges", False))
    alike = [name for name in NAMES if _cuts_alike(PRETOKENIZERS[name], theirs, pieces)]
    if not alike:
        raise ConversionError(f"tokenizer.json: it cuts text by a rule that is not known; known are those of {', '.join(NAMES)}")
    return next((name for name in alike if PRETOKENIZERS[name].ignore_merges == ignores_merges), alike[0])


def _cuts_alike(rule: PreTokenizer, theirs: Any, expected: Sequence[Sequence[str]]) -> bool:
    ours = rule_of(rule.regexes)
    return all(_pieces(ours, _normalised(theirs, text)) == pieces for text, pieces in zip(_PROBES, expected, strict=True))


def rule_of(regexes: Iterable[str]) -> Any:
    """A pre-tokenizer that applies regular expressions one after another, then writes bytes as characters."""
    splits = [pre_tokenizers.Split(tokenizers.Regex(regex), "isolated") for regex in regexes]
    return pre_tokenizers.Sequence([*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def _pieces(cut: Any, text: str) -> list[str]:
    return [piece for piece, _ in cut.pre_tokenize_str(text)]


def _normalised(tokenizer: Any, text: str) -> str:
    """Composed characters, where the tokenizer composes them first: that is no matter of cutting."""
    normaliser = tokenizer.normalizer
    return text if normaliser is None else str(normaliser.normalize_str(text))


def _model(tokenizer_json: str) -> dict[str, Any]:
    model: dict[str, Any] = json.loads(tokenizer_json)["model"]
    return model
