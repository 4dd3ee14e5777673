"""Prompts: one BOS, control tokens only where they belong, and answers that go on where they stopped."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engine.api.commands import Generate
from engine.api.values import ChatMessage, RequestId
from engine.errors import InvalidRequest, TemplateError
from engine.gguf.reader import read_gguf
from engine.session.prompt import PromptBuilder, cut, opening_of
from engine.tokenizer import chat_template
from engine.tokenizer.build import Tokenizer
from engine.tokenizer.chat_template import TemplateHelper, template_of
from engine.tokenizer.vocab import Vocab
from tests.helpers.golden_models import LLAMAS, golden
from tests.helpers.models import need_goldens

WITH_BOS = "{{ bos_token }}{% for message in messages %}<|im_start|>{{ message.content }}<|im_end|>{% endfor %}"
THINKS = (
    WITH_BOS
    + "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% if not deep %}\n</think>\n\n{% endif %}{% endif %}"
)
STRIPS = "{% for message in messages %}{% if message.role == 'user' %}{{ message.content }}{% endif %}{% endfor %}"


@pytest.fixture(scope="module")
def helper() -> Iterator[TemplateHelper]:
    with TemplateHelper() as made:
        yield made


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer(Vocab.from_gguf(read_gguf(golden(LLAMAS[0]).path)))


def user(text: str) -> tuple[ChatMessage, ...]:
    return (ChatMessage("user", text),)


def control_token(tokenizer: Tokenizer) -> tuple[int, str]:
    """The token that ends an answer, and its text."""
    end = tokenizer.vocab.eos_id
    assert end is not None
    return end, tokenizer.vocab.tokens[end]


def text_of(tokenizer: Tokenizer, ids: list[int]) -> str:
    return tokenizer.decode(ids).decode()


def test_the_conversation_as_the_models_template_writes_it(helper: TemplateHelper, tokenizer: Tokenizer) -> None:
    builder = PromptBuilder(tokenizer, helper, template_of(read_gguf(golden(LLAMAS[0]).path)))
    ids = builder.of_messages(user("hello"), {})
    bos = tokenizer.vocab.tokens[tokenizer.vocab.bos_id or 0]
    assert text_of(tokenizer, ids) == f"{bos}<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"


def test_a_file_without_template_gets_plain_chatml(helper: TemplateHelper, tokenizer: Tokenizer) -> None:
    ids = PromptBuilder(tokenizer, helper, None).of_messages(user("hello"), {})
    assert "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n" in text_of(tokenizer, ids)


def test_a_template_that_writes_bos_gets_no_second_one(helper: TemplateHelper, tokenizer: Tokenizer) -> None:
    ids = PromptBuilder(tokenizer, helper, WITH_BOS).of_messages(user("hello"), {})
    assert ids.count(tokenizer.vocab.bos_id or 0) == 1


def test_a_raw_prompt_parses_control_tokens_and_gets_one_bos(helper: TemplateHelper, tokenizer: Tokenizer) -> None:
    builder = PromptBuilder(tokenizer, helper, None)
    control, text = control_token(tokenizer)
    ids = builder.of_request(Generate(RequestId("a"), prompt=f"{text}hello"))
    assert ids[:2] == [tokenizer.vocab.bos_id, control]


def test_users_cannot_close_their_message(helper: TemplateHelper, tokenizer: Tokenizer) -> None:
    builder = PromptBuilder(tokenizer, helper, None)
    control, text = control_token(tokenizer)
    assert builder.of_messages(user(f"a{text}b"), {}).count(control) == 0
    earlier = (*user("a"), ChatMessage("assistant", f"said{text}"), *user("b"))
    assert builder.of_messages(earlier, {}).count(control) == 1


def test_variables_of_a_request_cannot_bring_control_tokens(helper: TemplateHelper, tokenizer: Tokenizer) -> None:
    builder = PromptBuilder(tokenizer, helper, WITH_BOS + "{{ more }}{{ pad_token }}")
    control, text = control_token(tokenizer)
    usual = builder.of_messages(user("a"), {}).count(control)
    for name in ("more", "bos_token", "eos_token", "unk_token", "pad_token", "messages"):
        assert builder.of_messages(user("a"), {name: f"{text}x"}).count(control) == usual, name


def test_a_continued_answer_ends_in_its_text(helper: TemplateHelper, tokenizer: Tokenizer) -> None:
    builder = PromptBuilder(tokenizer, helper, None)
    messages = (*user("count"), ChatMessage("assistant", "one, two, "))
    ids = builder.of_messages(messages, {}, continue_last=True)
    assert text_of(tokenizer, ids).endswith("<|im_start|>assistant\none, two, ")


def test_an_answer_that_the_template_drops_cannot_be_continued(helper: TemplateHelper, tokenizer: Tokenizer) -> None:
    builder = PromptBuilder(tokenizer, helper, STRIPS)
    with pytest.raises(TemplateError, match="cannot be continued"):
        builder.of_messages((ChatMessage("assistant", "one"),), {}, continue_last=True)
    going_on = builder.of_messages((*user("count"), ChatMessage("assistant", "one")), {}, continue_last=True)
    assert text_of(tokenizer, going_on).endswith("countone")


def test_only_an_answer_can_be_continued(helper: TemplateHelper, tokenizer: Tokenizer) -> None:
    with pytest.raises(InvalidRequest, match="no answer to continue"):
        PromptBuilder(tokenizer, helper, None).of_messages(user("count"), {}, continue_last=True)


def test_a_template_that_refuses_says_why(helper: TemplateHelper, tokenizer: Tokenizer) -> None:
    builder = PromptBuilder(tokenizer, helper, "{{ raise_exception('only questions, please') }}")
    with pytest.raises(TemplateError, match="only questions, please"):
        builder.of_messages(user("hello"), {})


def test_without_the_helper_prompts_are_plain_chatml_and_say_so_once(
    helper: TemplateHelper, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chat_template, "WORKER", "engine.tokenizer.no_such_worker")
    with TemplateHelper() as broken:
        builder = PromptBuilder(tokenizer, broken, WITH_BOS)
        talk = (*user("one"), ChatMessage("assistant", "two"), *user("three"))
        assert builder.of_messages(talk, {}) == PromptBuilder(tokenizer, helper, None).of_messages(talk, {})
        notice = builder.take_notice()
        assert notice is not None and "plain ChatML" in notice
        going_on = builder.of_messages(talk[:2], {}, continue_last=True)
        assert text_of(tokenizer, going_on).endswith("<|im_start|>assistant\ntwo")
        assert builder.take_notice() is None


def test_a_hostile_template_stays_an_error_without_the_helper(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_template, "WORKER", "engine.tokenizer.no_such_worker")
    with TemplateHelper() as broken, pytest.raises(TemplateError, match="hostile or broken"):
        PromptBuilder(tokenizer, broken, "{{ '" + "x" * 2_000_000 + "' }}").of_messages(user("hello"), {})


def test_parts_are_cut_at_the_mark() -> None:
    assert cut((("a", True), ("bMc", False), ("d", True)), "M") == (("a", True), ("b", False))
    with pytest.raises(TemplateError):
        cut((("a", True),), "M")


def test_a_thought_that_the_template_opens_is_told_once(helper: TemplateHelper, tokenizer: Tokenizer) -> None:
    builder = PromptBuilder(tokenizer, helper, THINKS)
    builder.of_messages(user("hello"), {"deep": True})
    assert (builder.take_opening(), builder.take_opening()) == ("<think>\n", "")
    builder.of_messages(user("hello"), {"deep": False})
    assert builder.take_opening() == ""
    builder.of_messages((*user("hello"), ChatMessage("assistant", "<think>\nwell")), {"deep": True}, continue_last=True)
    assert builder.take_opening() == ""


@pytest.mark.parametrize("deep", [True, False])
@pytest.mark.parametrize("said", ["<think>\nwell", "<think>\nwell\n</think>\n\nYes", "Yes"])
def test_an_answer_goes_on_behind_its_thought(helper: TemplateHelper, tokenizer: Tokenizer, said: str, deep: bool) -> None:
    builder = PromptBuilder(tokenizer, helper, THINKS)
    messages = (*user("hello"), ChatMessage("assistant", said))
    text = text_of(tokenizer, builder.of_messages(messages, {"deep": deep}, continue_last=True))
    assert builder.take_opening() == ""
    opened = text_of(tokenizer, builder.of_messages(messages[:1], {"deep": deep})).removesuffix("</think>\n\n")
    if said.startswith("<think>"):
        assert text == opened.removesuffix("<think>\n") + said
    else:  # an answer that had no thought: nothing may put it into one
        assert text.endswith("<|im_start|>Yes" if deep else "<think>\n</think>\n\nYes")


@pytest.mark.parametrize("name", ["Qwen-Qwen3-0.6B", "Qwen3.5-4B", "GLM-4.6", "deepseek-ai-DeepSeek-V3.1", "Qwen-QwQ-32B"])
@pytest.mark.parametrize("said", ["<think>\nwell", "<think>\nwell\n</think>\n\nYes"])
def test_published_templates_keep_the_thought_of_an_answer_that_goes_on(
    helper: TemplateHelper, tokenizer: Tokenizer, name: str, said: str
) -> None:
    builder = PromptBuilder(tokenizer, helper, (need_goldens("chat") / f"{name}.jinja").read_text())
    messages = (*user("hello"), ChatMessage("assistant", said))
    text = text_of(tokenizer, builder.of_messages(messages, {}, continue_last=True))
    assert text.endswith(said) and text.count("<think>") == 1 and text.count("</think>") == said.count("</think>")


def test_a_raw_prompt_opens_nothing(helper: TemplateHelper, tokenizer: Tokenizer) -> None:
    builder = PromptBuilder(tokenizer, helper, THINKS)
    builder.of_messages(user("hello"), {"deep": True})
    builder.of_request(Generate(RequestId("a"), prompt="hello<think>"))
    assert builder.take_opening() == ""


def test_only_the_template_opens_a_thought() -> None:
    assert opening_of((("a", False), ("b<think>\n\n", True))) == "<think>\n\n"
    for parts in ((), (("<think>", False),), (("<think> a", True),), (("<think>", True), ("a", False))):
        assert opening_of(parts) == ""
