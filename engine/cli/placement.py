"""`layerdeck placement import` and `export`: flags, rules and settings of other tools to files of ours, and back."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from engine.arch.registry import build_spec
from engine.cli.output import note, write_json, write_text
from engine.cli.shield import unshielded
from engine.errors import InvalidRequest
from engine.estimate.described import Described
from engine.gguf.reader import read_gguf
from engine.graph.build import build_graph
from engine.hardware.gpus import GpuInfo, find_gpus
from engine.hardware.machine import this_machine
from engine.hardware.machine_file import read_machine
from engine.placement.file import (
    Rules,
    architecture_in,
    has_units,
    n_spread_in,
    places_in,
    pools_in,
    rules_of,
    rules_to_json,
    to_json,
)
from engine.placement.flags import LlamaFlags, to_text
from engine.placement.interchange.equivalents import WRITERS, written_of
from engine.placement.interchange.parsed import TOOLS, Parsed, parse, without_secrets
from engine.placement.interchange.written import Text, Written
from engine.placement.options import LoadOptions
from engine.placement.placement import Placement, plan_workers
from engine.placement.resolution import Resolution
from engine.placement.source import is_placement_file, on_machine, parse_kept, read_source, resolve_source


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the two directions and what they take."""
    parser.add_argument("direction", choices=("import", "export"))
    parser.add_argument("source", help="flags or rules of another tool in quotation marks, a file of them, or a placement file")
    parser.add_argument("--model", type=Path, metavar="M", help="the model that the rules are for")
    parser.add_argument("--machine", type=Path, metavar="X.json", help="the machine that they are for, if not this one")
    parser.add_argument("--tensors", action="store_true", help="import: print what the tool itself would put where, as JSON")
    parser.add_argument(
        "--from", dest="tool", choices=TOOLS, help="import: whose rules they are; else that is told by their looks"
    )
    parser.add_argument("--to", choices=TOOLS, default="llama.cpp", help="export: whose rules are written (default llama.cpp)")
    parser.add_argument("--strict", action="store_true", help="fail where something cannot be expressed")
    parser.add_argument("-o", "--out", type=Path, metavar="P.json", help="where the result goes; else to standard output")


def run(args: argparse.Namespace) -> int:
    """Writes the placement or the flags; tells what cannot be expressed on standard error."""
    return _import(args) if args.direction == "import" else _export(args)


def _import(args: argparse.Namespace) -> int:
    text, where = read_source(unshielded(args.source))
    parsed = _parsed(args, text, where)
    if parsed is not None and parsed.ignored:
        note(f"not about places, and kept as they are: {without_secrets(to_text(parsed.ignored))}")
    if parsed is not None and (said := parsed.settings.words()):
        note(f"beside places it says what is {to_text(said)} here")
    if args.model is None:
        return _import_rules(args, text, where, parsed)
    found, result = _resolved(args, text, where, parsed)
    for sentence in (*found.differences, *found.notes, *(() if parsed is None else parsed.remarks)):
        note(sentence)
    if args.tensors:
        write_json(found.tensors)
    if args.out is not None or not args.tensors:
        _write(args.out, result)
    return int(args.strict and bool(found.differences))


def _parsed(args: argparse.Namespace, text: str, where: str) -> Parsed | None:
    """The rules of another tool in a text; None where it is a placement of ours."""
    return None if is_placement_file(text) and args.tool is None else parse(text, where, args.tool)


def _resolved(args: argparse.Namespace, text: str, where: str, parsed: Parsed | None) -> tuple[Resolution, str]:
    """What it means for the model, and the text of its file."""
    file = read_gguf(args.model)
    spec = build_spec(file)
    graph, gpus = build_graph(spec), _gpus(args.machine, parsed)
    machine = this_machine() if args.machine is None else read_machine(args.machine)
    if parsed is None:
        found = resolve_source(text, spec, graph, file, gpus, LoadOptions(), machine.node_numbers)
        return found, to_json(found.placement, spec, rules_of(text, where))
    found = on_machine(parsed.resolve(spec, graph, file, gpus, LoadOptions()), machine)
    named = _cache_types(parsed) != (None, None)
    return found, to_json(found.placement, spec, _rules(parsed), types=named)


def _cache_types(parsed: Parsed) -> tuple[str | None, str | None]:
    """The types of cache that the rules name."""
    if isinstance(parsed.rules, LlamaFlags):
        return parsed.rules.k_type, parsed.rules.v_type
    return parsed.settings.k_type, parsed.settings.v_type


def _gpus(machine: Path | None, parsed: Parsed | None) -> tuple[GpuInfo, ...]:
    """Those of the machine; where this one has none, as many as the rules are about, so that they can be read anywhere."""
    if machine is not None:
        return read_machine(machine).gpus
    found = find_gpus()
    if found.found or parsed is None or (n := parsed.n_gpus) == 0:
        return found.found
    note(f"{found.problem}: {n} of 24 GiB {'is' if n == 1 else 'are'} assumed; describe another machine with --machine")
    return tuple(GpuInfo(i, "assumed", 24 << 30, 24 << 30) for i in range(n))


def _import_rules(args: argparse.Namespace, text: str, where: str, parsed: Parsed | None) -> int:
    if args.tensors:
        raise InvalidRequest("--tensors needs the model whose tensors are meant; give it with --model")
    rules = rules_of(text, where) if parsed is None else _rules(parsed)
    if rules is None:
        raise InvalidRequest(f"{where}: it holds places for one model; give that model with --model")
    kept = parsed or parse_kept(rules, where)
    for sentence in (*kept.unsupported, *kept.remarks):
        note(sentence)
    _write(args.out, rules_to_json(rules))
    return int(args.strict and bool(kept.unsupported))


def _rules(parsed: Parsed) -> Rules:
    """The rules to keep, as they were given."""
    words = parsed.rules.words if isinstance(parsed.rules, LlamaFlags) else ()
    return Rules(parsed.tool, words, parsed.text)


def _export(args: argparse.Namespace) -> int:
    text, where = read_source(unshielded(args.source))
    rules = rules_of(text, where)
    if rules is not None and rules.tool == args.to:
        kept = rules.text or to_text(rules.words)
        _write(args.out, kept if kept.endswith("\n") else f"{kept}\n")
        return 0
    if not has_units(text, where):
        raise InvalidRequest(f"{where}: it holds rules of {rules.tool if rules else 'no tool'}; give a file with units")
    done = _text_of(args, text, where)
    for sentence in done.notes:
        note(sentence)
    _write(args.out, done.text)
    return int(args.strict and bool(done.notes))


def _text_of(args: argparse.Namespace, text: str, where: str) -> Text:
    """The placement of a file for the tool that is asked for."""
    if args.model is not None:
        file = read_gguf(args.model)
        spec = build_spec(file)
        model = Described(file, spec, build_graph(spec))
        units, k_type, v_type = places_in(text, where)
        placement = Placement(units, k_type, v_type, plan_workers(0), pools_in(text, where))
        written = written_of(placement, model, None)
    else:
        units, k_type, v_type = places_in(text, where)
        written = Written(units, k_type, v_type, pools_in(text, where), architecture_in(text, where))
    return WRITERS[args.to](replace(written, n_spread=n_spread_in(text, where)))


def _write(out: Path | None, text: str) -> None:
    if out is None:
        write_text(text)
        return
    out.write_text(text, encoding="utf-8")
