"""`layerdeck inspect`: what a model file holds, from its header alone."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from engine.cli.output import note, write_json, write_text
from engine.gguf import keys
from engine.gguf.info import PICTURE_TENSORS, GgufFile, unit_of
from engine.gguf.reader import read_gguf
from engine.gguf.types import EXACT_TYPES
from engine.tokenizer.rules import check_tokenizer
from engine.tokenizer.template_rules import check_template, template_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the model and the form of the output."""
    parser.add_argument("model", type=Path, help="a GGUF file; any shard of a split model")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")


def run(args: argparse.Namespace) -> int:
    """Reads and checks the header, then prints it."""
    file = read_gguf(args.model)
    check_tokenizer(file)
    check_template(file)
    summary = summarise(file)
    if args.json:
        write_json(summary)
    else:
        write_text(_table(summary, file))
        for warning in summary["warnings"]:
            note(warning)
    return 0


def summarise(file: GgufFile) -> dict[str, Any]:
    """The JSON object of `inspect`: bytes are those in the file, shapes have ne0 first."""
    architecture = file.architecture
    quants: dict[str, int] = {}
    tensors = []
    for info in file.tensors.values():
        quants[info.type_name] = quants.get(info.type_name, 0) + info.nbytes
        tensors.append(
            {
                "name": info.name,
                "type": info.type_name,
                "shape": list(info.shape),
                "bytes": info.nbytes,
                "unit": unit_of(info.name, architecture),
            }
        )
    blocks = file.metadata.get(keys.of(architecture, keys.BLOCK_COUNT), 0)
    extra = file.metadata.get(keys.of(architecture, keys.NEXTN_LAYERS), 0)
    assert isinstance(blocks, int) and isinstance(extra, int)  # checked by the reader
    return {
        "architecture": architecture,
        "name": file.metadata.get(keys.NAME) or file.path.stem,
        "n_layers": blocks - extra,
        "n_params": sum(info.n_elements for info in file.tensors.values()),
        "file_bytes": file.file_bytes,
        "context_length": file.metadata.get(keys.of(architecture, keys.CONTEXT_LENGTH)),
        "quants": dict(sorted(quants.items(), key=lambda item: -item[1])),
        "tensors": tensors,
        "derived": [],
        "warnings": _warnings(file, blocks, extra),
    }


def _warnings(file: GgufFile, blocks: int, extra: int) -> list[str]:
    warnings = []
    if not file.tensors:
        warnings.append("the file holds no tensors: it is a vocabulary, not a model")
    if blocks == 0:
        warnings.append("the file does not say how many layers the model has")
    if extra:
        warnings.append(f"{extra} extra layers for predicting several tokens are not used")
    n_vision = sum(name.startswith(PICTURE_TENSORS) for name in file.tensors)
    if n_vision:
        warnings.append(f"{n_vision} tensors that read pictures are not used")
    if template_of(file) is None:
        warnings.append("the file has no chat template: plain ChatML is used")
    slow = sorted(EXACT_TYPES & {info.type_name for info in file.tensors.values()})
    if slow:
        warnings.append(f"exact but slow formats, multiplied as f32: {', '.join(slow)}")
    return warnings


def _table(summary: dict[str, Any], file: GgufFile) -> str:
    size = summary["file_bytes"]
    shards = f" in {len(file.shards)} files" if len(file.shards) > 1 else ""
    quants = ", ".join(f"{name} {_amount(n)}B" for name, n in summary["quants"].items()) or "none"
    context = summary["context_length"]
    rows = [
        ("name", summary["name"]),
        ("architecture", summary["architecture"]),
        ("parameters", _amount(summary["n_params"])),
        ("layers", summary["n_layers"]),
        ("context", f"{context:,} tokens" if context else "not given"),
        ("size", f"{_amount(size)}B{shards}"),
        ("tensors", f"{len(summary['tensors'])}: {quants}"),
    ]
    return "".join(f"{label:14}{value}\n" for label, value in rows)


def _amount(n: float) -> str:
    for unit in ("", "K", "M", "G", "T"):
        if n < 1000:
            return f"{n:.0f} {unit}".strip() if unit == "" else f"{n:.1f} {unit}"
        n /= 1000
    return f"{n:.1f} P"
