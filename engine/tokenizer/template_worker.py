"""The helper process that renders chat templates, which are programs of strangers: sandboxed Jinja in a process with limits of
time, memory and output, and strings that remember who brought them. Never imported by the program itself."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from types import BuiltinMethodType
from typing import Any

from jinja2 import TemplateSyntaxError, nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.filters import FILTERS, make_attrgetter
from jinja2.parser import Parser
from jinja2.runtime import Context, Macro
from jinja2.sandbox import SandboxedEnvironment
from jinja2.utils import pass_environment

from engine.spawn import limit_this_process, memory_limit, serve
from engine.tokenizer.marked import OWN, Marked, holds_marks, join, mark, runs, written
from engine.tokenizer.template_rules import MAX_NUMBER, SPECIAL_VARIABLES, template_problem

MEMORY_BYTES = 256 << 20
LIMIT_S = 3.0
_MAX_RANGE = 100_000
_MAX_REPEATED = 1_000_000
_OUTPUT_FACTOR, _OUTPUT_EXTRA = 8, 1 << 20
_ROLES = frozenset({"system", "user", "assistant", "tool", "developer", "function", "ipython"})
_ASSISTANT = "assistant"
_OWN_FIELDS = frozenset({"role", "content", "reasoning_content", "reasoning", "thinking"})
"""What a model itself has written of an earlier answer, control tokens and all. Names and arguments of its calls were text inside
JSON: what they spell is no token."""

# Filters that hand their input on or keep its marks; the text of every other one counts as brought when its input did.
_TRACKED_FILTERS = frozenset({"first", "last", "default", "d", "max", "min", "random", "reverse"})
# These write what is no string as one first, which is where a list would lose its marks.
_STRING_FILTERS = frozenset({"trim", "upper", "lower", "capitalize"})
_FAILURES = (
    TemplateError,
    TypeError,
    ValueError,
    LookupError,
    AttributeError,
    ArithmeticError,
    AssertionError,
    RuntimeError,
    MemoryError,
    RecursionError,
)


class _Generator(CodeGenerator):
    """Compiles `~` to a join that keeps marks."""

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:
        self.write("environment.concat((")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")


class _Generation(Extension):
    """`{% generation %}`: marks the assistant's text for training; renders its body."""

    tags = {"generation"}  # noqa: RUF012  # declared so by the base class

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


class _Environment(SandboxedEnvironment):
    """The sandbox: no names of Python's insides, no huge products, marks kept through calls."""

    code_generator_class = _Generator
    concat = staticmethod(join)
    intercepted_binops = frozenset({"*", "**", "%"})

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "*":
            _check_product(left, right)
        if operator == "**" and not (abs(left) <= MAX_NUMBER and 0 <= right <= 8):
            raise SecurityError("a power beyond the limit")
        result = super().call_binop(context, operator, left, right)
        return _brought_if(result, holds_marks((left, right)))

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # leaves all names to templates
        owner = getattr(__obj, "__self__", None)
        if type(owner) is str and isinstance(__obj, BuiltinMethodType):
            # The method of a plain string drops the marks of its arguments; the same of a marked one keeps them.
            __obj = getattr(Marked(owner, OWN * len(owner)), __obj.__name__)
        result = super().call(__context, __obj, *args, **kwargs)
        if isinstance(__obj, Macro) or isinstance(owner, str):
            return result
        return _brought_if(result, holds_marks((args, kwargs)))


def _check_product(left: Any, right: Any) -> None:
    for sequence, times in ((left, right), (right, left)):
        if isinstance(sequence, (str, list, tuple)) and isinstance(times, int) and len(sequence) * times > _MAX_REPEATED:
            raise SecurityError("a repetition beyond the limit")
    if isinstance(left, int) and isinstance(right, int) and left.bit_length() + right.bit_length() > 1024:
        raise SecurityError("a product beyond the limit")


def _brought_if(result: Any, marked: bool) -> Any:
    return Marked(result) if marked and type(result) is str else result


def _guard(function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter whose text counts as brought when any of its arguments is."""

    # Copies also how Jinja knows which arguments a filter wants.
    @functools.wraps(function)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        unchanged = any(result is value for value in args)
        return Marked(result) if isinstance(result, str) and not unchanged and holds_marks((args, kwargs)) else result

    return guarded


def _of_string(function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter of strings that keeps their marks."""

    @functools.wraps(function)
    def filtered(value: Any, *args: Any) -> Any:
        return function(value if isinstance(value, str) else written(value), *args)

    return filtered


@pass_environment
def _join(environment: Any, value: Iterable[Any], separator: str = "", attribute: Any = None) -> str:
    items = value if attribute is None else map(make_attrgetter(environment, attribute), value)
    return join(items, separator)


def _to_json(value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False) -> str:
    text = json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
    return Marked(text) if holds_marks(value) else text


def _shown(value: Any) -> Any:
    """What an output expression prints: the written form of a list or mapping loses no marks."""
    return written(value) if isinstance(value, (list, tuple, dict)) else value


def _raise_exception(message: str) -> None:
    raise TemplateError(f"the template refused the messages: {message}")


def _bounded_range(*args: int) -> range:
    result = range(*args)
    if len(result) > _MAX_RANGE:
        raise SecurityError(f"a range of more than {_MAX_RANGE:,} numbers")
    return result


def _environment() -> _Environment:
    environment = _Environment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Generation], finalize=_shown, cache_size=0
    )
    environment.filters = {name: f if name in _TRACKED_FILTERS else _guard(f) for name, f in FILTERS.items() if name != "attr"}
    environment.filters |= {name: _of_string(FILTERS[name]) for name in _STRING_FILTERS}
    environment.filters |= {"tojson": _to_json, "join": _join}
    environment.globals.pop("lipsum", None)
    environment.globals |= {"raise_exception": _raise_exception, "range": _bounded_range}
    return environment


def _refuse(parsed: nodes.Template) -> None:
    """Raises: SecurityError for what the rules on the text could not see."""
    waiting: list[nodes.Node] = [parsed]
    while waiting:
        node = waiting.pop()
        waiting.extend(node.iter_child_nodes())
        if isinstance(node, (nodes.Include, nodes.Import, nodes.FromImport, nodes.Extends)):
            raise SecurityError("the template reads other files")
        name = node.attr if isinstance(node, nodes.Getattr) else None
        if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const):
            name = node.arg.value
        if isinstance(name, str) and name.startswith("_"):
            raise SecurityError(f"the template reaches for {name[:40]}, an inside of Python")


def _variables(request: Mapping[str, Any]) -> dict[str, Any]:
    """The template's variables; all strings are marked but the special tokens, the usual roles and earlier answers."""
    extra = {name: v if name in SPECIAL_VARIABLES else mark(v) for name, v in request["variables"].items()}
    moment = request.get("now")
    now = datetime.fromisoformat(moment) if moment else datetime.now()
    return {
        **extra,
        "messages": [_message(message) for message in request["messages"]],
        "tools": mark(request.get("tools")),
        "documents": mark(request.get("documents")),
        "add_generation_prompt": request["add_generation_prompt"],
        "strftime_now": lambda form: now.strftime(form),
    }


def _message(message: dict[str, Any]) -> dict[str, Any]:
    role = message.get("role")
    if role == _ASSISTANT:
        others = {name: value for name, value in message.items() if name not in _OWN_FIELDS}
        own: dict[str, Any] = {name: value for name, value in message.items() if name in _OWN_FIELDS}
        marked: dict[str, Any] = mark(others)
        return own | marked
    result: dict[str, Any] = mark(message)
    if role in _ROLES:
        result["role"] = role
    return result


class Renderer:
    """Renders requests; keeps the last compiled template."""

    def __init__(self) -> None:
        self._environment = _environment()
        self._compiled: tuple[str, Any] = ("", None)

    def render(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """`{"parts": [[text, is the template's own], ...]}` or `{"error": sentence}`."""
        try:
            return {"parts": self._parts(request)}
        except TemplateSyntaxError as error:
            return {"error": f"the template is broken in line {error.lineno}: {error.message}"}
        except SecurityError as error:
            return {"error": f"the template is hostile: {error}"}
        except MemoryError:
            return {"error": "the template took too much memory"}
        except RecursionError:
            return {"error": "the template nests too deeply"}
        except _FAILURES as error:
            return {"error": str(error) or type(error).__name__}

    def _parts(self, request: Mapping[str, Any]) -> list[tuple[str, bool]]:
        template: str = request["template"]
        compiled = self._compile(template)
        variables = _variables(request)
        limit = _OUTPUT_FACTOR * (len(template) + request["input_chars"]) + _OUTPUT_EXTRA
        pieces: list[str] = []
        n_chars = 0
        for piece in compiled.generate(**variables):
            pieces.append(piece)
            n_chars += len(piece)
            if n_chars > limit:
                raise SecurityError(f"the output passes {limit:,} characters")
        return runs(join(pieces))

    def _compile(self, template: str) -> Any:
        if self._compiled[0] != template:
            problem = template_problem(template)
            if problem is not None:
                raise SecurityError(problem)
            _refuse(self._environment.parse(template))
            self._compiled = (template, self._environment.from_string(template))
        return self._compiled[1]


def main() -> None:
    """Runs the helper until its pipe closes."""
    limit_this_process(memory_limit(MEMORY_BYTES))
    serve(Renderer().render, LIMIT_S)


if __name__ == "__main__":
    main()
