"""`layerdeck logits` and `layerdeck generate`: what the model computes for given tokens, and what it answers."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np

from engine.api.commands import Generate
from engine.api.events import AnswerOpened, Finished, Notice, TokenDelta
from engine.api.values import ChatMessage, SamplingParams
from engine.cli.client import Client, new_id
from engine.cli.counts import write_counts
from engine.cli.direct import opened
from engine.cli.options import add_json_option, add_load_options, load_options, whole_number
from engine.cli.output import note, read_json_file, write_json, write_text
from engine.cli.text import add_var_option, read_ids, template_vars
from engine.errors import InvalidRequest

ROLES = get_args(get_type_hints(ChatMessage)["role"])


def add_logits_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `logits`."""
    add_load_options(parser)
    parser.add_argument("--ids-file", type=Path, metavar="F", required=True, help="a JSON list of token ids")
    parser.add_argument(
        "--out", type=Path, metavar="X.npy", required=True, help="where the logits go: float32 [n_tokens, n_vocab]"
    )
    add_json_option(parser)


def run_logits(args: argparse.Namespace) -> int:
    """Writes the logits of every position."""
    ids = _ids(args.ids_file)
    with opened(args, len(ids)) as direct:
        shape = (len(ids), direct.model.spec.n_vocab)
        logits = np.empty(shape, np.float32)
        for start, rows in direct.logits(ids, direct.model.chunk):
            logits[start : start + len(rows)] = rows
    with args.out.open("wb") as out:
        np.save(out, logits)
    if args.json:
        write_json({"out": str(args.out), "n_tokens": shape[0], "n_vocab": shape[1]})
    else:
        note(f"{args.out}: float32 {list(shape)}")
    return 0


def add_generate_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `generate`."""
    add_load_options(parser)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--prompt", metavar="T", help="text to continue; control tokens in it are parsed")
    source.add_argument("--messages", type=Path, metavar="F", help="a JSON list of messages to answer")
    source.add_argument("--ids-file", type=Path, metavar="F", help="a JSON list of token ids to continue")
    parser.add_argument("-n", type=whole_number, default=None, metavar="N", help="most tokens to generate")
    add_sampling_options(parser)
    add_var_option(parser)
    parser.add_argument("--ignore-eog", action="store_true", help="go on behind tokens that end the answer")
    parser.add_argument(
        "--counts", type=Path, metavar="F.json", help="write how often each expert was passed, for `fit --counts`"
    )
    add_json_option(parser)


def add_sampling_options(parser: argparse.ArgumentParser) -> None:
    """Adds how tokens are drawn."""
    default = SamplingParams()
    parser.add_argument("--temp", type=float, default=default.temperature, metavar="T", help="temperature; 0 is greedy")
    parser.add_argument("--top-k", type=int, default=default.top_k, metavar="K", help="draw from the K likeliest; 0: all")
    parser.add_argument("--top-p", type=float, default=default.top_p, metavar="P", help="draw from the likeliest that sum to P")
    parser.add_argument("--min-p", type=float, default=default.min_p, metavar="P", help="least probability, relative to the top")
    parser.add_argument("--seed", type=int, default=None, metavar="S", help="the same seed draws the same answer")
    parser.add_argument("--stop", action="append", default=[], metavar="TEXT", help="end the answer before this text")


def sampling_params(args: argparse.Namespace) -> SamplingParams:
    """The params that `add_sampling_options` and -n have parsed. Raises: InvalidRequest for values out of range."""
    return SamplingParams(
        temperature=args.temp,
        top_k=args.top_k,
        top_p=args.top_p,
        min_p=args.min_p,
        seed=args.seed,
        max_tokens=-1 if args.n is None else args.n,
        stop=tuple(args.stop),
    )


def run_generate(args: argparse.Namespace) -> int:
    """Streams the answer, or prints it with its figures as JSON."""
    command = Generate(
        request_id=new_id(),
        messages=None if args.messages is None else read_messages(args.messages),
        prompt=args.prompt,
        ids=None if args.ids_file is None else tuple(_ids(args.ids_file)),
        sampling=sampling_params(args),
        template_vars=template_vars(args),
        ignore_eog=args.ignore_eog,
    )
    pieces: list[str] = []
    with Client() as client:
        info = client.load(str(args.model), load_options(args))
        for warning in info.warnings:
            note(warning)
        for event in client.events(command):
            # A thought that the template has opened is shown as one.
            if isinstance(event, TokenDelta | AnswerOpened):
                pieces.append(event.text)
                if not args.json:
                    write_text(event.text)
            elif isinstance(event, Notice):
                note(event.message)
            elif isinstance(event, Finished):
                end = event
    if args.json:
        write_json(_result("".join(pieces), end))
    else:
        write_text("\n")
    if args.counts is not None:
        write_counts(args.counts, info, end.usage.experts)
    return 0


def read_messages(path: Path) -> tuple[ChatMessage, ...]:
    """The conversation in a JSON file, a list of {role, content}.

    Raises:
        InvalidRequest: anything else.
    """
    content = read_json_file(path)
    if not isinstance(content, list) or not content:
        raise InvalidRequest(f"{path}: the file is not a JSON list of messages; correct the file")
    for number, one in enumerate(content):
        if not isinstance(one, dict) or one.get("role") not in ROLES or not isinstance(one.get("content"), str):
            shown = json.dumps(one, ensure_ascii=False)[:60]
            raise InvalidRequest(f"{path}: message {number} is {shown}; it needs a role ({', '.join(ROLES)}) and a text content")
    return tuple(ChatMessage(one["role"], one["content"]) for one in content)


def _ids(path: Path) -> list[int]:
    lists, many = read_ids(path)
    if many:
        raise InvalidRequest(f"{path}: the file holds several lists of token ids; give one")
    return lists[0]


def _result(text: str, end: Finished) -> dict[str, Any]:
    usage = end.usage
    return {
        "ids": list(usage.token_ids),
        "text": text,
        "finish": end.reason,
        "n_prompt": usage.n_prompt,
        "n_reused": usage.n_reused,
        "ttft_s": usage.ttft_s,
        "prefill_tok_s": usage.prefill_tok_s,
        "decode_tok_s": usage.decode_tok_s,
    }
