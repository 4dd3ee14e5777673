"""What a request says, as token ids: the conversation rendered by the model's template, a raw prompt, or ids as they are."""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from engine.api.commands import Generate
from engine.api.values import ChatMessage
from engine.errors import HelperDied, InvalidRequest, TemplateError
from engine.session.channels import answer_of, continued
from engine.tokenizer.build import Tokenizer
from engine.tokenizer.chat_template import CHATML, RenderRequest, TemplateHelper, plain_chatml, special_variables
from engine.tokenizer.template_rules import SPECIAL_VARIABLES

log = logging.getLogger("engine")

WITHOUT_HELPER = (
    "The process that fills in chat templates cannot be started: conversations are written as plain ChatML, which the model may "
    "not know; load the model again to try again."
)

Parts = tuple[tuple[str, bool], ...]

_THOUGHT = "<think>"
_OPENED_THOUGHT = re.compile(r"<think>\s*\Z")
_BEGUN_THOUGHT = re.compile(r"<think>\s*(</think>\s*)?\Z")
"""A thought that a template has opened, or left out, where the answer begins."""


class PromptBuilder:
    """Makes prompts for one model. Control tokens are parsed only in the template's own text and in earlier answers."""

    def __init__(self, tokenizer: Tokenizer, templates: TemplateHelper, template: str | None) -> None:
        """template: the model's own; None: plain ChatML."""
        self._tokenizer = tokenizer
        self._templates = templates
        self._template = CHATML if template is None else template
        self._special = special_variables(tokenizer.vocab)
        self._without_helper = False
        self._notice: str | None = None
        self._opening = ""

    def of_request(self, request: Generate) -> list[int]:
        """The prompt of an answer.

        Raises:
            InvalidRequest: not exactly one of messages, prompt and ids, or nothing to continue.
            TemplateError: the template refused the messages or is broken.
        """
        self._opening = ""
        given = [one for one in (request.messages, request.prompt, request.ids) if one is not None]
        if len(given) != 1:
            raise InvalidRequest(f"{len(given)} of messages, prompt and ids are given; give exactly one")
        if request.ids is not None:
            return list(request.ids)
        if request.prompt is not None:
            return self._with_bos(self._tokenizer.encode_parts(((request.prompt, True),)))
        assert request.messages is not None
        return self.of_messages(request.messages, request.template_vars, continue_last=request.continue_last)

    def of_messages(
        self, messages: Sequence[ChatMessage], variables: Mapping[str, Any], *, continue_last: bool = False
    ) -> list[int]:
        """The prompt of a conversation: ending where the answer begins, or within the last answer. Raises like `of_request`."""
        if not messages:
            raise InvalidRequest("the conversation is empty; give at least one message")
        in_channels = bool(self._tokenizer.channel_tokens)
        rendered = [{"role": one.role, "content": _given(one, in_channels)} for one in messages]
        self._opening = ""
        if not continue_last:
            parts = self._render(rendered, variables, opened=True)
            self._opening = opening_of(parts)
            return self._with_bos(self._tokenizer.encode_parts(parts))
        if messages[-1].role != "assistant":
            raise InvalidRequest("there is no answer to continue; the last message must be the assistant's")
        if len(messages) > 1:
            opened = self._render(rendered[:-1], variables, opened=True)
            so_far = messages[-1].content
            going_on = (*opened, (continued(so_far), True)) if in_channels else gone_on(opened, so_far)
            if going_on is not None:
                return self._with_bos(self._tokenizer.encode_parts(going_on))
        # What the template writes behind an answer is cut off at a mark that no text holds by chance.
        mark = f"mark{secrets.token_hex(16)}"
        rendered[-1]["content"] += mark
        return self._with_bos(self._tokenizer.encode_parts(cut(self._render(rendered, variables, opened=False), mark)))

    def take_notice(self) -> str | None:
        """What people should be told about the prompts made so far; once."""
        notice, self._notice = self._notice, None
        return notice

    def take_opening(self) -> str:
        """How the template has begun the answer of the last conversation, "" where it has not; once."""
        opening, self._opening = self._opening, ""
        return opening

    def _render(self, messages: list[dict[str, Any]], variables: Mapping[str, Any], *, opened: bool) -> Parts:
        if self._without_helper:
            return plain_chatml(messages, add_generation_prompt=opened).parts
        # The texts of special tokens are the model's own: a request may not put others in their place.
        brought = {name: value for name, value in variables.items() if name not in SPECIAL_VARIABLES}
        request = RenderRequest(
            messages=messages, tools=None, add_generation_prompt=opened, variables={**brought, **self._special}
        )
        try:
            return self._templates.render(self._template, request).parts
        except HelperDied as error:
            # For as long as the model stays: waiting for a start that fails again would hold up every prompt.
            log.info("prompts become plain ChatML: %s", error)
            self._without_helper = True
            if self._template != CHATML:
                self._notice = WITHOUT_HELPER
            return plain_chatml(messages, add_generation_prompt=opened).parts

    def _with_bos(self, ids: list[int]) -> list[int]:
        """The ids behind one BOS, where the model wants one; many templates write it themselves."""
        vocab = self._tokenizer.vocab
        if not vocab.add_bos or vocab.bos_id is None or ids[:1] == [vocab.bos_id]:
            return ids
        return [vocab.bos_id, *ids]


def _given(message: ChatMessage, in_channels: bool) -> str:
    """What a template is given of a message."""
    return answer_of(message.content) if in_channels and message.role == "assistant" else message.content


def opening_of(parts: Parts) -> str:
    """The opened thought that a prompt ends with, blanks and all: the answer goes on inside it. "" where there is none, or where
    people wrote it."""
    text, own = parts[-1] if parts else ("", False)
    found = _OPENED_THOUGHT.search(text)
    return found[0] if own and found is not None else ""


def gone_on(opened: Parts, so_far: str) -> Parts | None:
    """A prompt that opens an answer, with what the model has written of it behind: the text as it was when written. Templates
    would drop or move the thought of an earlier answer.

    None where the prompt opens a thought that the answer does not have.
    """
    text, own = opened[-1] if opened else ("", False)
    begun = _BEGUN_THOUGHT.search(text) if own else None
    if begun is not None and so_far.startswith(_THOUGHT):
        return (*opened[:-1], (text[: begun.start()], True), (so_far, True))
    return (*opened, (so_far, True)) if begun is None or begun[1] else None


def cut(parts: Parts, mark: str) -> Parts:
    """The parts up to the mark.

    Raises:
        TemplateError: the mark is not there.
    """
    kept: list[tuple[str, bool]] = []
    for text, own in parts:
        before, found, _ = text.partition(mark)
        kept.append((before, own))
        if found:
            return tuple(kept)
    raise TemplateError("this model's chat template changes earlier answers, so that one cannot be continued; ask again instead")
