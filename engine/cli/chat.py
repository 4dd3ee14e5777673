"""`layerdeck chat`: a conversation in the terminal. Interrupt stops an answer; an empty line ends the chat."""

from __future__ import annotations

import argparse
import sys

from engine.api.commands import Generate
from engine.api.events import AnswerOpened, Finished, Notice, TokenDelta
from engine.api.values import ChatMessage
from engine.cli.client import Client, new_id
from engine.cli.options import add_load_options, load_options, whole_number
from engine.cli.output import note, write_text
from engine.cli.run import add_sampling_options, sampling_params
from engine.cli.text import add_var_option, template_vars
from engine.errors import EngineError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `chat`."""
    add_load_options(parser)
    parser.add_argument("-n", type=whole_number, default=None, metavar="N", help="most tokens in an answer")
    parser.add_argument("--system", metavar="TEXT", help="system prompt")
    add_sampling_options(parser)
    add_var_option(parser)


def run(args: argparse.Namespace) -> int:
    """Reads messages from standard input and streams the answers."""
    sampling, variables = sampling_params(args), template_vars(args)
    messages = [] if args.system is None else [ChatMessage("system", args.system)]
    with Client() as client:
        info = client.load(str(args.model), load_options(args))
        for warning in info.warnings:
            note(warning)
        note(f"{info.name}, {info.quant}, context {info.n_ctx} tokens; an empty line ends the chat")
        while (text := _read_line()) is not None:
            asked = [*messages, ChatMessage("user", text)]
            command = Generate(new_id(), messages=tuple(asked), sampling=sampling, template_vars=variables)
            try:
                answer = _stream(client, command)
            except EngineError as error:
                note(str(error))
                continue
            messages = [*asked, ChatMessage("assistant", answer)]
    return 0


def _read_line() -> str | None:
    if sys.stdin.isatty():
        write_text("> ")
    text = sys.stdin.readline().strip()
    return text or None


def _stream(client: Client, command: Generate) -> str:
    """The answer, written while it comes; an interrupt ends it and keeps what was said."""
    pieces: list[str] = []
    client.submit(command)
    while True:
        try:
            event = client.read(command.request_id)
        except KeyboardInterrupt:
            client.cancel(command.request_id)
            continue
        if isinstance(event, Finished):
            break
        if isinstance(event, TokenDelta | AnswerOpened):
            pieces.append(event.text)
            write_text(event.text)
        elif isinstance(event, Notice):
            note(event.message)
    write_text("\n")
    return "".join(pieces)
