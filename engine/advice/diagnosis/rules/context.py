"""Conversations and requests: long ones, long prompts, first answers and queues. Good to know; nothing is amiss."""

from __future__ import annotations

from engine.advice.diagnosis.finding import Action
from engine.advice.diagnosis.remedies import longer_context
from engine.advice.diagnosis.rule import Said
from engine.advice.diagnosis.window import Window, percent_text

FULL = 0.80
SLOWER = 0.75
"""Of the pace with a short cache."""
ATTENTION_GREW = 0.10
"""Of a step, more than with a short cache: else it is not the conversation that makes it slower."""
LONGER_TOKENS = 512
LONG_PROMPT = 4000
LONG_S = 10.0
COLD_S = 120.0
COLD_FAULTS_PER_S = 1.0
WAITING = 2
WAITING_S = 5.0


def context_full(window: Window) -> Said | None:
    """The cache of conversations is nearly full."""
    works = window.works
    if not works or not works[-1].kv_total_tokens:
        return None
    used, total = works[-1].kv_used_tokens, works[-1].kv_total_tokens
    if used <= FULL * total or works[-1].n_answers > 1:
        return None  # of several answers each has its own length
    longer = longer_context(window)
    rest = "a longer context takes memory" if longer else "this model was made for no longer one: begin a new chat in time"
    return Said(
        f"Conversation uses {_thousands(used)} of {_thousands(total)} tokens.",
        f"beyond the end nothing can be answered; {rest}",
        Action("context", f"Plan a context of {longer:,} tokens", n_ctx=longer) if longer else Action(),
    )


def long_is_slow(window: Window) -> Said | None:
    """Decoding is slower since there is more to attend to."""
    fresh, works = window.facts.fresh, window.decoding
    now = window.works_mean(lambda one: one.decode_tok_s)
    attention = window.attention_share
    if fresh is None or not works or now is None or attention is None or fresh.attention is None:
        return None
    longer = works[-1].kv_used_tokens - fresh.kv_tokens
    if now > SLOWER * fresh.tok_s or attention < fresh.attention + ATTENTION_GREW or longer < LONGER_TOKENS:
        return None
    return Said(
        f"Slower because the conversation is long (attention {percent_text(attention)} of time), not because of a fault.",
        f"{now:.1f} tokens/s with {_thousands(works[-1].kv_used_tokens)} tokens in the cache; it was {fresh.tok_s:.1f} with "
        f"{_thousands(fresh.kv_tokens)}, when attention took {percent_text(fresh.attention)}",
    )


def long_prompt(window: Window) -> Said | None:
    """A long prompt is being read."""
    if not window.is_prefilling:
        return None
    works = window.works
    last = works[-1]
    reading = [one for one in works if one.prompt_tokens > LONG_PROMPT]
    rate = window.works_mean(lambda one: one.prefill_tok_s, works)
    if not reading or not rate or last.prompt_tokens <= LONG_PROMPT or last.prompt_tokens / rate <= LONG_S:
        return None
    left = (last.prompt_tokens - last.prompt_done) / rate
    return Said(
        f"Reading the prompt: {last.prompt_done:,} of {last.prompt_tokens:,} tokens at {rate:,.0f} tokens/s, "
        f"about {_span(left)} more.",
        "what an earlier prompt began with is not read again",
    )


def cold(window: Window) -> Said | None:
    """The first answer after loading brings weights into memory."""
    facts = window.facts
    if facts.loaded_s is None or facts.n_answers or window.now_s - facts.loaded_s > COLD_S:
        return None
    if not window.works or not window.works[-1].n_answers:
        return None
    faults = [one.snapshot.memory.process_major_faults_per_s for one in window.readings]
    known = [one for one in faults if one is not None]
    if len(known) < 2 or sum(known) / len(known) <= COLD_FAULTS_PER_S:
        return None
    return Said(
        "First answer warms the caches; the next is faster.",
        f"{known[-1]:.0f} page faults a second bring weights from the disk into memory, once",
    )


def queue(window: Window) -> Said | None:
    """Requests have been waiting for a while."""
    if not window.works or not window.readings:
        return None
    end = window.readings[-1].snapshot.time_s
    recent = [one for one in window.readings if end - one.snapshot.time_s <= WAITING_S and one.work is not None]
    waiting = [one.work.n_waiting for one in recent if one.work is not None]
    if len(recent) < 2 or min(waiting) < WAITING or end - recent[0].snapshot.time_s < WAITING_S - 1.5:
        return None
    return Said(
        f"{waiting[-1]} requests wait.",
        f"at least {min(waiting)} have waited for {WAITING_S:.0f} s; each begins when the cache has room for it",
    )


def _thousands(n: int) -> str:
    return f"{n / 1000:.0f} k" if n >= 10_000 else f"{n:,}"


def _span(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
