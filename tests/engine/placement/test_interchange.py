"""Placements to every tool and back: the same places, the same words, and what cannot be said is told."""

from __future__ import annotations

import dataclasses
import json
import shlex
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.arch.units import UnitId
from engine.errors import PlacementError
from engine.estimate.described import Described
from engine.hardware.gpus import GpuInfo
from engine.placement.file import Rules, rules_of, rules_to_json
from engine.placement.interchange.equivalents import WRITERS, equivalent_commands, written_of
from engine.placement.interchange.parsed import TOOLS, Parsed, Tool, parse, recognise, without_secrets
from engine.placement.interchange.write_kt import write_options
from engine.placement.options import LoadOptions
from engine.placement.over_nodes import with_spread
from engine.placement.placement import Device, Gpu, Numa, Placement, Pool, plan_workers, units_of
from engine.placement.source import parse_kept, resolve_source
from engine.placement.spread import even
from tests.engine.placement.test_kt_rules import CASES as RULE_FILES
from tests.engine.placement.test_public_commands import CASES as COMMANDS
from tests.engine.placement.test_scripts import SCRIPT
from tests.helpers.described import model

GPUS = [GpuInfo(i, "card", 24 << 30, 24 << 30) for i in range(3)]
OPTIONS = LoadOptions(n_threads=2)
MODELS = (
    "qwen3moe",
    "qwen35moe",
    "deepseek2-v3",
    "deepseek2-lite",
    "gpt-oss",
    "glm4moe",
    "minimax-m2",
    "llama-mha-spm",
    "qwen2moe",
)
UNTIED = tuple(name for name in MODELS if (one := model(name)).spec.head.weight != one.spec.embed)


def described(name: str) -> Described:
    one = model(name)
    return Described(one.file, one.spec, one.graph)


def again(text: str, name: str, tool: Tool | None = None) -> Placement:
    one = model(name)
    return parse(text, tool=tool).resolve(one.spec, one.graph, one.file, GPUS, OPTIONS).placement


def drawn(data: st.DataObject, name: str) -> Placement:
    devices: tuple[Device, ...] = (Numa(0), Gpu(0), Gpu(1), Gpu(2))
    found = {unit: data.draw(st.sampled_from(devices)) for unit in units_of(model(name).spec)}
    units = tuple(
        (unit, found[UnitId("mixer", unit.layer)] if unit.kind in ("kv", "state") else where) for unit, where in found.items()
    )
    return Placement(units, "f16", "f16", plan_workers(2))


def test_there_are_models_to_try() -> None:
    assert len(UNTIED) >= 7


@pytest.mark.parametrize("tool", ["llama.cpp", "ik", "ktransformers", "script"])
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_what_is_written_is_read_as_the_same_places(tool: Tool, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(UNTIED))
    placement = drawn(data, name)
    text = WRITERS[tool](written_of(placement, described(name), LoadOptions(n_ctx=4096))).text
    assert again(text, name, tool).units == placement.units
    assert WRITERS[tool](written_of(again(text, name, tool), described(name), LoadOptions(n_ctx=4096))).text == text


@settings(max_examples=40, deadline=None)
@given(n=st.integers(0, 9), name=st.sampled_from(UNTIED), k_type=st.sampled_from(("f16", "q8_0")))
def test_settings_that_say_all_are_read_as_the_same_places(n: int, name: str, k_type: Any) -> None:
    """config.json counts layers: what it can say comes back."""
    base = again(json.dumps({"n_gpu_layers": n}), name)
    one = dataclasses.replace(base, units=tuple((unit, Gpu(0) if isinstance(at, Gpu) else at) for unit, at in base.units))
    text = WRITERS["config"](written_of(one, described(name), LoadOptions(n_threads=3, n_ctx=77)))
    found = parse(text.text)
    spec, graph, file = model(name)
    assert found.resolve(spec, graph, file, GPUS[:1], OPTIONS).placement.units == one.units
    assert (found.settings.n_threads, found.settings.n_ctx, text.notes) == (3, 77, ())


TEXTS: list[tuple[Tool | None, str]] = [
    *[(None, case["command"]) for case in COMMANDS],
    *[("ktransformers", case[2]) for case in RULE_FILES],
    ("script", SCRIPT),
    ("config", '{\n  "n_gpu_layers": 45,\n  "ctx_size": 16384\n}'),
    ("ktransformers", "python -m sglang.launch_server --model X --kt-num-gpu-experts 32 --kt-method BF16"),
    ("ktransformers", "--gguf_path X --cpu_infer 33 --cache_lens 8192"),
]


@pytest.mark.parametrize(("tool", "text"), TEXTS, ids=range(len(TEXTS)))
def test_an_export_of_an_import_is_the_text_itself(tool: Tool | None, text: str) -> None:
    parsed = parse(text)
    assert tool in (None, parsed.tool)
    kept = rules_of(rules_to_json(Rules(parsed.tool, (), parsed.text)), "p.json")
    assert kept is not None and kept.text == without_secrets(text)
    assert "--api-key" in text or kept.text == text
    assert parse_kept(kept, "p.json") == parse(kept.text)


def test_secrets_stay_out_of_files() -> None:
    text = "HF_TOKEN=hf_abc llama-server -ngl 9 --api-key 'pass word' --hf-token=hf_xyz -hft tok --port 1"
    parsed = parse(text)
    for secret in ("hf_abc", "pass word", "hf_xyz", "tok "):
        assert secret not in parsed.text
    assert parsed.text.endswith("--port 1") and parsed.text.count("REMOVED") == 4
    assert without_secrets('--api-key "$API_KEY"') == '--api-key "$API_KEY"'


def test_rules_are_told_by_their_looks() -> None:
    assert recognise("-ngl 9") == "llama.cpp"
    assert recognise("- match:\n    name: x\n  replace: {}") == "ktransformers"
    assert recognise("# a comment\n- match: {name: x}\n") == "ktransformers"
    assert recognise(' {"n_gpu_layers": 1}') == "config"
    assert recognise("--kt-num-gpu-experts 3") == "ktransformers"
    assert parse("-ngl 9 -fmoe").tool == "ik"
    assert parse("./ik_llama.cpp/build/bin/llama-server -ngl 9").tool == "ik"
    assert parse("-ngl 9", tool="ik").tool == "ik"
    assert parse("llama-server -ngl 9").tool == "llama.cpp"
    assert parse("set -e\nllama-server -ngl 9").tool == "script"
    with pytest.raises(PlacementError, match=r"rules of llama\.cpp, not of ktransformers"):
        parse("llama-server -ngl 9", tool="ktransformers")


def test_the_output_follows_all_layers_with_ik() -> None:
    one = model("qwen3moe")
    n = len(one.spec.blocks)
    ours = parse(f"-ngl {n}").resolve(one.spec, one.graph, one.file, GPUS[:1], OPTIONS)
    theirs = parse(f"-ngl {n} -fmoe").resolve(one.spec, one.graph, one.file, GPUS[:1], OPTIONS)
    assert (ours.tensors["output.weight"], ours.tensors["blk.0.attn_q.weight"]) == ("CUDA0", "CPU")
    assert (theirs.tensors["output.weight"], theirs.tensors["blk.0.attn_q.weight"]) == ("CPU", "CUDA0")


def test_what_changes_nothing_here_is_said_and_what_changes_results_is_a_difference() -> None:
    parsed = parse("-ngl 99 -mla 3 -fa on -fmoe -rtr -amb 512 --no-mmap -ser 6,1 -b 4096 -ub 1024 -ctk q8_KV -c 0")
    assert [one.split(":")[0] for one in parsed.remarks] == [
        *("-mla 3", "-fa on", "-fmoe", "-rtr", "-amb 512", "--no-mmap", "-c 0"),
    ]
    assert any("advises against it" in one for one in parsed.remarks)
    assert [one.split(":")[0] for one in parsed.unsupported] == ["-ser 6,1"]
    assert parsed.settings.prefill_chunk == 1024
    one = model("deepseek2-v3")
    found = parsed.resolve(one.spec, one.graph, one.file, GPUS, OPTIONS)
    assert "a cache of type q8_KV is not known here: q8_0 is used" in found.differences


def test_settings_of_rules_stand_before_those_that_are_there() -> None:
    given = LoadOptions(n_threads=1, n_ctx=5, overrides=(("rope.freq_base", 1.0), ("a", 2)))
    found = parse("-ngl 9 -t 7 --rope-freq-base 10000 --rope-freq-scale 1").settings
    assert found.options(given) == dataclasses.replace(given, n_threads=7, overrides=(("a", 2), ("rope.freq_base", 10000.0)))
    assert found.over(parse("-ngl 9 -t 8 -c 9").settings) == dataclasses.replace(found, n_ctx=9)


def test_cores_of_the_options_are_those_of_the_script() -> None:
    name = "qwen3moe"
    pinned = LoadOptions(n_threads=3, cores=(0, 1, 4))
    text = WRITERS["script"](written_of(again("-ngl 99 -cmoe", name), described(name), pinned)).text
    assert "exec taskset -c 0-1,4 llama-server" in text
    assert parse(text).settings.options(LoadOptions()).cores == (0, 1, 4)


def test_keys_of_the_file_are_overridden_as_there() -> None:
    text = (
        "-ngl 9 --rope-scale 4 --rope-scaling yarn --yarn-orig-ctx 32768 --override-kv a.b=int:4,c=str:d --override-kv a.b=int:5"
    )
    assert dict(parse(text).settings.overrides) == {
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": 4.0,
        "rope.scaling.original_context_length": 32768,
        "a.b": 5,
        "c": "d",
    }
    for wrong in ("--override-kv x", "--rope-scaling cubic", "--rope-scale -1", "-c 1x", "--port 70000"):
        with pytest.raises(PlacementError, match="it takes"):
            parse(f"-ngl 9 {wrong}")


def test_lines_may_go_on_as_windows_has_it() -> None:
    assert parse("llama-server.exe -ngl 7 ^\r\n  -c 99 `\n -cmoe").settings.n_ctx == 99


@pytest.mark.parametrize("engine", ["llama", "ik", "ktransformers"])
def test_a_shell_starts_what_the_script_says(tmp_path_factory: pytest.TempPathFactory, engine: str) -> None:
    """Run under bash with programs of that name that print their words; rules and flags must be those that are read here."""
    name, folder = "deepseek2-v3", tmp_path_factory.mktemp("script")
    placement = again("-ngl 99 -ts 1,1 -ot 'blk\\.1\\.ffn_.*_exps=CUDA1,exps=CPU' -ctk q8_0", name)
    options = LoadOptions(n_threads=3, n_ctx=4096, prefill_chunk=1024)
    text = WRITERS["script"](written_of(placement, described(name), options, "it's a model.gguf")).text
    script, programs = folder / "run.sh", folder / "ik_llama.cpp/build/bin"
    script.write_text(text, encoding="utf-8")
    programs.mkdir(parents=True)
    for at in (folder / "llama-server", programs / "llama-server", folder / "python3"):
        at.write_text('#!/bin/sh\nprintf "%s\\n" "$@" > words\n', encoding="utf-8")
        at.chmod(0o755)
    path = f"{folder}:/usr/bin:/bin"
    subprocess.run(["/bin/bash", str(script), engine], cwd=folder, env={"PATH": path}, check=True, capture_output=True)
    words = (folder / "words").read_text(encoding="utf-8").splitlines()
    if engine == "ktransformers":
        rules = Path(words[words.index("--optimize_config_path") + 1])
        read = rules.read_text(encoding="utf-8")
        rules.unlink()
        assert words[-4:] == ["--cpu_infer", "3", "--cache_lens", "4096"]
    else:
        assert words[:2] == ["-m", "it's a model.gguf"] and words[-6:] == ["-c", "4096", "-t", "3", "-ub", "1024"]
        read = shlex.join([*(["-fmoe"] if engine == "ik" else []), *words])
    assert again(read, name).units == placement.units
    assert again(text.replace(":-llama}", f":-{engine}}}"), name).units == placement.units or engine == "ktransformers"


def test_pools_become_a_number_of_experts() -> None:
    name = "qwen3moe"
    base = again("-ngl 99 -ts 1 -cmoe", name)
    n = len(model(name).spec.blocks)
    pooled = dataclasses.replace(base, pools=tuple(Pool(i, Gpu(0), (0, 1)) for i in range(n)))
    done = write_options(written_of(pooled, described(name), OPTIONS))
    assert "--kt-num-gpu-experts 2" in done.text and done.notes == ()
    back = again(done.text, name)
    assert back.pools == pooled.pools
    assert any("slots" in note for note in WRITERS["llama.cpp"](written_of(pooled, described(name), None)).notes)
    front = again("-ngl 99 -ts 1 -ot 'blk\\.0\\.ffn_.*_exps=CUDA0,exps=CPU'", name)
    text = write_options(written_of(front, described(name), OPTIONS)).text
    assert "front-loading" in text
    assert [unit for unit, where in again(text, name).units if unit.kind == "experts" and where == Gpu(0)] == [
        UnitId("experts", 0)
    ]


def test_what_a_tool_cannot_say_is_noted() -> None:
    name = "qwen35moe"
    placement = dataclasses.replace(again("-ngl 99 -ts 1,1 -cmoe", name), k_type="int8")
    notes = {one.tool: one.notes for one in equivalent_commands(placement, described(name), OPTIONS)}
    assert any("no cache of type int8" in one for one in notes["llama.cpp"])
    assert any("by their bytes" in one for one in notes["ik"])
    assert any("no classes for the architecture 'qwen35moe'" in one for one in notes["ktransformers"])
    assert any("parts of layers" in one for one in notes["config"])
    assert any("cut over 2 GPUs" in one for one in notes["sglang"])


KEYS = (
    ("rope_freq_base", 1e6),
    ("rope.scaling.type", "yarn"),
    ("qwen3moe.rope.scaling.factor", 4.0),
    ("rope.scaling.original_context_length", 32768),
    ("expert_used_count", 2),
)


@pytest.mark.parametrize("tool", ["llama.cpp", "ik", "script"])
def test_overridden_keys_are_written_whole_and_read_again(tool: Tool) -> None:
    name, options = "qwen3moe", LoadOptions(n_ctx=4096, overrides=KEYS)
    done = WRITERS[tool](written_of(again("-ngl 99 -cmoe", name), described(name), options))
    assert "--override-kv qwen3moe.expert_used_count=int:2" in done.text
    assert dict(parse(done.text).settings.overrides) == {
        "rope.freq_base": 1e6,
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": 4.0,
        "rope.scaling.original_context_length": 32768,
        "qwen3moe.expert_used_count": 2,
    }
    assert not any("expert_used_count" in one or "rope" in one for one in done.notes)


def test_keys_and_settings_that_a_tool_cannot_say_are_noted() -> None:
    name = "qwen3moe"
    options = LoadOptions(n_ctx=4096, overrides=(*KEYS, ("general.name", "a,b")), stream_experts="off", f32_activations=True)
    notes = {
        one.tool: "\n".join(one.notes) for one in equivalent_commands(again("-ngl 99 -cmoe", name), described(name), options)
    }
    assert "general.name" in notes["llama.cpp"] and "expert_used_count" not in notes["llama.cpp"]
    for tool in ("ktransformers", "sglang", "config"):
        assert "qwen3moe.expert_used_count" in notes[tool] and "qwen3moe.rope.scaling.factor" in notes[tool], tool
    assert "rope.freq_base" in notes["ktransformers"] and "rope.freq_base" not in notes["config"]
    assert all("--stream-experts off, --f32-activations" in one for one in notes.values())


def test_nodes_of_memory_stand_in_front_of_the_command() -> None:
    name = "qwen3moe"
    base = again("-ngl 99 -cmoe", name)
    second = dataclasses.replace(
        base, units=tuple((unit, Numa(1) if isinstance(where, Numa) else where) for unit, where in base.units)
    )
    spread = with_spread(base, [unit for unit, _ in base.units if unit.kind == "experts"], even((0, 1)))
    for tool in ("llama.cpp", "ik", "script"):
        text = WRITERS[tool](written_of(second, described(name), LoadOptions(n_ctx=4096))).text
        assert "numactl --cpunodebind=1 --membind=1 " in text and parse(text).settings.node == 1
        done = WRITERS[tool](written_of(spread, described(name), LoadOptions(n_ctx=4096)))
        assert "numactl --interleave=all " in done.text and parse(done.text).settings.node is None
        assert any("split over nodes" in one for one in done.notes)
        assert "numactl --cpu" not in (plain := WRITERS[tool](written_of(base, described(name), LoadOptions())).text)
        assert "numactl --inter" not in plain
    for tool in ("llama.cpp", "ktransformers"):
        alone = WRITERS[tool](written_of(second, described(name), None))
        assert any("put numactl --cpunodebind=1 --membind=1 in front" in one for one in alone.notes), tool
        assert not any("in front" in one for one in WRITERS[tool](written_of(base, described(name), None)).notes)
    assert all(
        "nodes" in "\n".join(one.notes) or "node of memory" in "\n".join(one.notes)
        for one in equivalent_commands(spread, described(name), OPTIONS)
    )


def test_equivalents_take_milliseconds() -> None:
    placement, one = again("-ngl 99 -cmoe", "deepseek2-v3"), described("deepseek2-v3")
    equivalent_commands(placement, one, OPTIONS)
    started = time.process_time()
    for _ in range(5):
        equivalent_commands(placement, one, OPTIONS)
    assert (time.process_time() - started) / 5 < 0.05


def test_rule_files_serve_as_placement(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("rules")
    for name, text in (("r.yaml", RULE_FILES[0][2]), ("c.json", '{"n_gpu_layers": 1}'), ("s.sh", SCRIPT)):
        (folder / name).write_text(text, encoding="utf-8")
        found = resolve_source(str(folder / name), *model("deepseek2-v3"), GPUS, OPTIONS)
        assert Gpu(0) in found.placement.devices, name
    kept = rules_to_json(Rules("ktransformers", (), RULE_FILES[0][2]))
    direct = resolve_source(RULE_FILES[0][2], *model("deepseek2-v3"), GPUS, OPTIONS)
    assert resolve_source(kept, *model("deepseek2-v3"), GPUS, OPTIONS).tensors == direct.tensors
    with pytest.raises(PlacementError, match="rules of 'other' are not known here"):
        resolve_source(rules_to_json(Rules("other", ("-x",))), *model("deepseek2-v3"), GPUS, OPTIONS)


HOSTILE = {
    "ten megabytes of flags": "-ngl 9 " * 1_500_000,
    "ten megabytes of rules": "- match: {name: x}\n  replace: {}\n" * 300_000,
    "ten megabytes of script": "llama-server -ngl 9\n" * 500_000,
    "ten megabytes of JSON": '{"n_batch": [' + "1," * 5_000_000 + "1]}",
    "a regular expression that never ends": "-ngl 9 -ot '(a|a)*(b|b)*x$=CPU'",
    "optional parts": f"-ngl 9 -ot '{'.?' * 30}x$=CPU'",
    "counted optional parts": "-ngl 9 -ot '(.?){30}x$=CPU'",
    "a very long pattern": f"-ngl 9 -ot '{'a' * 30_000}=CPU'",
    "a bomb of aliases": "- match: &a {name: x}\n  replace: {kwargs: {b: [*a,*a]}}",
    "deep rules": "- match: " + "{a: " * 3000,
    "deep JSON": '{"n_batch": ' * 50_000,
    "bytes": "\x00\x01\x02 -ngl",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_texts_end_in_one_sentence_and_soon(text: str) -> None:
    started = time.process_time()
    with pytest.raises(PlacementError) as caught:
        parse(text)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 500
    assert time.process_time() - started < 5


@settings(max_examples=150, deadline=None)
@given(text=st.text(max_size=200), tool=st.sampled_from((None, *TOOLS)))
def test_any_text_is_read_or_refused(text: str, tool: Tool | None) -> None:
    try:
        assert isinstance(parse(text, tool=tool), Parsed)
    except PlacementError as error:
        assert "\n" not in str(error)
