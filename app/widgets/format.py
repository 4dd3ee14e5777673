"""Numbers as people read them: bytes in GB and MB (10^9, 10^6), counts with separators, short token counts, durations."""

from __future__ import annotations


def bytes_text(n: int) -> str:
    """98 MB, 1.4 GB, 405 GB: decimal units, at most three digits."""
    value, unit = float(n), "B"
    for name in ("kB", "MB", "GB", "TB"):
        if value < 999.5:
            break
        value, unit = value / 1000, name
    digits = 0 if unit == "B" or value >= 9.95 else 1
    return f"{value:.{digits}f} {unit}"


def count_text(n: int) -> str:
    """65,536."""
    return f"{n:,}"


def short_count(n: int) -> str:
    """512, 8.2k, 64k: token counts; sizes of contexts (multiples of 1,024) are counted in 1,024."""
    if n < 1000:
        return str(n)
    if n % 1024 == 0:
        return f"{n // 1024}k"
    return f"{n / 1000:.1f}k".replace(".0k", "k") if n < 99_950 else f"{n / 1000:.0f}k"


def used_of_bytes(used: int, total: int) -> str:
    """184 / 256 GB, or 800 MB / 16 GB."""
    left, right = bytes_text(used), bytes_text(total)
    unit = right.rsplit(" ", 1)[1]
    return f"{left.removesuffix(' ' + unit)} / {right}"


def rate_text(tok_s: float) -> str:
    """12.1 or 240: a rate with three significant digits."""
    return f"{tok_s:.1f}" if tok_s < 100 else f"{tok_s:.0f}"


def seconds_text(seconds: float) -> str:
    """0.3 s, 6.2 s, 12 s, 2 min 5 s."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{int(seconds) // 60} min {int(seconds) % 60} s"


def exact_bytes(n: int) -> str:
    """22.7 GB, 178 GB, 24 GB: three significant digits, whole numbers as such."""
    value, unit = _unit_of(n)
    return f"{_digits(value).removesuffix('.0')} {unit}"


def bytes_in_unit_of(n: int, other: int) -> str:
    """22.7, 21.0 or 178: n in the unit in which `exact_bytes` gives the other amount, without its name."""
    _, unit = _unit_of(other)
    return _digits(n / 1000 ** _UNITS.index(unit)) if n else "0"


_UNITS = ("B", "kB", "MB", "GB", "TB")


def _unit_of(n: int) -> tuple[float, str]:
    value = float(n)
    for unit in _UNITS[:-1]:
        if abs(value) < 999.5:
            return value, unit
        value /= 1000
    return value, _UNITS[-1]


def _digits(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 99.95 else f"{value:.1f}"
