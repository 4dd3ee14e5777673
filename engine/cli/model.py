"""The model that a command reads: the argument, and what is used in place of its metadata. Imports little: `inspect` needs no
more."""

from __future__ import annotations

import argparse
from pathlib import Path

from engine.cli.output import note
from engine.errors import InvalidRequest
from engine.gguf.info import GgufFile
from engine.gguf.overrides import Override, override, parse_override
from engine.gguf.reader import read_gguf


def add_model_argument(parser: argparse.ArgumentParser) -> None:
    """Adds the model file, and what is used in place of its metadata."""
    parser.add_argument("model", type=Path, help="a GGUF file; any shard of a split model, or its folder")
    add_override_option(parser)


def add_override_option(parser: argparse.ArgumentParser) -> None:
    """Adds what is used in place of a model's metadata."""
    parser.add_argument(
        "--override",
        type=_override,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="use a value in place of the file's, e.g. rope_freq_base=1000000; warns where the file says otherwise",
    )


def read_model(args: argparse.Namespace) -> GgufFile:
    """The header of the model that the arguments name, with their overrides; contradictions are told.

    Raises: GgufError, UnsupportedModel, InvalidRequest.
    """
    file, warnings = override(read_gguf(args.model), args.override)
    for warning in warnings:
        note(warning)
    return file


def _override(text: str) -> Override:
    try:
        return parse_override(text)
    except InvalidRequest as error:
        raise argparse.ArgumentTypeError(str(error)) from error
