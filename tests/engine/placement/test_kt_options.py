"""KTransformers' command lines: its own server's and the `--kt-*` options of its SGLang."""

from __future__ import annotations

import shlex

import pytest

from engine.errors import PlacementError
from engine.hardware.gpus import GpuInfo
from engine.placement.interchange.kt_options import KtOptions, expert_counts, parse_options
from engine.placement.interchange.parsed import Parsed, parse
from engine.placement.options import LoadOptions
from engine.placement.placement import Gpu, Pool
from engine.placement.resolution import Resolution
from tests.helpers.described import model

GPUS = [GpuInfo(i, "card", 24 << 30, 24 << 30) for i in range(2)]
N = len(model("qwen3moe").spec.blocks)
N_EXPERTS = max(one.shape[2] for name, one in model("qwen3moe").file.tensors.items() if "up_exps" in name)


def options(text: str, *, sglang: bool = True) -> KtOptions:
    return parse_options(shlex.split(text), sglang=sglang)


def resolved(text: str, name: str = "qwen3moe") -> Resolution:
    one = model(name)
    return parse(text).resolve(one.spec, one.graph, one.file, GPUS, LoadOptions(n_threads=2))


PUBLISHED = [
    # doc/en/kt-kernel/README.md, native backend: 32 of 128 experts of each layer
    ("python -m sglang.launch_server --host 0.0.0.0 --port 30000 --model Q --kt-weight-path Q --kt-cpuinfer 64 "
     "--kt-threadpool-count 2 --kt-num-gpu-experts 2 --kt-method BF16 --trust-remote-code --chunked-prefill-size 4096 "
     "--tensor-parallel-size 1 --kt-gpu-prefill-token-threshold 4096 --kt-enable-dynamic-expert-update",
     "CPU+CUDA0", "CUDA0", (64, 0, 4096, 30000)),
    # doc/en/Kimi-K2-Thinking.md
    ("python -m sglang.launch_server --port 60000 --model K2 --kt-weight-path K2-CPU --kt-cpuinfer 56 --kt-threadpool-count 2 "
     "--kt-num-gpu-experts 0 --kt-method AMXINT4 --max-total-tokens 37000 --tensor-parallel-size 2 --chunked-prefill-size 4096",
     "CPU", "CUDA0+CUDA1", (56, 37000, 4096, 60000)),
    # doc/en/Qwen3-Next.md
    ("python ktransformers/server/main.py --port 10021 --model_path Q --gguf_path Q-GGUF --model_name Qwen3NextForCausalLM "
     "--max_new_tokens 1024 --cache_lens 32768 --chunk_size 256 --max_batch_size 4 --no-use_cuda_graph",
     "CPU", "CUDA0", (0, 32768, 256, 10021)),
    # doc/en/DeepseekR1_V3_tutorial.md
    ("numactl -N 1 -m 1 python ./ktransformers/local_chat.py --model_path R1 --gguf_path R1-GGUF --cpu_infer 33 "
     "--max_new_tokens 1000", "CPU", "CUDA0", (33, 0, 512, 0)),
    # a launcher of a field report
    ("USE_NUMA=1 python3 -m ktransformers.server.main --gguf_path /models/r1 --cpu_infer 32 --max_new_tokens 4096 "
     "--cache_lens 32768 --port 8080", "CPU", "CUDA0", (32, 32768, 512, 8080)),
]  # fmt: skip


@pytest.mark.parametrize(("command", "experts", "rest", "said"), PUBLISHED, ids=range(len(PUBLISHED)))
def test_published_command_lines(command: str, experts: str, rest: str, said: tuple[int, int, int, int]) -> None:
    found = resolved(command)
    assert {device for name, device in found.tensors.items() if "_exps" in name} == {experts}
    assert {device for name, device in found.tensors.items() if "attn_" in name or name == "output.weight"} == {rest}
    assert found.tensors["token_embd.weight"] == (rest if "sglang" in command else "CPU")
    settings, given = found.settings, found.settings.options(LoadOptions())
    assert (given.n_threads, given.n_ctx, given.prefill_chunk, settings.port or 0) == said
    assert parse(command).tool == ("script" if "numactl --" in command else "ktransformers")


def test_some_experts_of_each_layer_lie_in_slots_of_the_gpu() -> None:
    found = resolved("--kt-num-gpu-experts 2 --kt-method LLAMAFILE")
    assert found.placement.pools == tuple(Pool(i, Gpu(0), (0, 1)) for i in range(N))
    assert {str(device) for unit, device in found.placement.units if unit.kind == "experts"} == {"numa0"}
    assert found.differences == ()
    every = resolved(f"--kt-num-gpu-experts {N_EXPERTS}")
    assert every.placement.pools == ()
    assert {str(device) for unit, device in every.placement.units if unit.kind == "experts"} == {"gpu0"}


def test_experts_are_spread_evenly_or_fill_the_first_layers() -> None:
    spec = model("qwen3moe").spec
    assert set(expert_counts(options("--kt-num-gpu-experts 3"), spec).values()) == {3}
    front = options("--kt-num-gpu-experts 3 --kt-expert-placement-strategy front-loading")
    counts = list(expert_counts(front, spec).values())
    assert sum(counts) == 3 * N and counts == sorted(counts, reverse=True) and counts[0] == min(N_EXPERTS, 3 * N)
    assert sum(expert_counts(options("--kt-gpu-experts-ratio 0.5"), spec).values()) == N * N_EXPERTS // 2
    both = options("--kt-num-gpu-experts 1 --kt-gpu-experts-ratio 1.0")
    assert set(expert_counts(both, spec).values()) == {N_EXPERTS}
    assert set(expert_counts(options("--kt-num-gpu-experts 999"), spec).values()) == {N_EXPERTS}


def test_the_last_word_counts_and_dashes_are_as_good_as_lines() -> None:
    found = options("--cpu_infer 3 --cpu-infer=7 --cache_lens 10 --cache-lens 20", sglang=False)
    assert (found.settings.n_threads, found.settings.n_ctx) == (7, 20)


def test_what_means_nothing_here_is_told() -> None:
    parsed: Parsed = parse(
        "python -m sglang.launch_server --kt-method AMXINT8 --kt-numa-nodes 0 1 --kt-expert-placement-strategy frequency "
        "--init-expert-location x.pt --kt-num-gpu-expert 3 --max-running-requests 4 --kt-max-deferred-experts-per-token 2"
    )
    assert [one.split(":")[0] for one in parsed.unsupported] == [
        "--kt-numa-nodes 0 1",
        "--init-expert-location x.pt",
        "--kt-num-gpu-expert is unknown; did you mean --kt-num-gpu-experts?",
        "--kt-expert-placement-strategy frequency",
    ]
    assert any("no expert is put off" in one for one in parsed.remarks)
    assert parsed.ignored == ("--max-running-requests 4",)
    rules = parse("python -m ktransformers.local_chat --gguf_path x --optimize_config_path rules.yaml").unsupported
    assert rules == ("--optimize_config_path rules.yaml: the default rules are taken; import that rule file itself",)
    cut = resolved("--kt-num-gpu-experts 0 --tp 2")
    assert any("cut over 2 GPUs there" in one for one in cut.differences)
    assert {str(device) for unit, device in cut.placement.units if unit.kind == "mixer"} == {"gpu0", "gpu1"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("--kt-num-gpu-experts many", "'many' is not understood"),
        ("--kt-num-gpu-experts", "has no value"),
        ("--kt-gpu-experts-ratio 2", "not a share from 0 to 1"),
        ("--kt-expert-placement-strategy best --kt-method X", "'best' is unknown"),
        ("--kt-method X --kv-cache-dtype int3", "'int3' is unknown"),
        ("--kt-method X --tp 3", "--tp 3: there is no device 'CUDA2'"),
    ],
)
def test_nonsense_is_refused_in_a_sentence(text: str, problem: str) -> None:
    with pytest.raises(PlacementError, match=problem) as caught:
        resolved(text)
    assert "\n" not in str(caught.value)
