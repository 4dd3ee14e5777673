"""Conversations to prompts by the model's chat template. Rendering happens in a helper process; what comes back tells the
template's own text from what people, tools and files brought, so that only the former may hold control tokens."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from engine.errors import HelperDied, InvalidRequest, TemplateError
from engine.spawn import HelperProcess
from engine.tokenizer.template_rules import template_of, template_problem
from engine.tokenizer.vocab import Vocab

__all__ = ["CHATML", "RenderRequest", "Rendered", "TemplateHelper", "plain_chatml", "special_variables", "template_of"]

CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
"""The plain template of models that bring none."""

WORKER = "engine.tokenizer.template_worker"
MEMORY_BYTES = 256 << 20
TIMEOUT_S = 2.0
_MAX_INPUT_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class RenderRequest:
    """What a template is rendered with; all of it plain JSON data. variables: bos_token, eos_token and options such as
    enable_thinking; now: ISO time for templates that print the date, None for the real one."""

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] | None = None
    add_generation_prompt: bool = True
    variables: Mapping[str, Any] = field(default_factory=dict)
    documents: Sequence[Mapping[str, Any]] | None = None
    now: str | None = None

    @classmethod
    def from_case(cls, case: Mapping[str, Any]) -> RenderRequest:
        """The request that a JSON object of `render --cases` describes. Raises: InvalidRequest."""
        messages, kwargs = case.get("messages"), case.get("kwargs") or {}
        if not isinstance(messages, list) or not all(isinstance(m, dict) for m in messages) or not isinstance(kwargs, dict):
            raise InvalidRequest("a case has no list of messages, or its kwargs are no object; correct the file")
        tokens = {name: case[name] for name in ("bos_token", "eos_token") if isinstance(case.get(name), str)}
        return cls(
            messages=messages,
            tools=case.get("tools"),
            add_generation_prompt=bool(case.get("add_generation_prompt", False)),
            variables={**tokens, **kwargs},
            documents=case.get("documents"),
            now=case.get("now"),
        )


@dataclass(frozen=True, slots=True)
class Rendered:
    """A prompt in parts: True for the template's own text and earlier answers, False for what was brought."""

    parts: tuple[tuple[str, bool], ...]

    @property
    def text(self) -> str:
        """The whole prompt."""
        return "".join(text for text, _ in self.parts)


class TemplateHelper:
    """The helper process that renders. Starts at the first use or at `warm_up`; safe to use from several threads."""

    def __init__(self) -> None:
        self._process = HelperProcess(WORKER, MEMORY_BYTES)

    def warm_up(self) -> None:
        """Starts the helper, so that the first prompt does not wait for it. Raises: HelperDied."""
        self._process.start()

    def render(self, template: str, request: RenderRequest) -> Rendered:
        """The prompt.

        Raises: TemplateError when the template is broken, hostile, too slow or refuses the messages; HelperDied when the helper
        cannot be started; InvalidRequest when the conversation is no JSON data or far too long.
        """
        problem = template_problem(template)
        if problem is not None:
            raise TemplateError(f"the chat template is hostile or broken: {problem}; choose another template or plain ChatML")
        try:
            message = {
                "template": template,
                "messages": list(request.messages),
                "tools": request.tools,
                "documents": request.documents,
                "add_generation_prompt": request.add_generation_prompt,
                "variables": dict(request.variables),
                "now": request.now,
            }
            n_chars = len(json.dumps(message, ensure_ascii=False))
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidRequest(f"the conversation is not plain JSON data ({error}); correct the messages") from error
        if n_chars > _MAX_INPUT_BYTES:
            raise InvalidRequest(f"the conversation has {n_chars:,} characters, more than {_MAX_INPUT_BYTES:,}; shorten it")
        self._process.start()
        try:
            answer = self._process.request({**message, "input_chars": n_chars}, TIMEOUT_S)
        except HelperDied as error:
            limits = f"{TIMEOUT_S:g} s or {MEMORY_BYTES >> 20} MiB"
            raise TemplateError(f"the chat template was stopped: it took more than {limits}; choose another template") from error
        if "error" in answer:
            raise TemplateError(f"{answer['error']}; change the conversation or choose another template")
        return Rendered(tuple((text, own) for text, own in answer["parts"]))

    def close(self) -> None:
        """Ends the helper process."""
        self._process.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def plain_chatml(messages: Sequence[Mapping[str, Any]], *, add_generation_prompt: bool) -> Rendered:
    """What the template `CHATML` gives, without a helper process: for when there is none."""
    parts: list[tuple[str, bool]] = []
    for message in messages:
        parts.append((f"<|im_start|>{message['role']}\n", True))
        parts.append((message["content"], message["role"] == "assistant"))
        parts.append(("<|im_end|>\n", True))
    if add_generation_prompt:
        parts.append(("<|im_start|>assistant\n", True))
    return Rendered(tuple(parts))


def special_variables(vocab: Vocab) -> dict[str, Any]:
    """The template variables that hold texts of special tokens."""
    ids = {"bos_token": vocab.bos_id, "eos_token": vocab.eos_id, "unk_token": vocab.unknown_id}
    return {name: vocab.tokens[i] for name, i in ids.items() if i is not None}
