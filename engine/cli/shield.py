"""Arguments that hold flags of another program, so that argparse does not take them for ours."""

from __future__ import annotations

from collections.abc import Sequence

_OURS = ("-h", "--help", "-o", "--out", "--model", "--machine", "--tensors", "--from", "--to", "--strict")
"""Options of `placement`, whose argument may be anything that starts with a dash."""


def shielded(command: str, argv: Sequence[str]) -> list[str]:
    """The arguments with foreign flags behind a blank, or joined to the option they belong to."""
    if command == "placement":
        return [f" {word}" if word.startswith("-") and word.partition("=")[0] not in _OURS else word for word in argv]
    words: list[str] = []
    for word in argv:
        if words and words[-1] == "--placement":
            words[-1] = f"--placement={word}"
        else:
            words.append(word)
    return words


def unshielded(word: str) -> str:
    """A word without the blank that `shielded` has put before it: in rules, blanks at the start mean something."""
    return word.removeprefix(" ") if word.startswith(" -") else word
