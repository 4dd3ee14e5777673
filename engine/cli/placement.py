"""`layerdeck placement import` and `export`: the placement rules of other tools to files of ours, and back."""

from __future__ import annotations

import argparse
from pathlib import Path

from engine.arch.registry import build_spec
from engine.cli.output import note, write_json, write_text
from engine.errors import InvalidRequest
from engine.gguf.reader import read_gguf
from engine.graph.build import build_graph
from engine.hardware.gpus import GpuInfo, find_gpus
from engine.hardware.machine_file import read_machine
from engine.placement.export import Exported, to_flags
from engine.placement.file import Rules, has_units, places_in, rules_of, rules_to_json, to_json
from engine.placement.flags import LlamaFlags, n_gpus_meant, parse_flags, parse_words, to_text
from engine.placement.options import LoadOptions
from engine.placement.rules import Resolution, n_layers_of, resolve
from engine.placement.source import is_placement_file, read_source, resolve_source

TOOLS = ("llama.cpp",)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the two directions and what they take."""
    parser.add_argument("direction", choices=("import", "export"))
    parser.add_argument("source", help="flags of llama.cpp in quotation marks, a file of them, or a placement file")
    parser.add_argument("--model", type=Path, metavar="M", help="the model that the rules are for")
    parser.add_argument("--machine", type=Path, metavar="X.json", help="the machine that they are for, if not this one")
    parser.add_argument("--tensors", action="store_true", help="import: print what the tool itself would put where, as JSON")
    parser.add_argument("--to", choices=TOOLS, default="llama.cpp", help="export: whose flags (default llama.cpp)")
    parser.add_argument("--strict", action="store_true", help="fail where something cannot be expressed")
    parser.add_argument("-o", "--out", type=Path, metavar="P.json", help="where the result goes; else to standard output")


def run(args: argparse.Namespace) -> int:
    """Writes the placement or the flags; tells what cannot be expressed on standard error."""
    return _import(args) if args.direction == "import" else _export(args)


def _import(args: argparse.Namespace) -> int:
    text, where = read_source(args.source)
    flags = None if is_placement_file(text) else parse_flags(text)
    if flags is not None and flags.ignored:
        note(f"not about places, and left out: {to_text(flags.ignored)}")
    if args.model is None:
        return _import_rules(args, text, where, flags)
    found, result = _resolved(args, text, where, flags)
    for sentence in (*found.differences, *found.notes):
        note(sentence)
    if args.tensors:
        write_json(found.tensors)
    if args.out is not None or not args.tensors:
        _write(args.out, result)
    return int(args.strict and bool(found.differences))


def _resolved(args: argparse.Namespace, text: str, where: str, flags: LlamaFlags | None) -> tuple[Resolution, str]:
    """What it means for the model, and the text of its file."""
    file = read_gguf(args.model)
    spec = build_spec(file)
    graph, gpus = build_graph(spec), _gpus(args.machine, flags)
    if flags is None:
        found = resolve_source(text, spec, graph, file, gpus, LoadOptions())
        return found, to_json(found.placement, spec, rules_of(text, where))
    found = resolve(flags, spec, graph, file, gpus, LoadOptions())
    named = (flags.k_type, flags.v_type) != (None, None)
    return found, to_json(found.placement, spec, _rules(text, flags), types=named)


def _gpus(machine: Path | None, flags: LlamaFlags | None) -> tuple[GpuInfo, ...]:
    """Those of the machine; where this one has none, as many as the flags are about, so that they can be read anywhere."""
    if machine is not None:
        return read_machine(machine).gpus
    found = find_gpus()
    if found.found or flags is None or (n := n_gpus_meant(flags)) == 0:
        return found.found
    note(f"{found.problem}: {n} of 24 GiB {'is' if n == 1 else 'are'} assumed; describe another machine with --machine")
    return tuple(GpuInfo(i, "assumed", 24 << 30, 24 << 30) for i in range(n))


def _import_rules(args: argparse.Namespace, text: str, where: str, flags: LlamaFlags | None) -> int:
    if args.tensors:
        raise InvalidRequest("--tensors needs the model whose tensors are meant; give it with --model")
    rules = rules_of(text, where) if flags is None else _rules(text, flags)
    if rules is None:
        raise InvalidRequest(f"{where}: it holds places for one model; give that model with --model")
    unsupported = flags.unsupported if flags is not None else parse_words(rules.words).unsupported
    for sentence in unsupported:
        note(sentence)
    _write(args.out, rules_to_json(rules))
    return int(args.strict and bool(unsupported))


def _rules(text: str, flags: LlamaFlags) -> Rules:
    """The rules to keep: as typed, where nothing else was typed."""
    whole = not flags.ignored and text.strip().startswith("-")
    return Rules("llama.cpp", flags.words, text.strip() if whole else to_text(flags.words))


def _export(args: argparse.Namespace) -> int:
    text, where = read_source(args.source)
    rules = rules_of(text, where)
    if rules is not None and rules.tool == args.to:
        _write(args.out, f"{rules.text or to_text(rules.words)}\n")
        return 0
    if not has_units(text, where):
        raise InvalidRequest(f"{where}: it holds rules of {rules.tool if rules else 'no tool'}; give a file with units")
    done = _flags_of(args, text, where)
    for sentence in done.notes:
        note(sentence)
    _write(args.out, f"{to_text(done.words)}\n")
    return int(args.strict and bool(done.notes))


def _flags_of(args: argparse.Namespace, text: str, where: str) -> Exported:
    units, k_type, v_type = places_in(text, where)
    n_layers = sum(unit.kind == "mixer" for unit, _ in units)
    n_extra = 0 if args.model is None else max(0, n_layers_of(read_gguf(args.model)) - n_layers)
    return to_flags(units, k_type, v_type, n_extra)


def _write(out: Path | None, text: str) -> None:
    if out is None:
        write_text(text)
        return
    out.write_text(text, encoding="utf-8")
