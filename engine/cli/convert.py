"""`layerdeck convert`: a downloaded Hugging Face model to a GGUF file."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from engine.cli.output import note, write_json, write_text
from engine.errors import EngineError

_PERIOD_S = 0.5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the folder, the file and the format."""
    parser.add_argument("folder", type=Path, metavar="HF_DIR", help="a folder with config.json and *.safetensors")
    parser.add_argument("out", type=Path, metavar="OUT.gguf", help="the file to write")
    parser.add_argument(
        "--outtype",
        choices=("f16", "bf16", "q8_0", "q4_k_m"),
        default="f16",
        help="format of the large tensors; q4_k_m keeps attention and DeltaNet in Q6_K (default f16)",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")


def run(args: argparse.Namespace) -> int:
    """Converts, tells how far it is on standard error, and checks that the file can be read."""
    # Imported here: a wrong argument needs no numpy.
    from engine.cli.inspect import summarise
    from engine.convert.convert import convert
    from engine.gguf.reader import read_gguf
    from engine.tokenizer.rules import check_tokenizer

    progress = _Progress()
    started = time.monotonic()
    done = convert(args.folder, args.out, args.outtype, progress)
    progress.end()
    try:
        file = read_gguf(args.out)
        check_tokenizer(file)
        summary = summarise(file, done.notes)
    except EngineError:
        args.out.unlink()
        raise
    for warning in summary["warnings"]:
        note(warning)
    if args.json:
        shown = {"architecture": done.architecture, "tensors": done.n_tensors, "file_bytes": done.nbytes}
        write_json(shown | {"quants": summary["quants"], "warnings": summary["warnings"]})
    else:
        seconds = time.monotonic() - started
        write_text(f"{args.out}: {done.architecture}, {done.n_tensors} tensors, {done.nbytes / 1e9:.2f} GB in {seconds:.0f} s\n")
    return 0


class _Progress:
    """A line on standard error, renewed in place on a terminal."""

    def __init__(self) -> None:
        self._next = 0.0
        self._in_place = sys.stderr.isatty()
        self._shown = False

    def __call__(self, tensor: str, done: int, total: int) -> None:
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + _PERIOD_S
        line = f"{100 * done / max(total, 1):5.1f} %  {done / 1e9:.2f} of {total / 1e9:.2f} GB  {tensor}"
        sys.stderr.write(f"\r{line:78}" if self._in_place else line + "\n")
        sys.stderr.flush()
        self._shown = True

    def end(self) -> None:
        """Ends the line that is renewed."""
        if self._in_place and self._shown:
            sys.stderr.write("\n")
