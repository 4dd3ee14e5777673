"""Answers in channels, as gpt-oss writes them: analysis, then a final message, each behind a header of control tokens. People see
the analysis as a thought, like that of other models, and earlier answers go back to the template without it."""

from __future__ import annotations

from engine.api.commands import Generate
from engine.tokenizer.build import Tokenizer
from engine.tokenizer.stream_decoder import StreamDecoder

THINK, THINK_END = "<think>\n", "\n</think>\n\n"
_ANALYSIS = "<|channel|>analysis<|message|>"
_FINAL = "<|channel|>final<|message|>"
_BETWEEN = "<|end|><|start|>assistant"
_THOUGHT = "analysis"


class ChannelDecoder(StreamDecoder):
    """Decodes an answer in channels: headers are dropped, analysis stands between `<think>` and `</think>`."""

    def __init__(self, tokenizer: Tokenizer, *, thinking: bool = False) -> None:
        """thinking: the answer goes on inside an analysis that is shown already."""
        super().__init__(tokenizer)
        self._structure = tokenizer.channel_tokens
        self._thinking = thinking
        self._header: str | None = None

    def push(self, token: int) -> str:
        """As `StreamDecoder.push`."""
        mark = self._structure.get(token)
        if mark is None:
            text = super().push(token)
            if self._header is None:
                return text
            self._header += text
            return ""
        before = super().flush()
        if mark == "<|message|>":
            return before + self._begin()
        if mark == "<|end|>":
            return before + self._end()
        if mark in ("<|start|>", "<|channel|>"):
            ended = self._end() if mark == "<|start|>" else ""
            self._header = ""
            return before + ended
        return before

    def _begin(self) -> str:
        header, self._header = self._header, None
        if self._thinking or header is None or not header.strip().startswith(_THOUGHT):
            return ""
        self._thinking = True
        return THINK

    def _end(self) -> str:
        self._header = None
        if not self._thinking:
            return ""
        self._thinking = False
        return THINK_END


def decoder_for(tokenizer: Tokenizer, request: Generate) -> StreamDecoder:
    """The decoder of an answer: channels are shown as thought and answer in conversations; raw prompts show what is written."""
    if request.messages is None or not tokenizer.channel_tokens:
        return StreamDecoder(tokenizer)
    return ChannelDecoder(tokenizer, thinking=request.continue_last and is_in_thought(request.messages[-1].content))


def answer_of(shown: str) -> str:
    """An earlier answer without its thought: what the template is given."""
    return shown.rpartition(THINK_END.strip())[2].lstrip("\n") if THINK_END.strip() in shown else shown


def is_in_thought(shown: str) -> bool:
    """Whether an answer so far stops inside its thought."""
    return THINK.strip() in shown and THINK_END.strip() not in shown


def continued(shown: str) -> str:
    """An answer so far as the model wrote it, behind `<|start|>assistant`."""
    thought, ended, answer = shown.partition(THINK_END.strip())
    if not ended and not is_in_thought(shown):
        return _FINAL + shown
    analysis = _ANALYSIS + thought.partition(THINK.strip())[2].strip("\n" if ended else "").removeprefix("\n")
    return analysis + _BETWEEN + _FINAL + answer.lstrip("\n") if ended else analysis
