"""`layerdeck inspect`: what a model file holds, from its header alone."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from engine.arch.spec import Mla, ModelSpec
from engine.cli.model import add_model_argument
from engine.cli.output import note, write_json, write_text
from engine.errors import GgufError, UnsupportedModel
from engine.gguf import keys
from engine.gguf.advice import warnings_of
from engine.gguf.groups import format_totals, group_totals, layer_counts
from engine.gguf.info import GgufFile, unit_of
from engine.gguf.overrides import override
from engine.gguf.reader import read_gguf
from engine.hardware.user_data import user_data_dir
from engine.tokenizer.rules import check_tokenizer
from engine.tokenizer.template_rules import check_template

_PATHS = {"fast": "fast", "exact": "exact, several times slower", "none": "none: cannot be multiplied"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the model and the form of the output."""
    add_model_argument(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")


def run(args: argparse.Namespace) -> int:
    """Reads and checks the header, then prints it; models that this version cannot run, too."""
    file, contradictions = override(read_gguf(args.model), args.override)
    check_tokenizer(file)
    check_template(file)
    summary = summarise(file, contradictions)
    if args.json:
        write_json(summary)
    else:
        write_text(_table(summary, file))
        for warning in summary["warnings"]:
            note(warning)
    return 0


def summarise(file: GgufFile, extra: Sequence[str] = ()) -> dict[str, Any]:
    """The JSON object of `inspect`: bytes are those in the file, shapes have ne0 first. extra: further warnings.

    Raises: GgufError when the file breaks a rule of its family.
    """
    architecture = file.architecture
    formats = format_totals(file)
    spec, reasons = _described(file)
    tensors = [
        {
            "name": info.name,
            "type": info.type_name,
            "shape": list(info.shape),
            "bytes": info.nbytes,
            "unit": unit_of(info.name, architecture),
        }
        for info in file.tensors.values()
    ]
    return {
        "architecture": architecture,
        "name": file.name,
        "n_layers": layer_counts(file)[0],
        "n_params": sum(info.n_elements for info in file.tensors.values()),
        "file_bytes": file.file_bytes,
        "context_length": file.metadata.get(keys.of(architecture, keys.CONTEXT_LENGTH)),
        "quants": {total.name: total.nbytes for total in formats},
        "tensors": tensors,
        "derived": [] if spec is None else _derived(file, spec),
        "warnings": [*reasons, *extra, *warnings_of(file)],
        "groups": [
            {"name": one.name, "tensors": one.n_tensors, "params": one.n_params, "bytes": one.nbytes, "quants": dict(one.types)}
            for one in group_totals(file)
        ],
        "formats": [
            {
                "name": total.name,
                "tensors": total.n_tensors,
                "bytes": total.nbytes,
                "bits_per_weight": round(total.bits_per_weight, 4),
                "path": total.path,
            }
            for total in formats
        ],
        "tuned": None if spec is None else _tuned(file, spec),
    }


def _described(file: GgufFile) -> tuple[ModelSpec | None, list[str]]:
    """The model, or why this version cannot run it, though its file can be understood.

    Raises: GgufError for a file with layers that break a rule of their family.
    """
    if not file.tensors:
        return None, []
    # Imported here: a vocabulary needs no family.
    from engine.arch.registry import build_spec

    try:
        return build_spec(file), _unread(file)
    except UnsupportedModel as error:
        return None, [f"this version cannot run the model: {error}"]
    except GgufError as error:
        if any(name.startswith("blk.") for name in file.tensors):
            raise
        return None, [f"this is no whole model: {error}"]


def _unread(file: GgufFile) -> list[str]:
    """Why this version cannot read the model's tokenizer."""
    # Imported here, like the families.
    from engine.tokenizer.vocab import tokenizer_kind

    try:
        tokenizer_kind(file)
    except UnsupportedModel as error:
        return [f"this version cannot run the model: {error}"]
    return []


def _derived(file: GgufFile, spec: ModelSpec) -> list[dict[str, Any]]:
    """What loading the model makes beside the tensors of the file."""
    if not any(isinstance(block.mixer, Mla) for block in spec.blocks):
        return []
    # Imported here: a file without such weights is understood without numpy and kernels.
    from engine.estimate.derived import derived_infos

    types = {name: info.type_id for name, info in file.tensors.items()}
    return [
        {
            "tensor": one.tensor,
            "transform": "transposed for each head",
            "type": one.type_name,
            "shape": list(one.shape),
            "bytes": one.nbytes,
        }
        for one in derived_infos(spec, types)
    ]


def _tuned(file: GgufFile, spec: ModelSpec) -> dict[str, Any] | None:
    """What `layerdeck tune` found for the model on this machine."""
    if not any(user_data_dir().glob("tuned-*.json")):
        return None
    # Imported here: only whoever has tuned anything waits for the machine to be looked at.
    from engine.estimate.tuned import load_tuned, tuned_key
    from engine.hardware.machine import this_machine

    machine = this_machine()
    for gpus in (bool(machine.gpus), False):
        found = load_tuned(user_data_dir(), machine, tuned_key(spec, file.file_bytes, gpus=gpus))
        if found is not None:
            return asdict(found)
    return None


def _tuned_words(tuned: dict[str, Any]) -> str:
    chunk = tuned["prefill_chunk"]
    prompts = "" if chunk is None else f", prompts {chunk} tokens at once"
    return f"{tuned['n_threads']} thread{'' if tuned['n_threads'] == 1 else 's'}, {tuned['decode_tok_s']:.1f} tok/s{prompts}"


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
    if summary["tuned"]:
        rows.append(("tuned here", _tuned_words(summary["tuned"])))
    if summary["derived"]:
        made = sum(one["bytes"] for one in summary["derived"])
        rows.append(("made at load", f"{_amount(made)}B of transposed weights in {len(summary['derived'])} tensors"))
    lines = [f"{label:18}{value}" for label, value in rows]
    if summary["groups"]:
        lines += ["", f"{'part':18}{'size':>10}{'weights':>10}  formats"]
        lines += [_group_line(group) for group in summary["groups"]]
        lines += ["", f"{'format':18}{'size':>10}{'tensors':>10}  {'bits/weight':<13}kernels"]
        lines += [_format_line(one) for one in summary["formats"]]
    return "\n".join(lines) + "\n"


def _group_line(group: dict[str, Any]) -> str:
    quants = ", ".join(f"{name} {_amount(n)}B" for name, n in group["quants"].items())
    return f"{group['name']:18}{_amount(group['bytes']) + 'B':>10}{_amount(group['params']):>10}  {quants}"


def _format_line(one: dict[str, Any]) -> str:
    size = _amount(one["bytes"]) + "B"
    return f"{one['name']:18}{size:>10}{one['tensors']:>10}  {one['bits_per_weight']:<13g}{_PATHS[one['path']]}"


def _amount(n: float) -> str:
    for unit in ("", "K", "M", "G", "T"):
        if n < 1000:
            return f"{n:.0f} {unit}".strip() if unit == "" else f"{n:.1f} {unit}"
        n /= 1000
    return f"{n:.1f} P"
