"""The door of all commands that need no window: imports the module of the command, and only that one, runs it, and turns known
errors into one line and an exit code (0 done, 1 known error, 2 usage, 130 interrupted)."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Sequence

import engine
from engine.cli.output import note
from engine.cli.shield import shielded
from engine.errors import EngineError

COMMANDS = {
    "inspect": "engine.cli.inspect",
    "convert": "engine.cli.convert",
    "tokenize": "engine.cli.text",
    "detokenize": "engine.cli.text",
    "render": "engine.cli.text",
    "logits": "engine.cli.run",
    "generate": "engine.cli.run",
    "chat": "engine.cli.chat",
    "perplexity": "engine.cli.perplexity",
    "bench": "engine.cli.bench",
    "tune": "engine.cli.tune",
    "selftest": "engine.cli.selftest",
    "estimate": "engine.cli.estimate",
    "fit": "engine.cli.estimate",
    "placement": "engine.cli.placement",
    "topology": "engine.cli.topology",
    "sensors": "engine.cli.sensors",
    "doctor": "engine.cli.doctor",
}
"""Command -> its module, imported only when the command runs. A module of one command has `add_arguments(parser)` and
`run(args) -> exit code`; a module of several has `add_<command>_arguments` and `run_<command>` for each."""


def is_command(word: str) -> bool:
    """Whether a first argument belongs here and not to the window."""
    return word in COMMANDS or word in ("--version", "--help", "-h")


def main(argv: Sequence[str]) -> int:
    """Runs one command line (without the program's name) and gives its exit code."""
    if not argv or argv[0] in ("--help", "-h"):
        sys.stdout.write(_usage())
        return 0 if argv else 2
    if argv[0] == "--version":
        stamp = engine.build()
        sys.stdout.write(f"layerdeck {engine.VERSION}{f' (build {stamp})' if stamp else ''}\n")
        return 0
    name = argv[0]
    if name not in COMMANDS:
        note(f"there is no command {name!r}; the commands are {', '.join(COMMANDS)}")
        return 2
    return _run(name, argv[1:])


def _usage() -> str:
    return f"usage: layerdeck [MODEL] | layerdeck COMMAND ... | layerdeck --version\ncommands: {', '.join(COMMANDS)}\n"


def _load(name: str) -> tuple[Callable[[argparse.ArgumentParser], None], Callable[[argparse.Namespace], int]]:
    module = importlib.import_module(COMMANDS[name])
    if list(COMMANDS.values()).count(COMMANDS[name]) == 1:
        return module.add_arguments, module.run
    return getattr(module, f"add_{name}_arguments"), getattr(module, f"run_{name}")


def _run(name: str, argv: Sequence[str]) -> int:
    add_arguments, run = _load(name)
    parser = argparse.ArgumentParser(prog=f"layerdeck {name}")
    add_arguments(parser)
    try:
        args = parser.parse_args(shielded(name, argv))
    except SystemExit as stop:
        return int(stop.code or 0)
    try:
        if getattr(args, "placement", ""):
            from engine.cli.rules import take_settings

            take_settings(args)
        code = run(args)
        sys.stdout.flush()
        return code
    except EngineError as error:
        note(str(error))
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader went away; without this the interpreter would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
    except OSError as error:
        note(f"{error.filename or 'standard output'}: {error.strerror}; check the path, its permissions and the free space")
        return 1
