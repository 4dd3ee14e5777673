"""SamplingParams: what a request may ask of the sampler, with its ranges."""

from __future__ import annotations

from dataclasses import dataclass, fields

from engine.errors import InvalidRequest

RANGES: dict[str, tuple[float, float]] = {
    "temperature": (0.0, 5.0),
    "top_k": (0, 1_000_000),
    "top_p": (0.0, 1.0),
    "min_p": (0.0, 1.0),
    "repetition_penalty": (0.1, 10.0),
    "presence_penalty": (-2.0, 2.0),
    "frequency_penalty": (-2.0, 2.0),
    "penalty_window": (-1, 1_000_000),
    "max_tokens": (-1, 10_000_000),
}


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """Defaults sample plainly; temperature 0 is greedy.

    top_k 0, top_p 1, min_p 0 and penalties at their neutral values are off. penalty_window: tokens looked back, -1 the whole
    context. max_tokens -1: until the model stops or the context is full. seed None: a new one for each request.
    """

    temperature: float = 0.7
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    penalty_window: int = 64
    seed: int | None = None
    max_tokens: int = -1
    stop: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for field in fields(self):
            if field.name not in RANGES:
                continue
            low, high = RANGES[field.name]
            value = getattr(self, field.name)
            if not low <= value <= high:
                raise InvalidRequest(f"{field.name} is {value}, it must lie between {low:g} and {high:g}")
        if any(not text for text in self.stop):
            raise InvalidRequest("a stop string is empty; leave it out")
