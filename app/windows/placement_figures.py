"""What the placement page says in figures and words, as pure functions of predictions and runs."""

from __future__ import annotations

import time
from collections.abc import Sequence

from app.i18n import filled, tr
from app.ops.placement_planning import device_name
from app.ops.two_samples import sample
from app.placement.figure_table import TableRow
from app.placement.summary_bar import Figure
from app.store.placements import RunRow
from app.widgets.format import bytes_text, rate_text
from engine.api.pure import DevicePrediction, Prediction

_NEWEST = 5
"""Runs that make up a measured figure."""
_DAY_S = 86_400.0


def summary(prediction: Prediction, before: Prediction | None, runs: Sequence[RunRow], now_s: float) -> tuple[Figure, ...]:
    """The five cells. before: what deltas are to, None for no deltas; runs: what was measured of this placement, newest first."""
    return (
        _decode(prediction, before, runs, now_s),
        _prefill(prediction, before, runs, now_s),
        _load(prediction),
        Figure(tr("Placement", "Limited by"), device_name(prediction.limit_device), limit_text(prediction.limit)),
        _tightest(prediction.tightest),
    )


def _decode(prediction: Prediction, before: Prediction | None, runs: Sequence[RunRow], now_s: float) -> Figure:
    rates = [run.decode_tok_s for run in runs[:_NEWEST] if run.decode_tok_s is not None]
    bound = filled(tr("Placement", "at most %1"), whole_rate(prediction.bound_tok_s))
    if rates:
        label = filled(tr("Placement", "Decode, measured %1"), day_text(runs[0].measured_s, now_s))
        expected = filled(tr("Placement", "estimated %1"), whole_rate(prediction.decode_tok_s))
        return Figure(label, whole_rate(sample(rates).mean), "tok/s", note=expected)
    delta, tone = _delta(prediction.decode_tok_s, None if before is None else before.decode_tok_s)
    label = tr("Placement", "Decode, estimated")
    return Figure(label, whole_rate(prediction.decode_tok_s), "tok/s", delta=delta, delta_tone=tone, note=bound)


def _prefill(prediction: Prediction, before: Prediction | None, runs: Sequence[RunRow], now_s: float) -> Figure:
    rates = [run.prefill_tok_s for run in runs[:_NEWEST] if run.prefill_tok_s is not None]
    if rates:
        label = filled(tr("Placement", "Prefill, measured %1"), day_text(runs[0].measured_s, now_s))
        return Figure(label, whole_rate(sample(rates).mean), "tok/s")
    delta, tone = _delta(prediction.prefill_tok_s, None if before is None else before.prefill_tok_s)
    return Figure(
        tr("Placement", "Prefill, estimated"), whole_rate(prediction.prefill_tok_s), "tok/s", delta=delta, delta_tone=tone
    )


def _load(prediction: Prediction) -> Figure:
    seconds = prediction.load_s
    label = tr("Placement", "Load time")
    if seconds < 120:
        return Figure(label, f"{seconds:.1f}" if seconds < 9.95 else f"{seconds:.0f}", "s")
    return Figure(label, f"{seconds / 60:.1f}" if seconds < 600 else f"{seconds / 60:.0f}", "min")


def _tightest(device: DevicePrediction) -> Figure:
    label, name = tr("Placement", "Tightest device"), device_name(device.device)
    if device.over:
        return Figure(label, name, filled(tr("Placement", "%1 over"), bytes_text(device.over)), "err")
    return Figure(label, name, filled(tr("Placement", "%1 free"), bytes_text(device.capacity - device.used)))


def _delta(value: float, before: float | None) -> tuple[str, str]:
    """(`+0.8`, tone): empty where it would read as nothing."""
    if before is None:
        return "", "ok"
    return signed_rate(value - before), "ok" if value >= before else "err"


def signed_rate(change: float) -> str:
    """`+0.8`, `−12`, `+1.4k`; empty for a change that rounds to nothing."""
    digits = f"{abs(change):.1f}" if abs(change) < 9.95 else f"{abs(change):.0f}"
    if abs(change) >= 999.5:
        digits = f"{abs(change) / 1000:.1f}k" if abs(change) < 99_950 else f"{abs(change) / 1000:.0f}k"
    if digits == "0.0":
        return ""
    return f"{'+' if change > 0 else '−'}{digits}"


def whole_rate(tok_s: float) -> str:
    """`12.1`, `240`, `33,700`: a rate with three significant digits."""
    return rate_text(tok_s) if tok_s < 1000 else f"{round(tok_s, -1 if tok_s < 10_000 else -2):,.0f}"


def limit_text(limit: str) -> str:
    """What holds a step up, as people say it."""
    return {
        "memory read": tr("Placement", "memory read"),
        "computing": tr("Placement", "computing"),
        "launches": tr("Placement", "launches"),
        "meetings": tr("Placement", "waiting for the other side"),
        "transfers": tr("Placement", "transfers"),
        "room": tr("Placement", "room"),
    }.get(limit, limit)


def sentence_case(text: str) -> str:
    """The engine's sentences stand behind the name of a program there; here they begin."""
    # The name of a file stays as it is written.
    begun = text[:1].upper() + text[1:] if text.split(" ", 1)[0].isalpha() else text
    return begun + ("" if text.endswith((".", "!", "?")) else ".")


def day_text(time_s: float, now_s: float) -> str:
    """`14:02` of today, `12 Nov` of this year, else with the year."""
    then = time.localtime(time_s)
    if now_s - time_s < _DAY_S and then.tm_yday == time.localtime(now_s).tm_yday:
        return time.strftime("%H:%M", then)
    return time.strftime("%-d %b" if then.tm_year == time.localtime(now_s).tm_year else "%-d %b %Y", then)


def over_sentence(prediction: Prediction) -> str:
    """What does not fit, with the arithmetic; empty where all does."""
    over = [one for one in prediction.devices if one.over]
    if not over:
        return ""
    first = max(over, key=lambda one: one.over)
    text = filled(
        tr("Placement", "%1 is %2 over: %3 are planned and %4 can be taken."),
        device_name(first.device),
        bytes_text(first.over),
        bytes_text(first.used),
        bytes_text(first.capacity),
    )
    others = ", ".join(device_name(one.device) for one in over if one is not first)
    return text if not others else f"{text} {filled(tr('Placement', 'Too full as well: %1.'), others)}"


def comparison_rows(a: Prediction, b: Prediction) -> tuple[TableRow, ...]:
    """Figures of two placements and how the second differs from the first."""
    rows = [
        _rate_row(tr("Placement", "Decode, tok/s"), a.decode_tok_s, b.decode_tok_s),
        _rate_row(tr("Placement", "Prefill, tok/s"), a.prefill_tok_s, b.prefill_tok_s),
        _rate_row(tr("Placement", "At most, tok/s"), a.bound_tok_s, b.bound_tok_s),
        TableRow(tr("Placement", "Load time"), (f"{a.load_s:.0f} s", f"{b.load_s:.0f} s", "")),
        TableRow(tr("Placement", "Limited by"), (device_name(a.limit_device), device_name(b.limit_device), "")),
    ]
    theirs = {one.device: one for one in b.devices}
    for one in a.devices:
        other = theirs.get(one.device)
        if other is None or not (one.used or other.used):
            continue
        change = other.used - one.used
        sign = "" if abs(change) < 5_000_000 else f"{'+' if change > 0 else '−'}{bytes_text(abs(change))}"
        cells = (_room(one), _room(other), sign)
        rows.append(TableRow(device_name(one.device), cells, "err" if other.over else "text2"))
    return tuple(rows)


def _room(one: DevicePrediction) -> str:
    return bytes_text(one.used) if not one.over else f"{bytes_text(one.used)} !"


def _rate_row(label: str, a: float, b: float) -> TableRow:
    share = (b / a - 1) * 100 if a else 0.0
    change = "" if abs(share) < 0.05 else f"{'+' if share > 0 else '−'}{abs(share):.1f} %"
    return TableRow(label, (whole_rate(a), whole_rate(b), change), "ok" if share >= 0 else "err")
