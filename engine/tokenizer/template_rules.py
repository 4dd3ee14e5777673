"""What a chat template may not contain, checked on its text alone, before any template engine sees it: names of Python's insides,
huge constants, deep nesting. Cheap enough for opening a file; the helper that renders checks the parsed template again."""

from __future__ import annotations

import re

from engine.gguf import keys
from engine.gguf.info import GgufFile

_TOOL_USE = "tool_use"
"""The name by which files call a template for conversations with tools."""

MAX_TEMPLATE_BYTES = 256 << 10
MAX_NESTING = 64
MAX_NUMBER = 1_000_000

SPECIAL_VARIABLES = frozenset({"bos_token", "eos_token", "unk_token", "pad_token"})
"""Variables of templates that hold texts of special tokens: what they spell is the template's own text."""

_ADVICE = "the template is hostile or broken; use the plain ChatML template or get the file from a source you trust"
_OPENING = re.compile(r"\{[{%#]")
_END_OF_RAW = re.compile(r"\{%[-+]?\s{0,9}endraw\s{0,9}[-+]?%\}")
_TOKEN = re.compile(
    r"""\s+|(?P<string>'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*")|(?P<number>\d[\d_]*)|(?P<name>[^\W\d]\w*)|(?P<end>[-+]?[%}]\})"""
    r"""|(?P<op>\*\*|.)""",
    re.DOTALL,
)
_HIDDEN_STRING = re.compile(r"""['"]__[a-zA-Z]""")
_OPENERS = frozenset({"if", "for", "macro", "call", "filter", "block", "with", "autoescape", "generation"})
_REFUSED_STATEMENTS = frozenset({"include", "import", "from", "extends"})


def templates_of(file: GgufFile) -> dict[str, str]:
    """The chat templates in the file by name; the usual one has none: ""."""
    prefix = f"{keys.CHAT_TEMPLATE}."
    named = {key.removeprefix(prefix): value for key, value in file.metadata.items() if key.startswith(prefix)}
    found = {"": file.metadata.get(keys.CHAT_TEMPLATE), **named}
    return {name: template for name, template in found.items() if isinstance(template, str)}


def template_of(file: GgufFile, *, tools: bool = False) -> str | None:
    """The chat template of the file, or None. tools: that for conversations with tools, where there is one of its own."""
    templates = templates_of(file)
    usual = templates.get("", templates.get("default"))
    return templates.get(_TOOL_USE, usual) if tools else usual


def check_template(file: GgufFile) -> None:
    """Raises: GgufError when a chat template of the file breaks a rule of this module."""
    for name, template in templates_of(file).items():
        problem = template_problem(template)
        if problem is not None:
            raise file.error(f"{keys.CHAT_TEMPLATE}.{name}".removesuffix("."), problem, _ADVICE)


def template_problem(template: str) -> str | None:
    """Which rule the template breaks, as half a sentence; None when it breaks none. Takes time in proportion to the template."""
    if len(template.encode(errors="replace")) > MAX_TEMPLATE_BYTES:
        return f"the template is larger than {MAX_TEMPLATE_BYTES >> 10} KiB"
    scan = _Scan(template)
    while scan.problem is None and scan.next_tag():
        pass
    return scan.problem


class _Scan:
    """A walk over the tags of a template, which stops at the first problem."""

    def __init__(self, template: str) -> None:
        self._template = template
        self._at = 0
        self._depth = 0
        self.problem: str | None = None

    def next_tag(self) -> bool:
        """Checks the next tag; False when there is none."""
        opening = _OPENING.search(self._template, self._at)
        if opening is None:
            return False
        self._at = opening.end()
        if opening[0] == "{#":
            self._skip_past(self._template.find("#}", self._at), 2)
            return True
        names = self._check_code("%}" if opening[0] == "{%" else "}}")
        if opening[0] == "{%" and self.problem is None:
            self._check_statement(names[0] if names else "")
        return True

    def _skip_past(self, found: int, length: int) -> None:
        if found < 0:
            self.problem = "the template holds a comment or raw text without an end"
        self._at = found + length

    def _check_statement(self, word: str) -> None:
        if word in _REFUSED_STATEMENTS:
            self.problem = f"the template uses {word!r}, which reads other files"
        if word == "raw":
            end = _END_OF_RAW.search(self._template, self._at)
            self._skip_past(end.end() if end else -1, 0)
        self._depth += 1 if word in _OPENERS else -1 if word.startswith("end") and word != "endset" else 0
        if self._depth > MAX_NESTING:
            self.problem = f"the template nests more than {MAX_NESTING} statements"

    def _check_code(self, end: str) -> list[str]:
        """Checks the code up to the end of its tag; gives its names."""
        names: list[str] = []
        previous, brackets = "", 0
        while (token := _TOKEN.match(self._template, self._at)) is not None:
            kind, text = token.lastgroup, token[0]
            if kind == "end":
                if brackets == 0 and text.endswith(end):
                    self._at = token.end()
                    return names
                # A bracket that closes right before another one, or before a sign.
                kind, text = "op", text[0]
            self._at += len(text)
            if kind is None:
                continue
            brackets += (text in "([{") - (text in ")]}") if kind == "op" else 0
            self.problem = _token_problem(kind, text, previous, brackets)
            if self.problem is not None:
                return names
            if kind == "name":
                names.append(text)
            previous = text
        self.problem = "the template holds a tag without an end"
        return names


def _token_problem(kind: str, text: str, previous: str, brackets: int) -> str | None:
    if kind == "number" and int(text.replace("_", "")[:20]) > MAX_NUMBER:
        return f"the template holds the number {text[:20]}, beyond {MAX_NUMBER:,}"
    if kind == "op":
        if text in ("'", '"'):
            return "the template holds a string without an end"
        if text == "**":
            return "the template raises numbers to a power"
        if brackets > MAX_NESTING:
            return f"the template nests more than {MAX_NESTING} brackets"
    hidden = kind == "name" and (text.startswith("__") or (previous == "." and text.startswith("_")))
    if hidden or (kind == "string" and _HIDDEN_STRING.match(text)):
        return f"the template reaches for {text[:40]}, an inside of Python"
    if kind == "name" and previous == "|" and text == "attr":
        return "the template uses the filter 'attr', which reaches around the rules"
    return None
