"""The colour of the dot that stands for what the engine does, the same wherever it is shown."""

from __future__ import annotations

STATE_DOTS = {
    "no_model": "text3",
    "reading": "warn",
    "loading": "warn",
    "warming": "warn",
    "ready": "ok",
    "prefill": "accent",
    "generating": "ok",
    "stopping": "warn",
    "error": "err",
}
