"""Names of gauges: what a Timeline keeps and a recording has columns for. The last part of a name holds its unit.

Made by functions so that nobody writes them by hand; `split` takes them apart again.
"""

from __future__ import annotations

UNITS = {
    "_percent": "%",
    "_tok_s": "tok/s",
    "_bytes_per_s": "bytes/s",
    "_bytes_per_token": "bytes/token",
    "_bytes": "bytes",
    "_pages_per_s": "pages/s",
    "_faults_per_s": "faults/s",
    "_c": "°C",
    "_w": "W",
    "_mhz": "MHz",
    "_rpm": "rpm",
    "_ms": "ms",
    "_tokens": "tokens",
    "_s": "s",
}
"""By how a field ends; the first that fits, so longer ones come first."""


def decode() -> str:
    """Speed of decode steps, all answers together."""
    return "engine/decode_tok_s"


def prefill() -> str:
    """Speed of the last prompt that was computed."""
    return "engine/prefill_tok_s"


def first_token() -> str:
    """From the last question to its first token."""
    return "engine/first_token_s"


def engine(field: str) -> str:
    """A field of EngineSample: `step_ms`, `outside_ms`, `kv_used_tokens`, `n_answers`."""
    return f"engine/{field}"


def vram_used() -> str:
    """Memory that programs hold, all cards together."""
    return "total/vram_used_bytes"


def ram_used() -> str:
    """Of the machine."""
    return "total/ram_used_bytes"


def power() -> str:
    """Of all cards and processors that tell it."""
    return "total/power_w"


def gpu(key: str, field: str) -> str:
    """A field of the GpuSample with this key."""
    return f"gpu/{key}/{field}"


def node(number: int, field: str) -> str:
    """A field of a NodeSample, or `use_percent`, `temperature_c`, `frequency_mhz`: of its cores."""
    return f"node/{number}/{field}"


def device(name: str, field: str) -> str:
    """A field of a DeviceWork: `numa0`, `gpu0`."""
    return f"device/{name}/{field}"


def cpu(field: str) -> str:
    """A field of CpuSample; `use_percent` is the mean of all."""
    return f"cpu/{field}"


def memory(field: str) -> str:
    """A field of MemorySample."""
    return f"memory/{field}"


def pressure(field: str) -> str:
    """A field of PressureSample."""
    return f"pressure/{field}"


def disk(field: str) -> str:
    """A field of DiskSample."""
    return f"disk/{field}"


def split(key: str) -> tuple[str, str, str]:
    """(kind, which one, field): `("gpu", "GPU-5f…", "power_w")`; which one is "" where there is one alone."""
    kind, _, rest = key.partition("/")
    which, _, field = rest.rpartition("/")
    return kind, which, field


def unit(key: str) -> str:
    """`GB/s` and the like are for who shows it; this is the unit of the values. "" for a count."""
    return next((name for end, name in UNITS.items() if key.endswith(end)), "")
