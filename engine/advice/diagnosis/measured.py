"""The step of now as far as predictions want it, from a window; apart from `gains`, which brings the planner with it."""

from __future__ import annotations

from dataclasses import dataclass

from engine.advice.diagnosis.window import Window


@dataclass(frozen=True, slots=True)
class Measured:
    """The step of now. shares: of each device in it, 0..1; spread: how far single periods lie from their mean, in parts of it."""

    shares: dict[str, float]
    depth: int = 0
    spread: float = 0.0


def measured_of(window: Window) -> Measured | None:
    """What a window tells of its steps; None without decoding."""
    works = window.decoding
    shares = {one: share for one in window.devices if (share := window.share(one)) is not None}
    if not works or not shares:
        return None
    times = [one.step_ms for one in works if one.step_ms]
    mean = sum(times) / len(times)
    spread = (sum((one - mean) ** 2 for one in times) / len(times)) ** 0.5 / mean
    return Measured(shares, works[-1].kv_used_tokens // max(1, works[-1].n_answers), spread)


def prompts_measured_of(window: Window) -> Measured | None:
    """What a window tells of reading prompts; None where none was read. shares: of the time in which each device worked."""
    works = [one for one in window.works if (one.n_prefilled or one.prompt_tokens) and not one.n_decode_steps]
    rates = [one.prefill_tok_s for one in works if one.prefill_tok_s]
    if not rates:
        return None
    mean = sum(rates) / len(rates)
    spread = (sum((one - mean) ** 2 for one in rates) / len(rates)) ** 0.5 / mean
    return Measured({one.device: one.working_percent / 100 for one in works[-1].devices}, 0, spread)
