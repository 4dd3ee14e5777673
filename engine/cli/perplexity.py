"""`layerdeck perplexity`: how surprised a model is by a text, in one window (or as many as the context forces)."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from engine.arch.registry import build_spec
from engine.cli.direct import Direct, opened
from engine.cli.options import add_json_option, add_load_options
from engine.cli.output import note, read_text_file, write_json, write_text
from engine.errors import InvalidRequest
from engine.gguf.overrides import override
from engine.gguf.reader import read_gguf
from engine.tokenizer.build import Tokenizer
from engine.tokenizer.vocab import Vocab


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `perplexity`."""
    add_load_options(parser)
    parser.add_argument("text", type=Path, metavar="TEXTFILE", help="a UTF-8 text")
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Prints exp of the mean negative log-likelihood of each token given those before it in its window; no BOS is added."""
    file, _ = override(read_gguf(args.model), args.override)
    context = args.context or build_spec(file).context_length
    ids = Tokenizer(Vocab.from_gguf(file)).encode(read_text_file(args.text), special=False, bos=False)
    if len(ids) < 2:
        raise InvalidRequest(f"{args.text}: the text has {len(ids)} tokens; at least 2 are needed")
    windows = [ids[start : start + context] for start in range(0, len(ids), context)]
    if len(windows) > 1:
        note(f"the text has {len(ids)} tokens, the context {context}; {len(windows)} windows are used")
    with opened(args, min(len(ids), context)) as direct:
        losses = np.concatenate([window_losses(direct, one, direct.model.chunk) for one in windows])
    nll = float(losses.mean())
    if args.json:
        write_json({"ppl": math.exp(nll), "nll": nll, "n_tokens": len(ids), "n_scored": len(losses), "n_windows": len(windows)})
    else:
        write_text(f"perplexity {math.exp(nll):.4f} (mean NLL {nll:.5f}, {len(ids)} tokens)\n")
    return 0


def window_losses(direct: Direct, ids: Sequence[int], chunk: int) -> npt.NDArray[np.float64]:
    """Negative log-likelihoods of ids[1:], [n - 1] f64."""
    following = np.asarray(ids[1:], np.int64)
    losses = np.zeros(len(following))
    for start, logits in direct.logits(ids, chunk):
        wanted = following[start : start + len(logits)]
        losses[start : start + len(wanted)] = negative_log_likelihood(logits[: len(wanted)], wanted)
    return losses


def negative_log_likelihood(logits: npt.NDArray[np.float32], wanted: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """-log softmax(logits)[row, wanted[row]]: logits [n, n_vocab], wanted [n]; [n] f64."""
    top = logits.max(axis=1)
    # Sums in f64: 49k terms in f32 would cost the fourth digit of the perplexity.
    total = np.exp(logits - top[:, None]).sum(axis=1, dtype=np.float64)
    chosen = logits[np.arange(len(wanted)), wanted]
    loss: npt.NDArray[np.float64] = np.log(total) + top.astype(np.float64) - chosen
    return loss
