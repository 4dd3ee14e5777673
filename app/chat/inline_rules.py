"""Two inline rules for markdown-it: emphasis beside Chinese, Japanese and Korean text, and formulas in \\( \\)."""

from __future__ import annotations

import unicodedata

from markdown_it.rules_inline import StateInline
from markdown_it.rules_inline.state_inline import Delimiter

_MARKERS = "*_"


def _is_cjk(char: str) -> bool:
    return unicodedata.east_asian_width(char) in ("W", "F") if char else False


def _is_space(char: str) -> bool:
    return not char or char.isspace()


def _is_punctuation(char: str) -> bool:
    return bool(char) and unicodedata.category(char)[0] in "PS"


def flanking(before: str, after: str, underscore: bool) -> tuple[bool, bool]:
    """(can open, can close) of a run of markers between two characters ("" at the ends).

    CommonMark's rule, except that punctuation counts as a letter next to a wide character: there are no spaces around words
    in these scripts, so `**总结：**注` would otherwise stay unset.
    """
    wide = _is_cjk(before) or _is_cjk(after)
    left = not _is_space(after) and (wide or not _is_punctuation(after) or _is_space(before) or _is_punctuation(before))
    right = not _is_space(before) and (wide or not _is_punctuation(before) or _is_space(after) or _is_punctuation(after))
    if not underscore:
        return left, right
    return left and (not right or _is_punctuation(before)), right and (not left or _is_punctuation(after))


def emphasis(state: StateInline, silent: bool) -> bool:
    """Collect a run of `*` or `_` as delimiters; markdown-it pairs them afterwards."""
    marker = state.src[state.pos]
    if silent or marker not in _MARKERS:
        return False
    end = state.pos
    while end < state.posMax and state.src[end] == marker:
        end += 1
    before = state.src[state.pos - 1] if state.pos > 0 else ""
    after = state.src[end] if end < state.posMax else ""
    can_open, can_close = flanking(before, after, marker == "_")
    count = end - state.pos
    for _ in range(count):
        token = state.push("text", "", 0)
        token.content = marker
        state.delimiters.append(
            Delimiter(marker=ord(marker), length=count, token=len(state.tokens) - 1, end=-1, open=can_open, close=can_close)
        )
    state.pos = end
    return True


def bracket_math(state: StateInline, silent: bool) -> bool:
    """`\\( x \\)` as an inline formula."""
    if not state.src.startswith("\\(", state.pos):
        return False
    end = state.src.find("\\)", state.pos + 2)
    if end < 0 or end >= state.posMax:
        return False
    if not silent:
        token = state.push("math_inline", "math", 0)
        token.content = state.src[state.pos + 2 : end]
        token.markup = "\\("
    state.pos = end + 2
    return True
