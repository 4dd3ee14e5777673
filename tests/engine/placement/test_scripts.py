"""Launch scripts as text: the command that would start a model is found, with its variables, and nothing is run."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import PlacementError
from engine.hardware.gpus import GpuInfo
from engine.placement.flags import LlamaFlags, Override
from engine.placement.interchange.kt_options import KtOptions
from engine.placement.interchange.parsed import Parsed, parse
from engine.placement.interchange.shell import commands_of
from engine.placement.options import LoadOptions
from tests.helpers.described import model

SCRIPT = r"""#!/usr/bin/env bash
# Starts a large mixture on one socket.
set -euo pipefail

ENGINE="${1:-ik}"          # ik | kt
MODEL_PATH="/models/R1/R1-00001-of-00009.gguf"
THREADS=32
CTX=32768

echo "[1/3] Nodes"
numactl --hardware | head -n 6
echo "[2/3] Page cache"
sync && echo 3 | sudo tee /proc/sys/vm/drop_caches > /dev/null
echo "[3/3] Launch ($ENGINE)"
if [ "$ENGINE" = "kt" ]; then
    export USE_NUMA=1
    python3 -m ktransformers.server.main \
        --gguf_path "$(dirname "$MODEL_PATH")" \
        --cpu_infer "$THREADS" --max_new_tokens 4096 \
        --cache_lens "$CTX" --port 8080
else
    numactl --interleave=all ./build/bin/llama-server \
        -m "$MODEL_PATH" -ngl 99 \
        -ot "blk\.[0-9]+\.ffn_.*_exps\.weight=CPU" \
        -ctk q8_0 -ctv q8_0 -c "$CTX" -t "$THREADS" \
        --host 0.0.0.0 --port 8080   # reachable by others
fi
"""
ROW = Override(r"blk\.[0-9]+\.ffn_.*_exps\.weight", "CPU")


def flags_of(text: str) -> LlamaFlags:
    rules = parse(text).rules
    assert isinstance(rules, LlamaFlags)
    return rules


def words(text: str) -> list[list[str]]:
    return [[word.text for word in command.words] for command in commands_of(text)]


def test_the_branch_that_would_run_is_read() -> None:
    parsed = parse(SCRIPT)
    rules = parsed.rules
    assert isinstance(rules, LlamaFlags) and parsed.tool == "script"
    assert (rules.overrides, rules.n_gpu_layers, rules.k_type) == ((ROW,), 99, "q8_0")
    assert (parsed.settings.n_ctx, parsed.settings.n_threads, parsed.settings.port) == (32768, 32, 8080)
    assert parsed.settings.model_path == "/models/R1/R1-00001-of-00009.gguf"
    assert parsed.unsupported == ()
    assert [one.split(":")[0] for one in parsed.notes] == ["numactl --interleave=all"]


def test_a_variable_chooses_the_other_branch() -> None:
    parsed = parse(SCRIPT.replace(":-ik", ":-kt"))
    assert isinstance(parsed.rules, KtOptions) and not parsed.rules.sglang
    assert (parsed.settings.n_ctx, parsed.settings.n_threads, parsed.settings.max_tokens) == (32768, 32, 4096)
    assert parsed.n_gpus == 1
    assert parsed.unsupported == ("USE_NUMA=1: experts are not copied to every node of memory here",)


def test_a_choice_that_only_a_shell_could_make_is_noted() -> None:
    parsed = parse(SCRIPT.replace('"${1:-ik}"', '"$1"'))
    assert any("known only when it runs" in note for note in parsed.notes)
    assert any("2 commands of the script start a model" in note for note in parsed.notes)


def test_case_chooses_too() -> None:
    text = (
        'E=ik\ncase "$E" in\n  kt|ktransformers) python -m ktransformers.local_chat --cpu_infer 9 ;;\n'
        "  ik|ik_llama)\n    ./ik_llama.cpp/llama-server -ngl 3\n    ;;\n  *) llama-server -ngl 4 ;;\nesac\n"
    )
    assert flags_of(text).n_gpu_layers == 3
    assert flags_of(text.replace("E=ik\n", "E=other\n")).n_gpu_layers == 4


def test_arrays_defaults_continuations_and_quotes_are_filled_in() -> None:
    text = (
        'ARGS=(-ngl 99\n  -ot "exps=CPU")\nARGS+=(-c 4096)\nN="${LAYERS:-7}"\n'
        "exec llama-server \"${ARGS[@]}\" -ncmoe $N -m 'my $model.gguf' -ts 1,\\\n2\n"
    )
    found = flags_of(text)
    assert found.overrides[0] == Override("exps", "CPU") and found.overrides[1].below == 7
    assert (found.settings.n_ctx, found.settings.model_path, found.tensor_split) == (4096, "my $model.gguf", (1.0, 2.0))


def test_texts_for_another_shell_are_read_too() -> None:
    assert flags_of('C=\'llama-server -ngl 8 -ot "exps=CPU"\'\neval "$C"').overrides == (Override("exps", "CPU"),)
    assert flags_of("nohup bash -c 'cd /x && ./llama-server -ngl 8' > log &").n_gpu_layers == 8
    assert flags_of("declare -a A=(-ngl 5)\nRUN=''\n$RUN llama-server ${A[@]}").n_gpu_layers == 5


def test_a_dollar_at_the_end_of_a_pattern_is_no_variable() -> None:
    assert flags_of('llama-server -ngl 9 -ot "exps.weight$=CPU"').overrides == (Override("exps.weight$", "CPU"),)


def test_prefixes_are_taken_off() -> None:
    text = "sudo -E nice -n 5 numactl -N 0 -m 0 taskset -c 0-7,16-23 env A=1 ./llama-server -ngl 5 -t 8"
    parsed = parse(text)
    assert isinstance(parsed.rules, LlamaFlags) and parsed.rules.n_gpu_layers == 5
    assert parsed.unsupported == () and parsed.settings.node == 0
    assert parsed.settings.cores == (*range(8), *range(16, 24))
    assert parsed.settings.options(LoadOptions()).cores == tuple(range(8))
    assert parse("numactl -C 1,3 llama-server -ngl 5").settings.options(LoadOptions()).n_threads == 2
    assert "no list of cores" in parse("taskset 0xff llama-server -ngl 5").unsupported[0]


@pytest.mark.parametrize(
    ("prefix", "node", "cores", "told"),
    [
        ("numactl --cpunodebind=1 --membind=1", 1, (), 0),
        ("numactl -N1 -m1", 1, (), 0),
        ("numactl -m 2", 2, (), 0),
        ("numactl --membind 1 --physcpubind=4-6", 1, (4, 5, 6), 0),
        ("numactl --membind=all", None, (), 0),
        ("numactl --cpunodebind=0 --membind=1", None, (), 1),
        ("numactl --membind=0,1", None, (), 1),
        ("numactl --cpunodebind=0 --interleave=all", None, (), 1),
        ("numactl --preferred=1", None, (), 1),
        ("numactl -m 0 numactl -m 1", 1, (), 0),
    ],
)
def test_a_command_that_is_bound_to_a_node_is_so_here(prefix: str, node: int | None, cores: tuple[int, ...], told: int) -> None:
    parsed = parse(f"{prefix} llama-server -ngl 5")
    assert (parsed.settings.node, parsed.settings.cores, len(parsed.unsupported)) == (node, cores, told)
    assert all("not bound to nodes in this way" in one for one in parsed.unsupported)


def test_numbers_that_only_a_shell_could_know_are_left_out_and_noted() -> None:
    parsed = parse("llama-server -ngl 9 -t $(nproc) -c $UNSET -m $MODEL")
    assert (parsed.settings.n_threads, parsed.settings.n_ctx) == (None, None)
    assert [note.split(":")[0] for note in parsed.notes] == ["-t $(nproc)", "-c $UNSET"]


def test_variables_of_llama_cpp_stand_in_front_of_its_flags() -> None:
    found = flags_of("export LLAMA_ARG_N_GPU_LAYERS=5 LLAMA_ARG_CTX_SIZE=99\nLLAMA_ARG_CPU_MOE=1 llama-server -c 7\n")
    assert (found.n_gpu_layers, found.settings.n_ctx, len(found.overrides)) == (5, 7, 1)


def test_visible_devices_renumber_the_gpus() -> None:
    one, gpus = model("qwen3moe"), [GpuInfo(i, "card", 24 << 30, 24 << 30) for i in range(3)]
    parsed = parse("CUDA_VISIBLE_DEVICES=2,0 ./llama-server -ngl 99 -ts 1,1 -cmoe")
    found = parsed.resolve(one.spec, one.graph, one.file, gpus, LoadOptions(n_threads=2))
    assert found.tensors["blk.0.attn_q.weight"] == "CUDA0"
    assert {str(device) for _, device in found.placement.units} == {"numa0", "gpu2", "gpu0"}
    assert str(found.placement.units[1][1]) == "gpu2"
    assert parsed.n_gpus == 3
    with pytest.raises(PlacementError, match="names GPU 2, which is not there"):
        parsed.resolve(one.spec, one.graph, one.file, gpus[:2], LoadOptions(n_threads=2))
    with pytest.raises(PlacementError, match="no list of numbers"):
        parse("CUDA_VISIBLE_DEVICES=GPU-abc llama-server -ngl 9")


def test_nothing_is_run(tmp_path_factory: pytest.TempPathFactory) -> None:
    mark = tmp_path_factory.mktemp("run") / "mark"
    parse(f"touch {mark}; X=$(touch {mark}) `touch {mark}`\nllama-server -ngl $(touch {mark}; echo 3) -m $X\n")
    assert not mark.exists()


def test_input_of_commands_is_not_taken_for_commands() -> None:
    text = "cat > x.sh <<'EOF'\nllama-server -ngl 1\nEOF\nllama-server -ngl 2 2>&1 | tee log.txt\n"
    assert flags_of(text).n_gpu_layers == 2


def test_statements_are_cut_as_a_shell_cuts_them() -> None:
    assert words("a b;c && d|e # f\ng 'h;i' \"j k\" l\\ m > n 2>&1") == [
        ["a", "b"],
        ["c"],
        ["d"],
        ["e"],
        ["g", "h;i", "j k", "l m"],
    ]
    assert words("A=1\nif [[ $A == 1 ]]; then x; elif [ $A = 2 ]; then y; else z; fi") == [["x"]]
    assert words("A=2\nif [ $A = 1 ]; then x; elif [ $A = 2 ]; then y; else z; fi; w") == [["y"], ["w"]]
    assert words('if [ -z "" ]; then x; else z; fi') == [["x"]]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("#!/bin/bash\necho hello -x\n", "nothing in the text starts a model"),
        ("python server.py --config config.json --port 8000", "takes what it starts from config.json: import that file"),
        ("llama-server -ngl 9 'open", "not closed"),
        ("llama-server -ngl 9 $(open", "not closed"),
        ("A=(x)\n" + 'A=("${A[@]}" "${A[@]}")\n' * 64 + 'llama-server -ngl 9 "${A[@]}"', "more than 20000 words"),
        ("x=1 \n" * 100_000, "characters"),
        ("llama-server -ngl 9 \0", "no text"),
    ],
)
def test_hostile_texts_end_in_a_sentence(text: str, problem: str) -> None:
    with pytest.raises(PlacementError, match=problem) as caught:
        parse(text)
    assert "\n" not in str(caught.value)


def test_variables_that_double_do_not_grow_without_end() -> None:
    text = "A=xxxxxxxx\n" + "A=$A$A\n" * 5000 + "llama-server -ngl 3 -m $A\n"
    assert len(flags_of(text).settings.model_path) <= 1 << 16


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="ab $\"'`(){}[];|&<>#\n\\=-0*!", max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    for whole in (text, f"llama-server -ngl 3 {text}"):
        try:
            assert isinstance(parse(whole), Parsed)
        except PlacementError as error:
            assert "\n" not in str(error)
