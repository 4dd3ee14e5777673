"""The included model: first logits, greedy answers and perplexity beside those of two other engines."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from engine.api.commands import Generate
from engine.api.events import Finished, PrefillProgress
from engine.api.values import LoadOptions
from engine.arch.registry import build_spec
from engine.cli.main import main
from engine.gguf.reader import read_gguf
from engine.graph.build import build_graph
from engine.runtime.loader import LoadedModel, load
from engine.tokenizer.build import Tokenizer
from engine.tokenizer.vocab import Vocab
from kernels_pyx.executor import AbortFlag
from tests.helpers.golden_models import batch, greedy, same_until_close_call
from tests.helpers.models import GOLDEN, need_included_model
from tests.helpers.recorder import Recorder, new_id

EXACT = LoadOptions(k_type="f32", v_type="f32", f32_activations=True)
RECORDED: dict[str, Any] = json.loads((GOLDEN / "smollm2/smollm2.json").read_text(encoding="utf-8"))
CASES = RECORDED["cases"]


@contextmanager
def loaded(options: LoadOptions) -> Iterator[LoadedModel]:
    file = read_gguf(need_included_model())
    spec = build_spec(file)
    model = load(file, spec, build_graph(spec), options, lambda phase, done, total: None, AbortFlag())
    try:
        yield model
    finally:
        model.close()


@pytest.mark.parametrize("options", [EXACT, LoadOptions(reference=True)], ids=["compiled", "reference"])
def test_first_logits_equal_the_recorded_ones(options: LoadOptions) -> None:
    recorded = np.load(GOLDEN / "smollm2/smollm2_first_logits.npz")
    with loaded(options) as model:
        for case in ("p0", "p1", "p2"):
            logits = model.step(batch(recorded[f"{case}_ids"].tolist(), n_out=1))
            assert np.abs(logits[0] - recorded[f"{case}_first_generated_logits_dequant_f32"]).max() < 2e-3


def test_exact_greedy_answers_equal_the_recorded_ones_up_to_close_calls() -> None:
    compared = 0
    with loaded(EXACT) as model:
        for case in CASES:
            ours = greedy(model, case["ids"], 48)
            compared += same_until_close_call(ours, case["greedy_dequant_f32"], case["margin_dequant_f32"], least=1e-3)
    assert compared > 20


def test_greedy_answers_of_the_default_kernels_equal_the_recorded_ones_up_to_close_calls() -> None:
    compared = 0
    with loaded(LoadOptions()) as model:
        for case in CASES:
            ours = greedy(model, case["ids"], 48)
            compared += same_until_close_call(ours, case["greedy_dequant_f32"], case["margin_dequant_f32"])
            compared += same_until_close_call(ours, case["greedy_llamacpp_q4_1"], case["margin_llamacpp"])
    assert compared > 20


def test_the_tokenizer_gives_the_recorded_prompts() -> None:
    tokenizer = Tokenizer(Vocab.from_gguf(read_gguf(need_included_model())))
    for case in CASES:
        assert tokenizer.encode(case["prompt"], special=True, bos=False) == case["ids"]


@pytest.mark.parametrize("kv_type", ["f16", "q8_0", "int8"])
def test_perplexity_of_the_recorded_text(capsys: pytest.CaptureFixture[str], kv_type: str) -> None:
    arguments = ["perplexity", str(need_included_model()), str(GOLDEN / "smollm2/ppl_text.txt"), "--json"]
    assert main([*arguments, "-ctk", kv_type, "-ctv", kv_type]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["n_tokens"] == len(RECORDED["ppl"]["ids"])
    assert 20.95 < result["ppl"] < 21.25


def test_a_prefill_is_cancelled_within_a_second() -> None:
    with Recorder() as recorder:
        recorder.load(need_included_model(), LoadOptions(n_ctx=8192, prefill_chunk=4096))
        command = Generate(new_id(), ids=tuple(range(100, 4100)))
        recorder.engine.submit(command)
        recorder.wait_for(lambda events: any(isinstance(e, PrefillProgress) for e in events))
        threading.Event().wait(0.2)
        start = time.monotonic()
        recorder.cancel(command.request_id)
        end = recorder.end_of(command.request_id)
        assert time.monotonic() - start < 1.0
        assert isinstance(end, Finished) and (end.reason, end.usage.n_generated) == ("cancelled", 0)
