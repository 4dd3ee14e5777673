"""MessageTelemetry: what the machine did while an answer was written, small enough to stay with the message for ever.

Packed: zlib over a header in JSON and, for each gauge, one 16-bit number a row between its lowest and highest value, as
differences from row to row. Rows are thinned until all of it fits MAX_BYTES.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from app.telemetry import keys
from app.telemetry.readings import KEPT_GPU_FIELDS
from engine.api.values import GpuSample, HardwareSnapshot

F64 = npt.NDArray[np.float64]
MAX_BYTES = 16_384
VERSION = 1
_MAX_PLAIN = 8_000_000
"""What is unpacked of damaged data before it is given up."""
_UNKNOWN = 65_535


class TelemetryDamaged(ValueError):
    """The packed bytes are not what `packed` wrote."""


@dataclass(frozen=True, slots=True)
class Card:
    """What does not change of a card."""

    key: str
    pci: str
    name: str
    maker: Any
    memory_total_bytes: int | None


@dataclass(frozen=True, slots=True)
class MessageTelemetry:
    """times_s: since began_s (seconds since 1970), ascending; columns: values by gauge, NaN where not known; period_s: between
    rows, at most.

    model: which one answered; cpu_name, ram_total_bytes, cards: the machine it was on.
    """

    began_s: float
    period_s: float
    model: str
    cpu_name: str
    ram_total_bytes: int
    cards: tuple[Card, ...]
    times_s: F64 = field(repr=False)
    columns: Mapping[str, F64] = field(repr=False)

    def thinned(self, n: int = 2) -> MessageTelemetry:
        """n rows become one, with their mean."""
        starts = np.arange(0, len(self.times_s), n)
        columns = {key: _means(values, starts) for key, values in self.columns.items()}
        return replace(self, period_s=n * self.period_s, times_s=self.times_s[starts], columns=columns)

    def then(self, other: MessageTelemetry) -> MessageTelemetry:
        """With what came when the answer was continued, behind a gap of three periods."""
        offset = (self.times_s[-1] if len(self.times_s) else 0.0) + 3 * max(self.period_s, other.period_s)
        names = dict.fromkeys((*self.columns, *other.columns))
        columns = {key: np.concatenate((_column(self, key), _column(other, key))) for key in names}
        times = np.concatenate((self.times_s, other.times_s + offset))
        period_s = max(self.period_s, other.period_s)
        return replace(other, began_s=self.began_s, period_s=period_s, times_s=times, columns=columns)


def cards_of(snapshot: HardwareSnapshot) -> tuple[Card, ...]:
    """Of the cards that are there."""
    return tuple(Card(gpu.key, gpu.pci, gpu.name, gpu.maker, gpu.memory_total_bytes) for gpu in snapshot.gpus)


def of_rows(
    began_s: float,
    period_s: float,
    model: str,
    snapshot: HardwareSnapshot,
    times_s: Sequence[float],
    rows: Sequence[Mapping[str, float]],
) -> MessageTelemetry:
    """Readings of one answer, at least one. times_s: since began_s. snapshot: tells the machine."""
    names = dict.fromkeys(key for row in rows for key in row)
    columns = {key: np.array([row.get(key, np.nan) for row in rows]) for key in names}
    times: F64 = np.maximum.accumulate(np.maximum(0.0, np.array(times_s)))
    return MessageTelemetry(
        began_s, period_s, model, snapshot.cpu.name, snapshot.ram_total_bytes, cards_of(snapshot), times, columns
    )


def gpu_sample(card: Card, values: Mapping[str, float], reason: str) -> GpuSample:
    """A card by what was kept of it. reason: why all else is missing."""
    found = {name: values[key] for name in KEPT_GPU_FIELDS if (key := keys.gpu(card.key, name)) in values}
    told = GpuSample(card.key, card.pci, card.name, card.maker, memory_total_bytes=card.memory_total_bytes, **found)  # type: ignore[arg-type]
    names = (
        "busy_percent",
        "core_clock_mhz",
        "fan_percent",
        "margin_c",
        "slow_reasons",
        "link_generation",
        "link_width",
        *KEPT_GPU_FIELDS,
    )
    return replace(told, missing=tuple((name, reason) for name in names if getattr(told, name) is None))


def packed(telemetry: MessageTelemetry, limit: int = MAX_BYTES) -> bytes:
    """At most `limit` bytes, which take at least a row of some hundred gauges. Raises ValueError for more gauges than that."""
    while True:
        data = _packed(telemetry)
        if len(data) <= limit:
            return data
        if len(telemetry.times_s) <= 1:
            raise ValueError(f"{len(telemetry.columns)} gauges do not fit {limit} bytes")
        telemetry = telemetry.thinned()


def _packed(telemetry: MessageTelemetry) -> bytes:
    ranges = {key: _range(values) for key, values in telemetry.columns.items()}
    head = {
        "began_s": telemetry.began_s,
        "period_s": telemetry.period_s,
        "model": telemetry.model,
        "cpu_name": telemetry.cpu_name,
        "ram_total_bytes": telemetry.ram_total_bytes,
        "cards": [asdict(card) for card in telemetry.cards],
        "n_rows": len(telemetry.times_s),
        "columns": [[key, *ranges[key]] for key in telemetry.columns],
    }
    text = json.dumps(head, ensure_ascii=False, separators=(",", ":")).encode()
    times = np.diff(np.round(1e3 * telemetry.times_s).astype(np.int64), prepend=0).astype("<u4")
    codes = [_codes(values, *ranges[key]) for key, values in telemetry.columns.items()]
    plain = len(text).to_bytes(4, "little") + text + times.tobytes() + b"".join(one.tobytes() for one in codes)
    return bytes([VERSION]) + zlib.compress(plain, 9)


def unpacked(data: bytes) -> MessageTelemetry:
    """What `packed` was given, but for rounding and thinning. Raises TelemetryDamaged, also for a version of the future."""
    if not data or data[0] != VERSION:
        raise TelemetryDamaged("telemetry of another version")
    try:
        unpack = zlib.decompressobj()
        plain = unpack.decompress(data[1:], _MAX_PLAIN)
        if not unpack.eof:
            raise TelemetryDamaged("it does not end where it should")
        return _read(plain)
    except (zlib.error, ValueError, KeyError, TypeError, OverflowError) as error:
        raise TelemetryDamaged(f"telemetry is damaged: {error}") from error


def _read(plain: bytes) -> MessageTelemetry:
    n_text = int.from_bytes(plain[:4], "little")
    head, at = json.loads(plain[4 : 4 + n_text].decode()), 4 + n_text
    n_rows = int(head["n_rows"])
    columns: Sequence[Any] = head["columns"]
    if n_rows < 0 or len(plain) != at + n_rows * (4 + 2 * len(columns)):
        raise TelemetryDamaged("rows are missing")
    times: F64 = np.cumsum(np.frombuffer(plain, "<u4", n_rows, at).astype(np.int64)).astype(np.float64) * 1e-3
    at += 4 * n_rows
    found = {}
    for i, (key, low, high) in enumerate(columns):
        found[str(key)] = _values(np.frombuffer(plain, "<u2", n_rows, at + 2 * n_rows * i), float(low), float(high))
    cards = tuple(Card(**one) for one in head["cards"])
    period_s, began_s = float(head["period_s"]), float(head["began_s"])
    if not (0 < period_s < 1e6 and 0 <= began_s < 1e11):
        raise TelemetryDamaged("times that cannot be")
    return MessageTelemetry(
        began_s, period_s, str(head["model"]), str(head["cpu_name"]), int(head["ram_total_bytes"]), cards, times, found
    )


def _range(values: F64) -> tuple[float, float]:
    finite = values[np.isfinite(values)]
    return (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 0.0)


def _codes(values: F64, low: float, high: float) -> npt.NDArray[np.uint16]:
    scaled = np.zeros(len(values)) if high <= low else (values - low) / (high - low) * (_UNKNOWN - 1)
    codes = np.where(np.isfinite(values), np.round(np.nan_to_num(scaled)), _UNKNOWN).astype(np.int64)
    return (np.diff(codes, prepend=0) & 0xFFFF).astype("<u2")


def _values(steps: npt.NDArray[np.uint16], low: float, high: float) -> F64:
    codes = np.cumsum(steps.astype(np.int64)) & 0xFFFF
    return np.where(codes == _UNKNOWN, np.nan, low + codes * ((high - low) / (_UNKNOWN - 1)))


def _column(telemetry: MessageTelemetry, key: str) -> F64:
    found = telemetry.columns.get(key)
    return np.full(len(telemetry.times_s), np.nan) if found is None else found


def _means(values: F64, starts: npt.NDArray[np.intp]) -> F64:
    finite = np.isfinite(values)
    counts = np.add.reduceat(finite.astype(np.int64), starts)
    sums = np.add.reduceat(np.where(finite, values, 0.0), starts)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
