"""What a chat template may not contain, checked on its text alone, before any template engine sees it: names of Python's insides,
huge constants, deep nesting. Cheap enough for opening a file; the helper that renders checks the parsed template again."""

from __future__ import annotations

import re

from engine.gguf import keys
from engine.gguf.info import GgufFile

MAX_TEMPLATE_BYTES = 256 << 10
MAX_NESTING = 64
MAX_NUMBER = 1_000_000

_ADVICE = "the template is hostile or broken; use the plain ChatML template or get the file from a source you trust"
_TAG = re.compile(r"\{#.*?#\}|\{\{(?P<expression>.*?)\}\}|\{%[-+]?\s*(?P<statement>.*?)%\}", re.DOTALL)
_RAW = re.compile(r"\{%[-+]?\s*raw\s*[-+]?%\}.*?\{%[-+]?\s*endraw\s*[-+]?%\}", re.DOTALL)
_TOKEN = re.compile(
    r"""(?P<string>'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*")|(?P<number>\d[\d_]*)|(?P<name>[^\W\d]\w*)|(?P<op>\*\*|[^\s\w])""",
    re.DOTALL,
)
_OPENERS = frozenset({"if", "for", "macro", "call", "filter", "block", "with", "autoescape", "generation"})
_REFUSED_STATEMENTS = frozenset({"include", "import", "from", "extends"})


def template_of(file: GgufFile) -> str | None:
    """The chat template in the file, or None."""
    template = file.metadata.get(keys.CHAT_TEMPLATE)
    return template if isinstance(template, str) else None


def check_template(file: GgufFile) -> None:
    """Raises: GgufError when the file's chat template breaks a rule of this module."""
    template = template_of(file)
    problem = None if template is None else template_problem(template)
    if problem is not None:
        raise file.error(keys.CHAT_TEMPLATE, problem, _ADVICE)


def template_problem(template: str) -> str | None:
    """Which rule the template breaks, as half a sentence; None when it breaks none."""
    if len(template.encode(errors="replace")) > MAX_TEMPLATE_BYTES:
        return f"the template is larger than {MAX_TEMPLATE_BYTES >> 10} KiB"
    depth = 0
    for tag in _TAG.finditer(_RAW.sub("", template)):
        statement = tag["statement"]
        word = re.match(r"[a-z]*", statement)[0] if statement is not None else ""  # type: ignore[index]  # matches always
        if word in _REFUSED_STATEMENTS:
            return f"the template uses {word!r}, which reads other files"
        depth += 1 if word in _OPENERS else -1 if word.startswith("end") and word != "endset" else 0
        if depth > MAX_NESTING:
            return f"the template nests more than {MAX_NESTING} statements"
        problem = _code_problem(statement if statement is not None else tag["expression"] or "")
        if problem is not None:
            return problem
    return None


def _code_problem(code: str) -> str | None:
    previous, brackets = "", 0
    for token in _TOKEN.finditer(code):
        kind, text = token.lastgroup, token[0]
        if kind == "number" and int(text.replace("_", "")[:20]) > MAX_NUMBER:
            return f"the template holds the number {text[:20]}, beyond {MAX_NUMBER:,}"
        if kind == "op":
            if text == "**":
                return "the template raises numbers to a power"
            brackets += 1 if text in "([{" else -1 if text in ")]}" else 0
            if brackets > MAX_NESTING:
                return f"the template nests more than {MAX_NESTING} brackets"
        hidden = (kind == "name" and text.startswith("__")) or (kind == "name" and previous == "." and text.startswith("_"))
        if hidden or (kind == "string" and text[1:3] == "__"):
            return f"the template reaches for {text[:40]}, an inside of Python"
        if kind == "name" and previous == "|" and text == "attr":
            return "the template uses the filter 'attr', which reaches around the rules"
        previous = text
    return None
