"""The run without a display: the same application does its main job once. It loads a model, asks one question, streams the answer
to the terminal, and saves a picture of the window.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from PySide6.QtCore import SignalInstance

from app.bridge.engine_state import EngineState
from app.ops.chat_ops import Trouble, Turn
from app.paths import included_model
from app.store.rows import MessageRow
from app.windows.main_window import MainWindow
from app.windows.parts import Parts
from engine.api.values import SamplingParams

SIZE = (1440, 900)
SETTLE_S = 0.4
GREEDY = SamplingParams(temperature=0.0, max_tokens=512)
"""Greedy, so that the answer is the one that `layerdeck generate --temp 0` gives; bounded, since a small model may never end."""


async def ask_once(parts: Parts, window: MainWindow, model: str | None, prompt: str) -> int:
    """Runs the job; the exit status. Progress goes to standard error, the answer and the picture's path to standard output."""
    _say("layerdeck: no display found, so the window opens offscreen and answers one question here")
    path = model or (str(found) if (found := included_model()) else None)
    if path is None:
        _say("layerdeck: no model to load: the included model is not installed; give a GGUF file as the argument")
        return 1
    window.resize(*SIZE)
    window.show()
    state = await _loaded(parts, path)
    if state.kind != "ready" or state.model is None:
        _say(f"layerdeck: {state.detail}")
        return 1
    _say(f"layerdeck: {Path(path).name} is loaded; asking: {prompt}")
    answer = await _answered(parts, window, prompt)
    sys.stdout.write("\n")
    if isinstance(answer, Trouble) or answer.status == "error":
        _say(f"layerdeck: {answer.sentence if isinstance(answer, Trouble) else answer.error}")
        return 1
    await asyncio.sleep(SETTLE_S)
    picture = _save_picture(parts, window)
    _say(f"layerdeck: {answer.figures.n_tokens} tokens, {answer.figures.decode_tok_s or 0:.1f} tok/s; picture of the window:")
    sys.stdout.write(f"{picture}\n")
    return 0


async def _loaded(parts: Parts, path: str) -> EngineState:
    wait = _Next(parts.bridge.state_changed, lambda state: state.kind in ("ready", "error"))
    window_path = str(Path(path).absolute())
    parts.models.load(window_path)
    state: EngineState = await wait.value()
    return state


async def _answered(parts: Parts, window: MainWindow, prompt: str) -> MessageRow | Trouble:
    begun = _Next(parts.chats.turn_begun, lambda turn: True)
    ended = _Next(parts.chats.updated, lambda row: row.role == "assistant" and row.status != "streaming")
    failed = _Next(parts.chats.troubled, lambda trouble: True)
    parts.chats.text_added.connect(_stream)
    window.controller.ask(prompt, GREEDY)
    done, _ = await asyncio.wait({begun.future, failed.future}, return_when=asyncio.FIRST_COMPLETED)
    if failed.future in done:
        trouble: Trouble = failed.future.result()
        return trouble
    turn: Turn = begun.future.result()
    row: MessageRow = await ended.value()
    assert row.id == turn.answer.id
    return row


def _stream(message_id: int, text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _save_picture(parts: Parts, window: MainWindow) -> Path:
    folder = parts.paths.pictures
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"window-{time.strftime('%Y%m%d-%H%M%S')}.png"
    window.grab().save(str(path))
    return path


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


class _Next:
    """The next value of a signal that is wanted."""

    def __init__(self, signal: SignalInstance, wanted: Callable[[Any], bool]) -> None:
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._signal = signal
        self._wanted = wanted
        signal.connect(self._on_value)

    async def value(self) -> Any:
        return await self.future

    def _on_value(self, value: Any) -> None:
        if not self.future.done() and self._wanted(value):
            self.future.set_result(value)
            self._signal.disconnect(self._on_value)
