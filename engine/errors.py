"""The error tree of the engine.

`EngineError`: known, the user can act; its message is one sentence: what, where, what to do. `EngineBug`: ours, ends in a crash
report.
"""

from __future__ import annotations


class EngineError(Exception):
    """A known failure. `str(error)` is the one sentence shown to people."""


class GgufError(EngineError):
    """A damaged or hostile model file; the message names the field and the byte offset."""


class UnsupportedModel(EngineError):
    """An architecture, tensor type or tokenizer that this version does not run; the message says what is supported."""


class ModelChanged(EngineError):
    """The model file was replaced, truncated or became unreadable while it was in use."""


class InvalidRequest(EngineError):
    """A request that cannot be served as asked: ids out of range, a prompt beyond the context, a bad parameter."""


class ContextFull(InvalidRequest):
    """A prompt that takes more tokens than the context holds."""


class PlacementError(EngineError):
    """A placement that names an unknown unit or device, or belongs to another model."""


class OutOfMemory(EngineError):
    """An allocation that failed; the message names the device and the bytes asked for and free."""


class OutOfDeviceMemory(OutOfMemory):
    """A GPU that has less memory free than was asked for. move: what would make room, e.g. `move layers 0-3 to the CPU`."""

    def __init__(self, what: str, device: str, asked: int, free: int, move: str = "") -> None:
        advice = move or "place fewer layers there, keep experts in the machine's memory, or choose a shorter context"
        super().__init__(f"{what} needs {asked:,} bytes on {device} and {free:,} are free; {advice}")
        self.what = what
        self.device = device
        self.asked = asked
        self.free = free
        self.move = move

    @property
    def missing(self) -> int:
        """Bytes that would have to become free."""
        return max(0, self.asked - self.free)


class DeviceLost(EngineError):
    """A GPU that met a fault or went away; what it computed is void."""


class InvalidNumbers(EngineError):
    """Values that are not finite came out of a step; the message names where, if that is known."""


class TemplateError(EngineError):
    """A chat template that is broken, hostile, or refused the messages."""


class HelperDied(EngineError):
    """A helper process ended, hung, or exceeded its limits. signal: what ended it, None where it was ended by us or by itself."""

    def __init__(self, message: str, signal: int | None = None, *, hung: bool = False) -> None:
        super().__init__(message)
        self.signal = signal
        self.hung = hung


class Cancelled(EngineError):
    """The request was cancelled by its owner."""


class ConversionError(EngineError):
    """A checkpoint that cannot be turned into a model file."""


class EngineBug(Exception):
    """A broken promise inside the engine."""
