"""FakeEngine: an EngineClient that replays scripts. Every state of the window can be reached with it, at any speed."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from engine.api.commands import (
    ApplyPlacement,
    AskHoldings,
    Cancel,
    Command,
    CountTokens,
    Generate,
    LoadModel,
    PinWorkers,
    TuneWorkers,
    UnloadModel,
    WatchExperts,
    WatchSensors,
)
from engine.api.events import (
    AnswerOpened,
    Event,
    Failed,
    Finished,
    Holdings,
    LoadProgress,
    MigrationProgress,
    ModelReady,
    ModelUnloaded,
    PlacementApplied,
    PrefillProgress,
    Queued,
    Sensors,
    TokenCount,
    TokenDelta,
    TunedRate,
    TuneProgress,
    WorkersPinned,
    WorkersTuned,
)
from engine.api.values import CpuSample, HardwareSnapshot, HoldingInfo, ModelInfo, RequestId, Usage
from engine.placement.threads import parse_threads

GB = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Load:
    """Weights that arrive in `steps` parts, `step_s` apart."""

    total: int = 98_362_432
    steps: int = 3
    step_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Prefill:
    """A prompt of `total` tokens in chunks, `chunk_s` each."""

    total: int = 32
    chunk: int = 16
    chunk_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Tokens:
    """Each text is one token. tok_s None: as fast as it goes."""

    texts: tuple[str, ...]
    tok_s: float | None = None


@dataclass(frozen=True, slots=True)
class Opened:
    """The template has begun the answer with a text."""

    text: str = "<think>\n"


@dataclass(frozen=True, slots=True)
class Stall:
    """Nothing for a while."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Fail:
    """Ends in Failed."""

    kind: str
    message: str
    is_bug: bool = False


OUT_OF_MEMORY = Fail("OutOfMemory", "The RAM has 0.4 GB free and 2.1 GB are needed; choose a smaller context.")
Step = Load | Prefill | Opened | Tokens | Stall | Fail
HELLO = (Prefill(), Tokens(("Hello", ", ", "world", "!")))


def words(text: str, tok_s: float | None = None) -> Tokens:
    """A text as tokens, a word each."""
    parts = text.split(" ")
    return Tokens(tuple(part + (" " if i < len(parts) - 1 else "") for i, part in enumerate(parts)), tok_s)


def model_info(path: str, n_ctx: int = 2048) -> ModelInfo:
    """A model as the engine would describe it."""
    return ModelInfo(
        path, "SmolLM2 135M Instruct", "llama", "Q4_1", 134_515_008, 30, 49152, 98_362_432, 8192, n_ctx, True, "avx2"
    )


def snapshot(use: float = 50.0) -> HardwareSnapshot:
    """A reading of a machine with four cores."""
    return HardwareSnapshot(time.monotonic(), CpuSample("A CPU", (use, use, 0.0, 100.0), 55.0), 8 * GB, 16 * GB, GB, 100 * GB)


class _Stopped(Exception):
    """The request was cancelled, or the engine closes."""


class _Failed(Exception):
    def __init__(self, step: Fail) -> None:
        self.step = step


@dataclass
class FakeEngine:
    """load and answer are the scripts; answers, when given, are used up one a request first. commands: all that was submitted.

    describe: the model that loading a path gives; apply: what comes before a placement is applied; holdings: what a model holds.
    tune: what comes before a sweep's figures; refused: lists of processors that the system does not give.
    """

    load: Sequence[Step] = (Load(),)
    answer: Sequence[Step] = HELLO
    answers: list[Sequence[Step]] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)
    closed: bool = False
    describe: Callable[[str], ModelInfo] = model_info
    apply: Sequence[Step] = ()
    holdings: Sequence[HoldingInfo] = ()
    tune: Sequence[Step] = ()
    refused: Sequence[str] = ()

    def __post_init__(self) -> None:
        self._listeners: list[Callable[[Event], None]] = []
        self._queue: queue.Queue[Command | None] = queue.Queue()
        self._cancelled: set[RequestId] = set()
        self._wake = threading.Event()
        self._model: ModelInfo | None = None
        self._waiting = 0
        self._thread = threading.Thread(target=self._run, name="fake-engine", daemon=True)
        self._thread.start()

    # --- EngineClient ------------------------------------------------------------------------------------------------

    def submit(self, command: Command) -> None:
        """Queues a command; Cancel and WatchSensors act at once."""
        self.commands.append(command)
        if isinstance(command, Cancel):
            self._cancelled.add(command.target)
            self._wake.set()
            self._emit(Finished(command.request_id, "done"))
            return
        if isinstance(command, WatchExperts):
            self._emit(Finished(command.request_id, "done"))
            return
        if isinstance(command, WatchSensors):
            self._emit(Sensors(command.request_id, snapshot()))
            self._emit(Finished(command.request_id, "done"))
            return
        if isinstance(command, Generate) and self._waiting:
            self._emit(Queued(command.request_id, self._waiting))
        self._waiting += 1
        self._queue.put(command)

    def subscribe(self, listener: Callable[[Event], None]) -> None:
        """Adds a listener, called on this engine's thread."""
        self._listeners.append(listener)

    def close(self) -> None:
        """Ends the thread."""
        self.closed = True
        self._wake.set()
        self._queue.put(None)
        self._thread.join(5)

    def sent(self, kind: type[Command]) -> list[Command]:
        """The commands of one kind, in order."""
        return [command for command in self.commands if isinstance(command, kind)]

    def tell(self, *events: Event) -> None:
        """Says something that no script holds, as readings are."""
        for event in events:
            self._emit(event)

    # --- the thread --------------------------------------------------------------------------------------------------

    def _emit(self, event: Event) -> None:
        for listener in tuple(self._listeners):
            listener(event)

    def _run(self) -> None:
        while (command := self._queue.get()) is not None and not self.closed:
            self._wake.clear()
            try:
                self._serve(command)
            except _Stopped:
                if isinstance(command, LoadModel):
                    self._emit(Failed(command.request_id, "Cancelled", "Loading was cancelled."))
                else:
                    self._emit(Finished(command.request_id, "cancelled", self._usage))
            except _Failed as failed:
                step = failed.step
                self._emit(Failed(command.request_id, step.kind, step.message, step.is_bug, self._usage))
            self._waiting -= 1

    def _serve(self, command: Command) -> None:
        self._usage = Usage()
        request_id = command.request_id
        match command:
            case LoadModel(path=path):
                if self._model is not None:
                    self._model = None
                    self._emit(ModelUnloaded(request_id))
                self._emit(LoadProgress(request_id, "header", 0, 0))
                self._play(request_id, self.load)
                self._emit(LoadProgress(request_id, "warmup", 0, 0))
                self._model = self.describe(path)
                self._emit(ModelReady(request_id, self._model))
            case UnloadModel():
                self._model = None
                self._emit(ModelUnloaded(request_id))
            case Generate():
                if self._model is None:
                    raise _Failed(Fail("InvalidRequest", "No model is loaded; choose one first."))
                self._play(request_id, self.answers.pop(0) if self.answers else self.answer)
                self._emit(Finished(request_id, "stop", self._usage))
                return
            case ApplyPlacement(placement=placement):
                if self._model is None:
                    raise _Failed(Fail("InvalidRequest", "no model is loaded; load one first"))
                self._emit(MigrationProgress(request_id, "weights", 1, 2))
                self._play(request_id, self.apply)
                self._model = replace(self._model, placement=placement)
                self._emit(PlacementApplied(request_id, self._model, 2, 0.01))
            case PinWorkers(cpus=cpus):
                self._emit(self._pinned(request_id, cpus))
            case TuneWorkers(forget=forget):
                self._play(request_id, self.tune)
                rates = () if forget else (TunedRate(1, 10.0, 0.01, 3), TunedRate(2, 19.0, 0.01, 3))
                self._emit(TuneProgress(request_id, "decode", 1, 2, 1, 10.0))
                self._emit(WorkersTuned(request_id, rates, (), 0 if forget else 2, 0, 4.2, not forget))
            case AskHoldings():
                self._emit(Holdings(request_id, tuple(self.holdings), ()))
            case CountTokens(messages=messages):
                n_tokens = sum(len(message.content.split()) + 4 for message in messages)
                self._emit(TokenCount(request_id, n_tokens, 2048))
        self._emit(Finished(request_id, "done"))

    def _pinned(self, request_id: RequestId, cpus: str) -> WorkersPinned:
        if self._model is None or self._model.placement is None:
            raise _Failed(Fail("InvalidRequest", "no model is loaded; load one first"))
        if cpus in self.refused:
            raise _Failed(Fail("InvalidRequest", "the system has no such processor; the workers stay where they were"))
        n, cores = parse_threads(cpus)
        workers = replace(self._model.placement.workers, cores=cores or tuple(range(n)))
        self._model = replace(self._model, placement=replace(self._model.placement, workers=workers))
        return WorkersPinned(request_id, self._model, 0.0012)

    def _play(self, request_id: RequestId, script: Sequence[Step]) -> None:
        for step in script:
            self._check(request_id)
            match step:
                case Load(total, steps, step_s):
                    for i in range(steps):
                        self._emit(LoadProgress(request_id, "weights", total * (i + 1) // steps, total))
                        self._pause(request_id, step_s)
                case Prefill(total, chunk, chunk_s):
                    for done in range(0, total, chunk):
                        self._emit(PrefillProgress(request_id, done, total))
                        self._pause(request_id, chunk_s)
                    self._emit(PrefillProgress(request_id, total, total))
                    self._usage = Usage(n_prompt=total, prefill_tok_s=250.0)
                case Tokens(texts, tok_s):
                    self._play_tokens(request_id, texts, tok_s)
                case Opened(text):
                    self._emit(AnswerOpened(request_id, text))
                case Stall(seconds):
                    self._pause(request_id, seconds)
                case Fail():
                    raise _Failed(step)

    def _play_tokens(self, request_id: RequestId, texts: tuple[str, ...], tok_s: float | None) -> None:
        start = time.monotonic()
        for i, text in enumerate(texts, start=1):
            if tok_s is not None:
                self._pause(request_id, start + i / tok_s - time.monotonic())
            self._check(request_id)
            n = self._usage.n_generated + 1
            self._usage = Usage(self._usage.n_prompt, 0, n, 0.05, self._usage.prefill_tok_s, tok_s or 1000.0)
            self._emit(TokenDelta(request_id, text, 1, n, tok_s))

    def _pause(self, request_id: RequestId, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self._wake.wait(left)
            self._check(request_id)
            self._wake.clear()

    def _check(self, request_id: RequestId) -> None:
        if self.closed or request_id in self._cancelled:
            raise _Stopped
