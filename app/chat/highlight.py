"""Code to coloured runs: Pygments in the worker thread, five colours of the theme."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

MAX_CHARS = 64 * 1024
Run = tuple[int, int, str]
"""start and length in UTF-16 units, as Qt counts; theme token"""


@lru_cache(maxsize=64)
def _lexer(language: str) -> Any | None:
    from pygments.lexers import get_lexer_by_name
    from pygments.util import ClassNotFound

    try:
        return get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None


@lru_cache(maxsize=1)
def _classifier() -> Callable[[Any], str]:
    from pygments.token import Comment, Keyword, Literal, Name, Number, Operator, String

    table = (
        (Keyword.Constant, "syn_number"),
        (Keyword.Type, "syn_function"),
        (Keyword, "syn_keyword"),
        (Operator.Word, "syn_keyword"),
        (Comment, "syn_comment"),
        (String.Interpol, "text"),
        (String, "syn_string"),
        (Number, "syn_number"),
        (Literal, "syn_number"),
        (Name.Function, "syn_function"),
        (Name.Class, "syn_function"),
        (Name.Builtin, "syn_function"),
        (Name.Decorator, "syn_function"),
        (Name.Tag, "syn_keyword"),
        (Name.Attribute, "syn_function"),
    )

    def classify(kind: Any) -> str:
        return next((token for parent, token in table if kind in parent), "")

    return classify


def highlight(code: str, language: str) -> tuple[Run, ...]:
    """Runs that differ from plain text; empty for an unknown language or very long code."""
    lexer = _lexer(language.lower()) if language and len(code) <= MAX_CHARS else None
    if lexer is None:
        return ()
    classify = _classifier()
    runs: list[Run] = []
    shift = 0
    for start, kind, value in lexer.get_tokens_unprocessed(code):
        wide = sum(char > "\uffff" for char in value) if not value.isascii() else 0
        token = classify(kind)
        if token and value.strip():
            runs.append((start + shift, len(value) + wide, token))
        shift += wide
    return tuple(runs)
