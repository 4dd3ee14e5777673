"""The static rules: hostile templates are refused by their text alone, real ones pass."""

from __future__ import annotations

import time

import pytest

from engine.tokenizer.chat_template import CHATML
from engine.tokenizer.template_rules import template_problem
from tests.helpers.models import need_goldens

HOSTILE = (
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ lipsum.__globals__['os'].popen('id').read() }}",
    "{{ cycler.__init__.__globals__.os.system('id') }}",
    "{{ self._TemplateReference__context }}",
    "{{ namespace.__init__.__globals__ }}",
    "{{ x['__class__'] }}",
    '{{ x["__init__"]["__globals__"] }}',
    "{{ x|attr('__class__') }}",
    "{{ x | attr ( 'a' ) }}",
    "{{ messages|map(attribute='__class__')|list }}",
    "{% set y = x.__class__ %}",
    "{% if x.__class__ %}{% endif %}",
    "{% for i in range(10 ** 9) %}{% endfor %}",
    "{% for i in range(99999999) %}{% endfor %}",
    "{{ 'A' * 1_000_000_000 }}",
    "{{ 2 ** 3 }}",
    "{% include 'x' %}",
    "{%- import 'x' as y %}",
    "{% from 'x' import y %}",
    "{% extends 'x' %}",
    "{% for i in x %}" * 65,
    "{{ " + "[" * 65 + "]" * 65 + " }}",
    "x" * (257 << 10),
)
HARMLESS = (
    "",
    "plain text with __class__ and range(10**9) outside of tags",
    "{# __class__ in a comment #}",
    "{% raw %}{{ x.__class__ }}{% endraw %}",
    "{{ messages[-1]['content'] }}{% set ns = namespace(a_b=1, last_=2) %}{{ ns.a_b }}",
    "{{ '__' }}{% for k, _ in x|items %}{{ k }}{% endfor %}",
    "{% if a %}{% elif b %}{% else %}{% endif %}" * 100,
    "{{ x[1000000] }}",
    CHATML,
)


@pytest.mark.parametrize("template", HOSTILE)
def test_hostile_templates_are_refused(template: str) -> None:
    assert template_problem(template)


@pytest.mark.parametrize("template", HARMLESS)
def test_harmless_templates_pass(template: str) -> None:
    assert template_problem(template) is None


def test_real_templates_pass() -> None:
    templates = sorted(need_goldens("chat").glob("*.jinja"))
    assert templates
    assert {path.name: template_problem(path.read_text()) for path in templates} == {path.name: None for path in templates}


@pytest.mark.parametrize("template", ["{{" * 60000, "{%" * 60000, "{{ '" * 40000, "{{ " + "a." * 100000 + "}}", "{#" * 100000])
def test_check_is_quick_on_bombs(template: str) -> None:
    start = time.perf_counter()
    template_problem(template)
    assert time.perf_counter() - start < 2.0
