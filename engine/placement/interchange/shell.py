"""Shell scripts as text: the commands that they would run, with variables filled in. Nothing is executed and no file is read.

Understood are quotes, comments, continued lines, `NAME=value`, arrays, `${NAME:-default}`, `if`, `elif`, `else` and `case` over
texts that are known. What only a shell could know, such as `$(nproc)`, stays as it is written and is marked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from engine.errors import PlacementError

MAX_TEXT = 1 << 18
"""Characters of a script."""
MAX_WORDS = 20_000
"""Words of all commands after arrays are filled in."""
MAX_VALUE = 1 << 16
_OPERATORS = frozenset(";|&()<>")
_BEFORE = ("nohup", "exec", "sudo", "time", "setsid", "command")
_NAME = re.compile(r"[A-Za-z_]\w*")
_ASSIGN = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.DOTALL)
_BRACED = re.compile(r"\$\{([A-Za-z_]\w*|\d+)(\[[@*]\])?(?:(:?[-=])((?:[^{}]|\{[^{}]*\})*))?\}")
_DEFAULT = re.compile(r"\$(?:([A-Za-z_]\w*|\d)|[@*#?!$])")


@dataclass(frozen=True, slots=True)
class Word:
    """One word. known: it holds nothing that only a shell could know; quoted: it was written in quotes, in part."""

    text: str
    known: bool = True
    quoted: bool = False


@dataclass(frozen=True, slots=True)
class Command:
    """words: of a command that would run; env: variables set for it or exported. sure: no condition over it is unknown."""

    words: tuple[Word, ...]
    env: dict[str, str]
    sure: bool = True


@dataclass(slots=True)
class _Scope:
    """Variables so far."""

    values: dict[str, Word] = field(default_factory=dict)
    arrays: dict[str, list[Word]] = field(default_factory=dict)
    exported: set[str] = field(default_factory=set)
    n_words: int = 0


def commands_of(text: str, depth: int = 2) -> tuple[Command, ...]:
    """The commands that a script would run, in order; those in branches that are not taken are left out.

    depth: so many texts within texts are read, such as that of `bash -c`.

    Raises:
        PlacementError: too large, or quotes that are not closed; one sentence.
    """
    if len(text) > MAX_TEXT:
        raise PlacementError(f"the script has {len(text)} characters; one that starts a model has at most {MAX_TEXT}")
    scope, found, branches = _Scope(), list[Command](), list[_Branch]()
    joined = re.sub(r"(?<=[ \t])[\^`][ \t]*\n", " ", text.replace("\r\n", "\n"))  # how Windows' shells continue a line
    for raw in _statements(_without_documents(joined)):
        words = _control(raw, branches, scope)
        state = [branch.state for branch in branches]
        if not words or any(one is False for one in state):
            continue
        command = _command(words, scope)
        if command is not None:
            found += _inner(Command(command.words, command.env, sure=None not in state), depth)
    return tuple(found)


def _inner(command: Command, depth: int) -> tuple[Command, ...]:
    """The commands of a text that is given to a shell; else the command itself."""
    texts = [word.text for word in command.words]
    while len(texts) > 1 and texts[0] in _BEFORE:
        texts = texts[1:]
    shell = texts[0].rpartition("/")[2] in ("bash", "sh", "dash", "zsh")
    inner = " ".join(texts[1:]) if texts[0] == "eval" else texts[-1] if shell and "-c" in texts[:-1] else None
    if inner is None or depth == 0:
        return (command,)
    return tuple(Command(one.words, command.env | one.env, command.sure and one.sure) for one in commands_of(inner, depth - 1))


@dataclass(slots=True)
class _Branch:
    """An `if` or `case` that is open. state: whether its present branch is taken, None where that is unknown; done: one was."""

    subject: Word | None = None
    state: bool | None = False
    done: bool = False


def _statements(text: str) -> Iterator[list[str]]:
    """Raw words, quotes and all, up to each end of a command; ends of branches of a `case` as `;;`, patterns as `x)`."""
    words, word, at = list[str](), "", 0
    depth, patterns = 0, False  # of an array that is open; whether what comes next are patterns of a `case`
    while at < len(text):
        char = text[at]
        if char == "\\" and text[at + 1 : at + 2] == "\n":
            at += 2
        elif char in "'\"`" or text.startswith(("$(", "${"), at):
            end = _closing(text, at)
            word, at = word + text[at:end], end
        elif char == "\\":
            word, at = word + text[at : at + 2], at + 2
        elif char == "#" and not word:
            end = text.find("\n", at)
            at = end if end >= 0 else len(text)
        elif char == "(" and word.endswith("="):
            word, at, depth = word + char, at + 1, 1
        elif depth and char == ")":
            words, word, at, depth = [*words, word, ")"] if word else [*words, ")"], "", at + 1, 0
        elif char in " \t" or (depth and char == "\n"):
            if word:
                words.append(word)
            word, at = "", at + 1
        elif char == "|" and patterns:
            word, at = word + char, at + 1
        elif char == "\n" or char in _OPERATORS:
            size = 2 if text[at : at + 2] in (";;", "&&", "||") else 1
            if char in "<>" or (char == "&" and text[at + 1 : at + 2] == ">"):
                word = "" if word.isdigit() else word
                words, word, at = [*words, word] if word else words, "", _after_redirection(text, at)
                continue
            pattern = char == ")" and bool(word or words)
            if word:
                words.append(word)
            if words:
                yield [*words, ")"] if pattern else words
            patterns = words[:1] == ["case"] or (patterns and not pattern)
            if text[at : at + size] == ";;":
                patterns = True
                yield [";;"]
            words, word, at = [], "", at + size
        else:
            word, at = word + char, at + 1
    if word:
        words.append(word)
    if words:
        yield words


def _without_documents(text: str) -> str:
    """Without what stands between `<<END` and `END`: it is input of a command."""
    out, at = list[str](), 0
    for match in re.finditer(r"(?<!<)<<-?[ \t]*(['\"]?)([A-Za-z_]\w{0,40})\1[^\n]*\n", text):
        if match.start() < at:
            continue
        end = re.compile(rf"^[ \t]*{match[2]}$", re.MULTILINE).search(text, match.end())
        if end is not None:
            out += [text[at : match.start()], text[match.end() - 1 : match.end()]]
            at = end.end()
    return "".join((*out, text[at:]))


def _after_redirection(text: str, at: int) -> int:
    """Behind `> file`, `2>&1` and the like."""
    match = re.compile(r"&?[<>]+[&|]?[ \t]*[^\s;|&()<>]*").match(text, at)
    return match.end() if match is not None and match.end() > at else at + 1


def _closing(text: str, at: int) -> int:
    """Behind the quotation, `${...}` or `$(...)` that begins at `at`."""
    if text[at] in "'`":
        end = text.find(text[at], at + 1)
        return _closed(end + 1 if end >= 0 else -1)
    if text[at] == '"':
        i = at + 1
        while i < len(text):
            if text[i] == "\\":
                i += 2
            elif text[i] == '"':
                return i + 1
            else:
                i += 1
        return _closed(-1)
    open_, close = ("(", ")") if text[at + 1] == "(" else ("{", "}")
    depth = 0
    for i in range(at + 1, len(text)):
        depth += (text[i] == open_) - (text[i] == close)
        if depth == 0:
            return i + 1
    return _closed(-1)


def _closed(end: int) -> int:
    if end < 0:
        raise PlacementError("the script cannot be read: a quotation mark or bracket is not closed; close it")
    return end


def _control(raw: list[str], branches: list[_Branch], scope: _Scope) -> list[str]:
    """What is left of a statement when words of control are taken off; they open, change and close branches."""
    words = raw
    while words:
        head = words[0]
        if head == "if":
            branches.append(_Branch())
            return _condition(words[1:], branches, scope)
        if head == "elif" and branches:
            return _condition(words[1:], branches, scope)
        if head == "else" and branches:
            branches[-1].state = not branches[-1].done if branches[-1].state is not None else None
            words = words[1:]
        elif head in ("fi", "esac") and branches:
            branches.pop()
            words = words[1:]
        elif head == "case" and "in" in words:
            branches.append(_Branch(subject=_expand_word(words[1], scope)))
            words = words[words.index("in") + 1 :]
        elif head == ";;" and branches:
            branches[-1].state = False
            return []
        elif words[-1] == ")" and branches and branches[-1].subject is not None:
            _take_case(words[:-1], branches[-1], scope)
            return []
        elif head in ("then", "do", "done", "{", "}", "while", "until", "!", "function", "time"):
            words = words[1:]
        elif head == "for":
            return []
        else:
            return words
    return []


def _condition(words: list[str], branches: list[_Branch], scope: _Scope) -> list[str]:
    branch = branches[-1]
    if branch.done:
        branch.state = False
    else:
        branch.state = _holds(words, scope)
        branch.done = branch.state is True
    return []


def _holds(words: list[str], scope: _Scope) -> bool | None:
    """Whether `[ a = b ]` and the like hold; None where that is unknown."""
    inner = [_expand_word(word, scope) for word in words if word not in ("[", "]", "[[", "]]", "test")]
    negated = bool(inner) and inner[0].text == "!"
    inner = inner[1:] if negated else inner
    result: bool | None = None
    if words and words[0] in ("[", "[[", "test") and all(one.known for one in inner):
        if len(inner) == 3 and inner[1].text in ("=", "==", "!="):
            result = (inner[0].text == inner[2].text) == (inner[1].text != "!=")
        elif len(inner) == 2 and inner[0].text in ("-z", "-n"):
            result = (inner[1].text == "") == (inner[0].text == "-z")
    return None if result is None else result != negated


def _take_case(words: list[str], branch: _Branch, scope: _Scope) -> None:
    """Whether one of the patterns of a branch is that of the subject."""
    subject = branch.subject or Word("", known=False)
    patterns = [_expand_word(part, scope).text for word in words for part in word.split("|")]
    if branch.done:
        branch.state = False
    elif not subject.known:
        branch.state = None
    else:
        branch.state = any(one in (subject.text, "*") for one in patterns)
        branch.done = branch.state


def _command(words: list[str], scope: _Scope) -> Command | None:
    """The command of a statement; None where it only sets variables."""
    own: dict[str, str] = {}
    exporting = words[0] in ("export", "declare", "local", "readonly", "typeset")
    rest = words[1:] if exporting else words
    while exporting and rest and rest[0].startswith("-"):
        rest = rest[1:]
    while rest and (match := _ASSIGN.fullmatch(rest[0])) is not None:
        name, more, value = match[1], bool(match[2]), match[3]
        if value == "(" or value.startswith("("):
            end = rest.index(")") if ")" in rest else len(rest)
            first = [value[1:]] if value[1:] else []
            items = [one for word in (*first, *rest[1:end]) for one in _expand(word, scope)]
            scope.arrays[name] = [*(scope.arrays.get(name, []) if more else []), *items]
            _count(len(scope.arrays[name]), scope)
            rest = rest[end + 1 :]
            continue
        word = _expand_word(value, scope)
        before = scope.values.get(name, Word("")) if more else Word("")
        whole = Word((before.text + word.text)[:MAX_VALUE], before.known and word.known)
        if len(rest) > 1 and not exporting:
            own[name] = whole.text
        else:
            scope.values[name] = whole
            own[name] = whole.text
        if exporting:
            scope.exported.add(name)
        rest = rest[1:]
    if exporting:
        scope.exported |= {word for word in rest if _NAME.fullmatch(word)}
        return None
    if not rest:
        for name, text in own.items():
            scope.values[name] = scope.values.get(name, Word(text))
        return None
    expanded = tuple(one for word in rest for one in _expand(word, scope))
    _count(len(expanded), scope)
    env = {name: scope.values[name].text for name in scope.exported if name in scope.values}
    return Command(expanded, env | own) if expanded else None


def _count(n: int, scope: _Scope) -> None:
    scope.n_words += n
    if scope.n_words > MAX_WORDS:
        raise PlacementError(f"the script's commands have more than {MAX_WORDS} words; give one that starts a model")


def _expand(raw: str, scope: _Scope) -> list[Word]:
    """The words that a raw word becomes: several where it is an array or an unquoted variable with blanks."""
    match = re.fullmatch(r'"?\$\{([A-Za-z_]\w*)\[[@*]\]\}"?', raw)
    if match is not None:
        return list(scope.arrays.get(match[1], [Word(raw, known=False)]))
    word = _expand_word(raw, scope)
    if not word.quoted and "$" in raw and word.known and (" " in word.text or not word.text):
        return [Word(part) for part in word.text.split()]
    return [word]


def _expand_word(raw: str, scope: _Scope) -> Word:
    """A raw word without its quotes, with variables filled in."""
    out, known, quoted, at = list[str](), True, False, 0
    double = False
    while at < len(raw):
        char = raw[at]
        if char == '"':
            double, quoted, at = not double, True, at + 1
        elif char == "'" and not double:
            end = raw.find("'", at + 1)
            end = end if end >= 0 else len(raw)
            out.append(raw[at + 1 : end])
            quoted, at = True, end + 1
        elif char == "\\":
            following = raw[at + 1 : at + 2]
            out.append(following if not double or following in '"\\$`' else char + following)
            at += 2
        elif char == "`" or raw.startswith("$(", at):
            end = _closing(raw, at)
            out.append(raw[at:end])
            known, at = False, end
        elif char == "$":
            size, text, sure = _variable(raw, at, scope)
            out.append(text)
            known, at = known and sure, at + size
        else:
            out.append(char)
            at += 1
        if sum(map(len, out[-1:])) > MAX_VALUE:
            raise PlacementError("a variable of the script is too long; give a script that starts a model")
    return Word("".join(out)[:MAX_VALUE], known, quoted)


def _variable(raw: str, at: int, scope: _Scope) -> tuple[int, str, bool]:
    """(characters, text, whether it is known) of the variable at `at`."""
    braced = _BRACED.match(raw, at)
    if braced is not None and not braced[2]:
        value = scope.values.get(braced[1])
        if value is None or (not value.text and (braced[3] or "").startswith(":")):
            if braced[3] is None:
                return len(braced[0]), braced[0], False
            fallback = _expand_word(braced[4], scope) if braced[4].count("$") < 8 else Word(braced[4], known=False)
            return len(braced[0]), fallback.text, fallback.known
        return len(braced[0]), value.text, value.known
    plain = _DEFAULT.match(raw, at)
    if plain is not None:
        value = scope.values.get(plain[1]) if plain[1] else None
        return len(plain[0]), plain[0] if value is None else value.text, value is not None and value.known
    if raw.startswith("${", at):
        end = _closing(raw, at)
        return end - at, raw[at:end], False
    return 1, "$", True
