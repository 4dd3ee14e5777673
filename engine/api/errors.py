"""The engine's errors, for the application."""

from engine.errors import (
    Cancelled,
    EngineBug,
    EngineError,
    GgufError,
    InvalidRequest,
    ModelChanged,
    OutOfMemory,
    TemplateError,
    UnsupportedModel,
)

__all__ = [
    "Cancelled",
    "EngineBug",
    "EngineError",
    "GgufError",
    "InvalidRequest",
    "ModelChanged",
    "OutOfMemory",
    "TemplateError",
    "UnsupportedModel",
]
