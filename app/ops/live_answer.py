"""LiveAnswer: one answer while it is written. It turns engine events into the row that is shown and journalled. No Qt, no SQL."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

from app.i18n import filled, tr
from app.store.chats import Answer
from app.store.rows import Figures, MessageRow, Status
from engine.api.events import Failed, Finished, PrefillProgress, TokenDelta
from engine.api.values import RequestId, Usage

THINK_END = "</think>"
CONTEXT_FULL = "ContextFull"


@dataclass(slots=True)
class LiveAnswer:
    """row is the newest state, status `streaming` until `ended`. before: the figures of the text that is continued.

    thought: seconds and tokens up to the end of thinking, once that has come.
    """

    row: MessageRow
    request_id: RequestId
    before: Figures = field(init=False)
    opening: str = ""
    """What the template has begun the answer with; it shows with the first text."""
    thought: tuple[float, int] | None = None
    _prefill_began: tuple[float, int] | None = None
    _text_began_s: float | None = None

    def __post_init__(self) -> None:
        self.before = self.row.figures
        self.row = replace(self.row, status="streaming", error="", error_kind="")

    def journalled(self) -> Answer:
        """What the store is to note."""
        row = self.row
        return Answer(row.id, row.text, row.status, row.figures, row.error, row.error_kind)

    @property
    def n_context(self) -> int:
        """Tokens of the context that prompt and answer take so far."""
        return self.row.figures.n_prompt + self.row.figures.n_tokens

    @property
    def has_begun(self) -> bool:
        """Whether text has come since it was asked for."""
        return self._text_began_s is not None

    def note_prompt(self, n_prompt: int) -> None:
        """How long the prompt is; that of a continued answer holds the answer so far, which is counted apart."""
        n_prompt = max(0, n_prompt - self.before.n_tokens)
        self.row = replace(self.row, figures=replace(self.row.figures, n_prompt=n_prompt))

    def prefill_tok_s(self, event: PrefillProgress, now_s: float | None = None) -> float | None:
        """The speed of the prefill so far; None before there is a second point."""
        now = time.monotonic() if now_s is None else now_s
        if self._prefill_began is None or event.done < self._prefill_began[1]:
            self._prefill_began = (now, event.done)
            return None
        began, done = self._prefill_began
        return (event.done - done) / (now - began) if event.done > done and now > began else None

    def add(self, event: TokenDelta, now_s: float | None = None) -> str:
        """Takes new text; gives what is to be shown behind the text so far."""
        now = time.monotonic() if now_s is None else now_s
        if self._text_began_s is None:
            self._text_began_s = now
        figures = replace(self.row.figures, n_tokens=self.before.n_tokens + event.n_generated, decode_tok_s=event.decode_tok_s)
        added = event.text if self.row.text else self.opening + event.text
        text = self.row.text + added
        # The mark may come in two pieces, so a little of the text before is looked at too.
        if self.thought is None and THINK_END in text[-len(event.text) - len(THINK_END) :]:
            self.thought = (now - self._text_began_s, figures.n_tokens)
        self.row = replace(self.row, text=text, figures=figures)
        return added

    def end(self, event: Finished | Failed, n_ctx: int = 0) -> None:
        """Takes how it ended: done, stopped by the user, or an error with its sentence. An answer that was cut off because a
        context of n_ctx tokens is full is an error too: there is something to do about it."""
        if isinstance(event, Failed):
            if event.kind == "Cancelled":
                self._settle("stopped", event.usage)
            else:
                self._settle("error", event.usage, event.message, event.kind)
            return
        self._settle("stopped" if event.reason == "cancelled" else "done", event.usage)
        if event.reason == "length" and 0 < n_ctx <= event.usage.n_prompt + event.usage.n_generated:
            sentence = filled(tr("Chats", "The context is full: all %1 tokens are used."), f"{n_ctx:,}")
            self.row = replace(self.row, status="error", error=sentence, error_kind=CONTEXT_FULL)

    def interrupt(self) -> None:
        """The application ends before the answer does."""
        self.row = replace(self.row, status="interrupted")

    def _settle(self, status: Status, usage: Usage, error: str = "", kind: str = "") -> None:
        measured = Figures(
            n_tokens=max(self.before.n_tokens + usage.n_generated, self.row.figures.n_tokens),
            n_prompt=max(0, usage.n_prompt - self.before.n_tokens) or self.row.figures.n_prompt,
            decode_tok_s=usage.decode_tok_s,
            prefill_tok_s=usage.prefill_tok_s,
            ttft_s=usage.ttft_s,
        )
        # Stopped between the tokens of one character: its half is not part of the answer, and not of what is continued.
        text = self.row.text if status == "done" else self.row.text.removesuffix("\ufffd")
        self.row = replace(self.row, text=text, status=status, error=error, error_kind=kind, figures=measured)
