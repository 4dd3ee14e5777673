"""`config.json`: its keys, what they mean here, and what is refused."""

from __future__ import annotations

import json

import pytest

from engine.errors import PlacementError
from engine.estimate.described import Described
from engine.hardware.gpus import GpuInfo
from engine.hardware.machine import Machine, NodeInfo
from engine.placement.flags import parse_flags
from engine.placement.interchange.config import KEYS
from engine.placement.interchange.equivalents import written_of
from engine.placement.interchange.parsed import parse
from engine.placement.interchange.write_files import write_config
from engine.placement.options import LoadOptions
from engine.placement.rules import resolve
from engine.placement.source import on_machine
from tests.helpers.described import model

GPUS = [GpuInfo(i, "card", 24 << 30, 24 << 30) for i in range(4)]
WHOLE = {
    "model_path": "models/qwen.gguf",
    "n_gpu_layers": 2,
    "n_threads": 64,
    "n_batch": 256,
    "ctx_size": 16384,
    "rope_freq_base": 10000.0,
    "rope_freq_scale": 0.5,
    "flash_attn": False,
    "use_mmap": True,
    "use_mlock": False,
    "numa_node": 0,
    "kvcache_cpu": True,
    "kvcache_cpu_quantize": "int8",
    "kvcache_cpu_max_tokens": 14000,
}


def test_every_key_is_read() -> None:
    assert WHOLE.keys() == KEYS.keys()
    parsed = parse(json.dumps(WHOLE))
    assert parsed.tool == "config"
    given = parsed.settings.options(LoadOptions())
    assert (given.n_threads, given.n_ctx, given.prefill_chunk) == (64, 16384, 256)
    assert dict(given.overrides) == {"rope.freq_base": 10000.0, "rope.scaling.type": "linear", "rope.scaling.factor": 2.0}
    assert parsed.settings.model_path == "models/qwen.gguf"
    assert [one.split(":")[0] for one in parsed.unsupported] == ["kvcache_cpu"]
    assert any(one.startswith("flash_attn") for one in parsed.remarks)


def test_layers_are_counted_as_llama_cpp_counts_them() -> None:
    one = model("qwen3moe")
    found = parse('{"n_gpu_layers": 2}').resolve(one.spec, one.graph, one.file, GPUS, LoadOptions(n_threads=2))
    flags = resolve(parse_flags("-ngl 2"), *one, GPUS, LoadOptions(n_threads=2))
    assert (found.tensors, found.placement) == (flags.tensors, flags.placement)
    every = parse('{"n_gpu_layers": -1}').resolve(one.spec, one.graph, one.file, GPUS[:1], LoadOptions(n_threads=2))
    assert set(every.tensors.values()) == {"CPU", "CUDA0"}


def test_a_node_is_where_the_part_of_the_cpu_lies_where_the_machine_has_it() -> None:
    one = model("qwen3moe")
    found = parse('{"n_gpu_layers": 2, "numa_node": 1}').resolve(one.spec, one.graph, one.file, GPUS, LoadOptions(n_threads=2))
    there = on_machine(found, nodes(2)).placement
    assert there.nodes == (1,) and not there.spreads and len(there.devices) > 1
    absent = on_machine(found, nodes(1))
    assert absent.placement.nodes == (0,) and "node 1 of memory is not in this machine" in absent.differences[-1]
    first = parse('{"n_gpu_layers": 2, "numa_node": 0}').resolve(one.spec, one.graph, one.file, GPUS, LoadOptions(n_threads=2))
    assert on_machine(first, nodes(2)).placement == first.placement
    unsaid = parse('{"n_gpu_layers": 2}').resolve(one.spec, one.graph, one.file, GPUS, LoadOptions(n_threads=2))
    assert on_machine(unsaid, nodes(2)).placement.nodes == (0, 1)


def nodes(n: int) -> Machine:
    """A machine with n nodes of memory."""
    return Machine(n << 36, n << 36, tuple(GPUS), nodes=tuple(NodeInfo(i, "EPYC", 1 << 36, 1 << 36, 8) for i in range(n)))


def test_what_is_read_is_written_again() -> None:
    one = model("qwen3moe")
    text = json.dumps(WHOLE | {"n_gpu_layers": 3, "numa_node": 1, "kvcache_cpu": False}, indent=2)
    parsed = parse(text)
    given = parsed.settings.options(LoadOptions(prefill_chunk=512))
    found = on_machine(parsed.resolve(one.spec, one.graph, one.file, GPUS[:1], LoadOptions(n_threads=2)), nodes(2))
    written = write_config(written_of(found.placement, Described(one.file, one.spec, one.graph), given, "models/qwen.gguf"))
    back = json.loads(written.text)
    assert written.notes == ()
    assert back == {key: value for key, value in json.loads(text).items() if key in back}
    assert WHOLE.keys() - back.keys() == {
        *("flash_attn", "use_mmap", "use_mlock", "kvcache_cpu", "kvcache_cpu_quantize", "kvcache_cpu_max_tokens")
    }


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"n_gpu_layer": 45}', "did you mean n_gpu_layers"),
        ('{"n_gpu_layer": 45, "n_batch": 1}', "the key 'n_gpu_layer' is unknown; did you mean n_gpu_layers"),
        ('{"n_batch": 512, "zzz": 1}', "the key 'zzz' is unknown; it knows model_path"),
        ('{"n_gpu_layers": "45"}', 'n_gpu_layers is "45"; it takes a number of layers'),
        ('{"n_gpu_layers": true}', "n_gpu_layers is true"),
        ('{"n_threads": 1.5}', "n_threads is 1.5"),
        ('{"flash_attn": 1}', "flash_attn is 1; it takes true or false"),
        ('{"rope_freq_base": 0}', "rope_freq_base is 0"),
        ('{"kvcache_cpu_quantize": "int2"}', "kvcache_cpu_quantize"),
        ('{"n_batch": 512', "not a JSON file"),
        ('{"n_batch": ' + "[" * 100_000, "not a JSON file"),
    ],
)
def test_mistakes_are_refused_in_a_sentence(text: str, problem: str) -> None:
    with pytest.raises(PlacementError, match=problem) as caught:
        parse(text, "config.json")
    assert "\n" not in str(caught.value)
