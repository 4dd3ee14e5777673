"""What the tuner found to be fastest, kept by machine and model in one file a machine.

    {"layerdeck": "tuned", "version": 1, "machine": "<fingerprint>", "isa": "avx512vnni", "models": {"<key>": {...}}}

A file of another machine, of other kernels or that cannot be read is as good as none.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from engine.arch.spec import ModelSpec
from engine.hardware.machine import Machine, machine_fingerprint
from engine.placement.file import fingerprint
from engine.placement.options import LoadOptions
from engine.placement.threads import MAX_THREADS
from kernels_pyx.cpu_features import active_isa

MARK, VERSION = "tuned", 1
LEAST_CHUNK, MOST_CHUNK = 8, 8192


@dataclass(frozen=True, slots=True)
class Tuned:
    """n_threads: workers with which decoding was fastest; prefill_chunk: tokens of a prompt at once, None: not tried.

    decode_tok_s, prefill_tok_s: what was measured with them.
    """

    n_threads: int
    prefill_chunk: int | None
    decode_tok_s: float
    prefill_tok_s: float | None = None


def tuned_key(spec: ModelSpec, file_bytes: int, *, gpus: bool) -> str:
    """Tells apart what was tuned on one machine: the model, its formats by their size, and whether GPUs work beside the CPU."""
    return f"{fingerprint(spec)}-{file_bytes}{'-gpus' if gpus else ''}"


def tuned_path(folder: Path, machine: Machine) -> Path:
    """The file of a machine in a folder."""
    return folder / f"tuned-{machine_fingerprint(machine)}.json"


def load_tuned(folder: Path, machine: Machine, key: str) -> Tuned | None:
    """What was found for a model, None where nothing was or it does not count any more."""
    return _read(folder, machine).get(key)


def save_tuned(tuned: Tuned, folder: Path, machine: Machine, key: str) -> Path:
    """Keeps it beside that of other models. Raises OSError where it cannot be written."""
    return _write(_read(folder, machine) | {key: tuned}, folder, machine)


def forget_tuned(folder: Path, machine: Machine, key: str) -> bool:
    """Forgets what was found for a model; whether there was anything. Raises OSError where that cannot be written."""
    found = _read(folder, machine)
    if key not in found:
        return False
    _write({one: value for one, value in found.items() if one != key}, folder, machine)
    return True


def with_tuned(options: LoadOptions, tuned: Tuned | None) -> LoadOptions:
    """The options with what was found in place of what was left to the machine; what somebody asked for stays."""
    if tuned is None:
        return options
    if not options.n_threads and not options.cores:
        options = replace(options, n_threads=tuned.n_threads)
    if tuned.prefill_chunk is not None and options.grow_chunk and options.prefill_chunk == LoadOptions().prefill_chunk:
        options = replace(options, prefill_chunk=tuned.prefill_chunk, grow_chunk=tuned.prefill_chunk >= options.prefill_chunk)
    return options


def _read(folder: Path, machine: Machine) -> dict[str, Tuned]:
    try:
        value = json.loads(tuned_path(folder, machine).read_text())
    except (OSError, ValueError, RecursionError):
        return {}
    head = {"layerdeck": MARK, "version": VERSION, "machine": machine_fingerprint(machine), "isa": active_isa()}
    if not isinstance(value, dict) or any(value.get(name) != wanted for name, wanted in head.items()):
        return {}
    models = value.get("models")
    found = {key: _tuned(one) for key, one in models.items()} if isinstance(models, dict) else {}
    return {key: one for key, one in found.items() if one is not None}


def _tuned(value: Mapping[str, Any]) -> Tuned | None:
    try:
        chunk, prefill = value["prefill_chunk"], value["prefill_tok_s"]
        found = Tuned(
            int(value["n_threads"]),
            None if chunk is None else int(chunk),
            float(value["decode_tok_s"]),
            None if prefill is None else float(prefill),
        )
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    in_range = 1 <= found.n_threads <= MAX_THREADS
    return found if in_range and (found.prefill_chunk is None or LEAST_CHUNK <= found.prefill_chunk <= MOST_CHUNK) else None


def _write(models: Mapping[str, Tuned], folder: Path, machine: Machine) -> Path:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = tuned_path(folder, machine)
    part = path.with_suffix(f".{os.getpid()}.part")
    head = {"layerdeck": MARK, "version": VERSION, "machine": machine_fingerprint(machine), "isa": active_isa()}
    part.write_text(json.dumps(head | {"models": {key: asdict(one) for key, one in models.items()}}, indent=1) + "\n")
    part.replace(path)
    return path
