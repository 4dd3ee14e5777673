"""The options that every command which loads a model has, and the `LoadOptions` they make."""

from __future__ import annotations

import argparse
from typing import get_args

from engine.api.values import KvType, LoadOptions, NodeChoice, StreamExperts
from engine.cli.model import add_model_argument
from engine.errors import InvalidRequest
from engine.placement.threads import parse_threads

KV_TYPES: tuple[KvType, ...] = get_args(KvType)


def add_json_option(parser: argparse.ArgumentParser) -> None:
    """Adds the form of the output."""
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")


def add_load_options(parser: argparse.ArgumentParser) -> None:
    """Adds the model and how it is loaded."""
    add_model_argument(parser)
    parser.add_argument(
        "-t",
        "--threads",
        type=threads,
        default=(0, ()),
        metavar="N|LIST",
        help="threads, or the processors they run on: 0-7,16-23; 0: one per core (default)",
    )
    parser.add_argument(
        "-c",
        "--context",
        "--ctx",
        type=whole_number,
        default=0,
        metavar="N",
        help="tokens of context; 0: the model's, up to 8192",
    )
    parser.add_argument(
        "-b",
        "--batch",
        type=whole_number,
        default=None,
        metavar="N",
        help="tokens of a prompt computed at once (default 512; up to 2048 where experts are brought to a GPU for each chunk)",
    )
    parser.add_argument(
        "--placement",
        default="",
        metavar="P",
        help="what lies where: a placement file, rules of another tool, or flags in quotation marks, e.g. '-ngl 99 -ot exps=CPU'"
        "; context, threads, batch and keys that rules name count where no option here does",
    )
    parser.add_argument(
        "--stream-experts",
        choices=get_args(StreamExperts),
        default="auto",
        help="long chunks of prompts bring experts of the CPU to a GPU: where it is faster (auto, default), always or never",
    )
    parser.add_argument(
        "--node-memory",
        choices=get_args(NodeChoice),
        default="auto",
        help="several nodes of memory: weights are copied to theirs where there is room (auto, default), always, or stay mapped",
    )
    parser.add_argument("-ctk", choices=KV_TYPES, default=None, help="type of cached keys (default f16)")
    parser.add_argument("-ctv", choices=KV_TYPES, default=None, help="type of cached values (default f16)")
    parser.add_argument(
        "--snapshots",
        type=whole_number,
        default=0,
        metavar="MB",
        help="memory for states to go back to, in models that have states; 0: 5 %% of all, up to 4096 (default)",
    )
    parser.add_argument("--f32-activations", action="store_true", help="exact: f32 activations and, unless given, an f32 cache")
    parser.add_argument(
        "--engine", choices=("compiled", "reference"), default="compiled", help="reference: slow, readable, exact"
    )


def load_options(args: argparse.Namespace) -> LoadOptions:
    """The options that `add_load_options` has parsed."""
    default: KvType = "f32" if args.f32_activations else "f16"
    return LoadOptions(
        n_threads=args.threads[0],
        cores=args.threads[1],
        n_ctx=args.context,
        prefill_chunk=LoadOptions().prefill_chunk if args.batch is None else args.batch,
        grow_chunk=args.batch is None,
        k_type=args.ctk or default,
        v_type=args.ctv or default,
        f32_activations=args.f32_activations,
        reference=args.engine == "reference",
        snapshot_bytes=args.snapshots << 20,
        placement=args.placement,
        stream_experts=args.stream_experts,
        node_memory=args.node_memory,
        overrides=tuple(args.override),
    )


def threads(text: str) -> tuple[int, tuple[int, ...]]:
    """How many, and on which processors where they are listed, for argparse; see `parse_threads`."""
    if text.strip().isdecimal():
        return whole_number(text), ()  # too many is said where a team is planned
    try:
        return parse_threads(text)
    except InvalidRequest as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def whole_number(text: str) -> int:
    """A number from 0 to 2^31 - 1, for argparse."""
    try:
        value = int(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from error
    if not 0 <= value < 2**31:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 2147483647")
    return value
