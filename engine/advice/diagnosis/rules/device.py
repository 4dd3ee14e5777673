"""Devices that went away, results that are no numbers, and sensors that do not answer."""

from __future__ import annotations

from engine.advice.diagnosis.finding import Action
from engine.advice.diagnosis.rule import Said
from engine.advice.diagnosis.window import CARD_STALE_S, SPAN_S, Window, spoken

REPEATED = 20
"""Tokens alike at the end of an answer. A line of a table does that too, for less than the seconds that a finding must last."""


def lost(window: Window) -> Said | None:
    """A card fell off the bus, or the engine met its fault."""
    fact = window.facts.lost
    if fact is not None:
        why = fact.sentence or "the engine met a fault of the device, and what it computed is void"
        sentence = f"{spoken(fact.device)} stopped answering at {fact.clock}. Your text is saved. Reload without it?"
        return Said(sentence, why, _plan_without(fact.device), fact.device)
    snapshot = window.newest
    for gpu in () if snapshot is None else snapshot.gpus:
        if gpu.state == "lost":
            device = window.device_name(gpu)
            if not _is_used(window, device):
                sentence = f"{spoken(device)} stopped answering. The loaded model does not use it."
                return Said(sentence, f"{gpu.name}: {gpu.problem}", about=device, level="external")
            sentence = f"{spoken(device)} stopped answering. Your text is saved. Reload without it?"
            return Said(sentence, f"{gpu.name}: {gpu.problem}", _plan_without(device), device)
    return None


def _is_used(window: Window, device: str) -> bool:
    """Whether something of the model lies there; where that is not told it may."""
    info = window.facts.info
    return info is None or not info.devices or any(one.device == device for one in info.devices)


def _plan_without(device: str) -> Action:
    return Action("without", "Plan without it", device, otherwise=Action("model", "Choose a smaller model"))


def invalid(window: Window) -> Said | None:
    """Values that are no numbers came out of a step: counted in a reading, or told by an answer that ended, which no reading
    has to have caught. Either is said for a window's time."""
    n_invalid = sum(one.n_invalid for one in window.works)
    fact = window.facts.invalid
    if not n_invalid and (fact is None or window.now_s - fact.time_s > SPAN_S):
        return None
    times = "a step" if n_invalid <= 1 else f"{n_invalid} steps"
    return Said(
        "The model produced invalid numbers. The file is probably damaged, or copies between GPUs were dropped.",
        f"values that are not finite came out of {times} in the last seconds, so the answer was ended"
        + (f": {fact.sentence}" if fact is not None else ""),
        Action("doctor", "Open the file's checks", target="D-FIL-3"),
    )


def repeated(window: Window) -> Said | None:
    """One token without end."""
    last = window.works[-1] if window.works else None
    if last is None or not last.n_decoded or last.n_repeated <= REPEATED:
        return None
    return Said(
        "The model repeats one token without end. The file may be damaged, or the sampling too strict.",
        f"the last {last.n_repeated} tokens of an answer are the same",
        Action("doctor", "Open the file's checks", target="D-FIL-3"),
        "repeats",
    )


def silent(window: Window) -> Said | None:
    """Readings stopped, or those of a card."""
    if window.is_stale:
        return Said(
            "Sensors not answering; nothing is said of speed until they do.",
            f"the last reading is {window.age_s:.0f} s old",
            Action("doctor", "Open Doctor", target="D-GPU-1"),
        )
    snapshot = window.newest
    if snapshot is None:
        return None
    quiet = [gpu for gpu in snapshot.gpus if gpu.state == "silent" or (gpu.state == "ok" and gpu.age_s > CARD_STALE_S)]
    if not quiet:
        return None
    # Others of the same driver are late now and then while one hangs: the one that hangs is the oldest.
    gpu = max(quiet, key=lambda one: one.age_s)
    why = gpu.problem or f"its last values are {gpu.age_s:.0f} s old"
    return Said(
        f"The sensors of {window.name(gpu)} are not answering; nothing is said of it until they do.",
        f"{gpu.name}: {why}",
        Action("doctor", "Open Doctor", target="D-GPU-1"),
        window.device_name(gpu),
    )
