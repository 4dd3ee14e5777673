"""`layerdeck placement` and `layerdeck estimate`: what scripts rely on."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from engine.cli.main import main
from engine.cli.shield import shielded
from tests.helpers.golden_models import golden
from tests.helpers.hollow import hollow_mixture

MODEL = str(golden("qwen3moe").path)
ROW = r'-ngl 99 -ot "blk\.[0-9]+\.ffn_.*_exps\.weight=CPU"'


@pytest.fixture(autouse=True)
def no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAYERDECK_GPU", "none")


@pytest.fixture
def machine(tmp_path: Path) -> str:
    path = tmp_path / "machine.json"
    path.write_text('{"ram_gib": 64, "gpus": [{"name": "RTX 4090", "memory_gib": 24, "count": 2}]}', encoding="utf-8")
    return str(path)


def out_of(capsys: pytest.CaptureFixture[str], *argv: str, code: int = 0) -> str:
    assert main(list(argv)) == code
    return capsys.readouterr().out


def object_of(capsys: pytest.CaptureFixture[str], *argv: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(out_of(capsys, *argv))
    return found


@pytest.mark.parametrize(
    "flags", [ROW, "-cmoe", "--cpu-moe", "-ngl 3 -ts 1,1 -nkvo", "--n-gpu-layers 99 --override-tensor exps=CPU"]
)
@pytest.mark.parametrize("with_model", [True, False])
def test_export_of_an_import_returns_the_rules_unchanged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: str, with_model: bool
) -> None:
    path = str(tmp_path / "p.json")
    assert main(["placement", "import", flags, *(("--model", MODEL) if with_model else ()), "-o", path]) == 0
    assert out_of(capsys, "placement", "export", path, "--to", "llama.cpp") == f"{flags}\n"


def test_other_flags_are_kept_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "run.sh"
    text = "./llama-server -m x.gguf \\\n  -c 32768 -ngl 99 -ot 'exps=CPU' --jinja"
    script.write_text(f"{text}\n", encoding="utf-8")
    path = str(tmp_path / "p.json")
    assert main(["placement", "import", str(script), "-o", path]) == 0
    assert "kept as they are: --jinja" in capsys.readouterr().err
    assert out_of(capsys, "placement", "export", path) == f"{text}\n"


def test_tensors_prints_the_map_of_the_tool_itself(capsys: pytest.CaptureFixture[str], machine: str) -> None:
    found = object_of(capsys, "placement", "import", ROW, "--model", MODEL, "--machine", machine, "--tensors")
    assert found["token_embd.weight"] == "CPU"
    assert {found[f"blk.{i}.ffn_up_exps.weight"] for i in range(3)} == {"CPU"}
    assert (found["blk.0.attn_q.weight"], found["output.weight"]) == ("CUDA0", "CUDA1")


def test_flags_for_gpus_can_be_read_where_there_are_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["placement", "import", "-ot exps=CUDA2 -ngl 0", "--model", MODEL, "--tensors"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["blk.1.ffn_up_exps.weight"] == "CUDA2"
    assert "3 of 24 GiB are assumed" in captured.err


def test_what_cannot_be_expressed_is_listed_and_fails_when_strict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], machine: str
) -> None:
    flags = "-ngl 99 -ot 'ffn_(up|down)_exps=CPU' -sm row"
    command = ["placement", "import", flags, "--model", MODEL, "--machine", machine, "-o", str(tmp_path / "p.json")]
    assert main(command) == 0
    told = capsys.readouterr().err
    assert "ffn_gate_exps of layers 0-1: CUDA0 there, CPU here" in told and "-sm row" in told
    assert main([*command, "--strict"]) == 1
    assert main(["placement", "import", "-ngl 99", "--model", MODEL, "--machine", machine, "--strict"]) == 0


def test_a_placement_file_serves_as_placement(tmp_path: Path, capsys: pytest.CaptureFixture[str], machine: str) -> None:
    whole, rules = str(tmp_path / "p.json"), str(tmp_path / "r.json")
    assert main(["placement", "import", "-ngl 99 -cmoe", "--model", MODEL, "--machine", machine, "-o", whole]) == 0
    assert main(["placement", "import", "-ngl 99 -cmoe", "-o", rules]) == 0
    results = [
        object_of(capsys, "estimate", MODEL, "--json", "--machine", machine, "--placement", source)
        for source in (whole, rules, "-ngl 99 -cmoe")
    ]
    assert results[0] == results[1] == results[2]
    assert results[0]["placement"]["experts.1"] == "numa0" and results[0]["placement"]["mixer.0"] == "gpu0"


def test_a_file_without_rules_is_exported_by_its_units(tmp_path: Path, capsys: pytest.CaptureFixture[str], machine: str) -> None:
    path = tmp_path / "p.json"
    assert main(["placement", "import", "-ngl 99 -cmoe -sm none", "--model", MODEL, "--machine", machine, "-o", str(path)]) == 0
    value = json.loads(path.read_text(encoding="utf-8"))
    del value["rules"]
    path.write_text(json.dumps(value), encoding="utf-8")
    words = out_of(capsys, "placement", "export", str(path))
    assert words == r"-ngl 999 -sm none -ot 'blk\.\d+\.ffn_(gate|up|down|gate_up)_exps\.=CPU'" + "\n"


RULES = """- match:
    name: "^model.embed_tokens"
  replace:
    class: "default"
    kwargs: {generate_device: "cpu", prefill_device: "cpu"}
- match:
    name: "^model\\\\.layers\\\\..*\\\\.mlp\\\\.experts$"
  replace:
    class: ktransformers.operators.experts.KTransformersExperts
    kwargs: {generate_device: "cpu", generate_op: "KExpertsCPU", out_device: "cuda"}
  recursive: False
"""
SCRIPT = """#!/usr/bin/env bash
set -euo pipefail
CTX=4096
CUDA_VISIBLE_DEVICES=0 ./build/bin/llama-server -m x.gguf -ngl 99 \\
    -ot "exps=CPU" -c "$CTX" --jinja
"""
FOREIGN = {
    "ktransformers": ("rules.yaml", RULES),
    "config": ("config.json", '{"n_gpu_layers": 99, "ctx_size": 4096}'),
    "script": ("run.sh", SCRIPT),
    "ik": ("flags.txt", "-ngl 99 -ot exps=CPU -fmoe"),
}


@pytest.mark.parametrize("tool", FOREIGN)
def test_files_of_other_tools_come_and_go_unchanged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], machine: str, tool: str
) -> None:
    name, text = FOREIGN[tool]
    source, placed, rules = tmp_path / name, str(tmp_path / "p.json"), str(tmp_path / "r.json")
    source.write_text(text, encoding="utf-8")
    command = ["placement", "import", str(source), "--machine", machine]
    assert main([*command, "--model", MODEL, "-o", placed, "--strict"]) == 0
    assert main(["placement", "import", str(source), "-o", rules, "--from", tool]) == 0
    capsys.readouterr()
    for path in (placed, rules):
        assert out_of(capsys, "placement", "export", path, "--to", tool) == text + ("" if text.endswith("\n") else "\n")
    tensors = object_of(capsys, *command, "--model", MODEL, "--tensors")
    experts = {device for one, device in tensors.items() if "_exps" in one}
    assert experts == {"CPU" if tool != "config" else "CUDA0"} or tool == "config"
    assert tensors["blk.0.attn_q.weight"] == "CUDA0"
    for given in (placed, rules, str(source)):
        assert (
            object_of(capsys, "estimate", MODEL, "--json", "--machine", machine, "--placement", given)["placement"]["mixer.0"]
            == "gpu0"
        )


@pytest.mark.parametrize("tool", ["llama.cpp", "ik", "ktransformers", "config", "script"])
@pytest.mark.parametrize("with_model", [True, False])
def test_a_placement_is_written_for_every_tool(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], machine: str, tool: str, with_model: bool
) -> None:
    placed, out = str(tmp_path / "p.json"), tmp_path / "out"
    assert main(["placement", "import", RULES, "--model", MODEL, "--machine", machine, "-o", placed]) == 0
    value = json.loads(Path(placed).read_text(encoding="utf-8"))
    del value["rules"]
    Path(placed).write_text(json.dumps(value), encoding="utf-8")
    more = ("--model", MODEL) if with_model else ()
    assert main(["placement", "export", placed, "--to", tool, "-o", str(out), *more]) == 0
    code = main(["placement", "export", placed, "--to", tool, "-o", str(out), "--strict", *more])
    assert code == (1 if tool == "config" else 0)
    assert ("parts of layers" in capsys.readouterr().err) is (tool == "config")
    if tool != "config":
        again = str(tmp_path / "again.json")
        command = ["placement", "import", str(out), "--model", MODEL, "--machine", machine, "-o", again, "--from", tool]
        assert main(command) == 0
        assert json.loads(Path(again).read_text(encoding="utf-8"))["units"] == value["units"]


def test_the_string_of_the_reports_works(capsys: pytest.CaptureFixture[str], machine: str, tmp_path: Path) -> None:
    flags = rf"{ROW} -mla 3 -fa -fmoe -ctk q8_0 -ctv q8_0 -c 32768 -t 32 --port 8080"
    path = str(tmp_path / "p.json")
    assert main(["placement", "import", flags, "--model", MODEL, "--machine", machine, "--strict", "-o", path]) == 0
    told = capsys.readouterr().err
    assert "beside places it says what is -t 32 -c 32768 here" in told
    assert "-fmoe: gate, up and activation" in told and "-mla 3: latent attention" in told
    value = json.loads(Path(path).read_text(encoding="utf-8"))
    assert (value["k_type"], value["units"]["experts.0"], value["units"]["mixer.0"]) == ("q8_0", "numa0", "gpu0")
    assert value["rules"] == {"tool": "ik", "words": value["rules"]["words"], "text": flags}
    assert out_of(capsys, "placement", "export", path, "--to", "ik") == f"{flags}\n"


@pytest.mark.parametrize(
    ("argv", "problem"),
    [
        (("placement", "import", "- match: 3"), "rule 1: match is 3"),
        (("placement", "import", '{"n_gpu_layer": 3, "n_batch": 5}'), "did you mean n_gpu_layers"),
        (("placement", "import", "-ngl 9 -ot '(a+)+=CPU'"), "takes too long to search"),
        (("placement", "import", "-ngl 9", "--from", "ktransformers"), "rules of llama.cpp, not of ktransformers"),
        (("placement", "import", "-ngl lots"), "-ngl 'lots'"),
        (("placement", "import", "-ngl 99", "--tensors"), "needs the model"),
        (("placement", "import", "nowhere.json"), "cannot be read"),
        (("placement", "export", "-ngl 99"), "not a JSON file"),
        (("estimate", MODEL, "--placement", "-ot exps=CUDA0"), "there is no device 'CUDA0'; this machine has CPU"),
        (("estimate", MODEL, "--machine", "nowhere.json"), "cannot be read"),
        (("estimate", MODEL, "-c", "99999999"), "99999999 tokens"),
    ],
)
def test_mistakes_end_in_one_line_and_code_1(capsys: pytest.CaptureFixture[str], argv: tuple[str, ...], problem: str) -> None:
    assert main(argv) == 1
    err = capsys.readouterr().err
    assert problem in err and err.count("\n") == 1


def test_the_object_of_estimate_has_the_promised_keys(capsys: pytest.CaptureFixture[str], machine: str) -> None:
    found = object_of(capsys, "estimate", MODEL, "--ctx", "512", "--machine", machine, "--json")
    owners = ["weights", "derived", "kv", "kept_windows", "state", "workspace", "other"]
    assert [one["id"] for one in found["devices"]] == ["numa0", "gpu0", "gpu1"]
    for one in found["devices"]:
        assert list(one) == ["id", *owners, "used", "capacity", "over", "decode_ms", "name"]
        assert one["used"] == sum(one[owner] for owner in owners)
    assert (found["fits"], found["n_ctx"]) == (True, 512)
    assert 0 < found["decode_tok_s"] < found["bound_tok_s"] and found["prefill_tok_s"] > 0
    assert (found["limit"], found["calibrated"]) == ("gpu0", False)
    assert found["devices"][1]["weights"] > 0 and found["devices"][2]["used"] == 0


def test_estimate_says_what_does_not_fit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "small.json"
    path.write_text('{"ram_gib": 0.0001, "gpus": []}', encoding="utf-8")
    found = object_of(capsys, "estimate", MODEL, "--machine", str(path), "--json")
    assert (found["fits"], found["limit"]) == (False, "numa0") and found["devices"][0]["over"] > 0
    assert "It does not fit" in out_of(capsys, "estimate", MODEL, "--machine", str(path))


def test_a_header_in_front_of_a_hole_is_enough_and_takes_a_second(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], machine: str
) -> None:
    """94 layers of experts as plain arithmetic; CPU time, so that a busy machine changes nothing."""
    path = hollow_mixture(tmp_path / "hollow.gguf")
    assert path.stat().st_blocks * 512 < 64 << 20
    started = time.process_time()
    found = object_of(
        capsys, "estimate", str(path), "--machine", machine, "-c", "32768", "--placement", "-ngl 99 -cmoe", "--json"
    )
    assert time.process_time() - started < 1.0
    memory, *gpus = found["devices"]
    assert 120e9 < memory["weights"] < 140e9 and memory["over"] > 0 and not found["fits"]
    # 94 layers of 4 heads of 128 keys and 128 values in f16, and a block more on each layer for rows that are padding
    assert sum(one["kv"] for one in gpus) == 94 * 2 * 4 * 256 * (32768 + 32)


def test_estimate_imports_no_torch() -> None:
    code = f"import sys; from engine.cli.main import main; main({['estimate', MODEL, '--json']!r}); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"


def test_foreign_flags_are_not_taken_for_ours() -> None:
    words = ["import", "-ot a=CPU", "--model", "M", "-o", "P"]
    assert shielded("placement", words) == ["import", " -ot a=CPU", "--model", "M", "-o", "P"]
    assert shielded("generate", ["M", "--placement", "-ngl 9", "-n", "3"]) == ["M", "--placement=-ngl 9", "-n", "3"]
    assert shielded("generate", ["M", "--prompt", "- a"]) == ["M", "--prompt", "- a"]


TWO = {
    "nodes": [{"name": "EPYC", "ram_gib": 64, "cores": 8, "read_gbps": 100, "count": 2}],
    "gpus": [{"name": "RTX 4090", "memory_gib": 24}],
}


def test_rules_of_others_use_all_nodes_of_memory_wherever_they_are_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    two, made = tmp_path / "two.json", tmp_path / "p.json"
    two.write_text(json.dumps(TWO), encoding="utf-8")
    direct = object_of(capsys, "estimate", MODEL, "--machine", str(two), "--placement", "-ngl 99 -cmoe", "--json")
    used = {one["id"]: one["weights"] for one in direct["devices"]}
    assert used["numa0"] > 0 and used["numa1"] > 0
    assert main(["placement", "import", "-ngl 99 -cmoe", "--model", MODEL, "--machine", str(two), "-o", str(made)]) == 0
    kept = object_of(capsys, "estimate", MODEL, "--machine", str(two), "--placement", str(made), "--json")
    assert kept["devices"] == direct["devices"]
    bound = object_of(
        *(capsys, "estimate", MODEL, "--machine", str(two), "--placement", "numactl -m 1 llama-server -ngl 99 -cmoe", "--json")
    )
    assert {one["id"] for one in bound["devices"] if one["weights"]} == {"numa1", "gpu0"}


def test_what_rules_say_beside_places_counts_where_the_command_line_says_nothing(
    machine: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    config = tmp_path / "config.json"
    config.write_text('{"n_gpu_layers": -1, "ctx_size": 96, "n_threads": 2, "n_batch": 64}', encoding="utf-8")
    taken = object_of(capsys, "estimate", MODEL, "--machine", machine, "--placement", str(config), "--json")
    assert taken["n_ctx"] == 96
    assert main(["estimate", MODEL, "--machine", machine, "--placement", str(config), "-c", "32", "--json"]) == 0
    told = capsys.readouterr()
    assert json.loads(told.out)["n_ctx"] == 32 and "-t 2 -b 64" in told.err and "-c" not in told.err
    rope = "-ngl 9 --rope-freq-base 123 --override-kv x.y=int:1"
    assert main(["estimate", MODEL, "--machine", machine, "--placement", rope, "--override", "rope.freq_base=5"]) == 1
    assert "x.y is no key of this file" in capsys.readouterr().err
