"""The engine's errors, for the application."""

from engine.errors import (
    Cancelled,
    ContextFull,
    DeviceLost,
    EngineBug,
    EngineError,
    GgufError,
    InvalidRequest,
    ModelChanged,
    OutOfDeviceMemory,
    OutOfMemory,
    PlacementError,
    TemplateError,
    UnsupportedModel,
)

__all__ = [
    "Cancelled",
    "ContextFull",
    "DeviceLost",
    "EngineBug",
    "EngineError",
    "GgufError",
    "InvalidRequest",
    "ModelChanged",
    "OutOfDeviceMemory",
    "OutOfMemory",
    "PlacementError",
    "TemplateError",
    "UnsupportedModel",
]
