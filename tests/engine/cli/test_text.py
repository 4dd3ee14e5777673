"""`layerdeck tokenize`, `detokenize` and `render`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.cli.main import main
from tests.helpers.gguf_builder import build_gguf, tiny_metadata
from tests.helpers.models import GOLDEN, need_goldens

BPE = str(GOLDEN / "models/llama-gqa-rope3.f16.gguf")
CASES = json.loads((GOLDEN / "tokenizer/tiny-llama-gqa-rope3.cases.json").read_text())["cases"]


def written(path: Path, value: object) -> str:
    path.write_text(json.dumps(value))
    return str(path)


def output(capsys: pytest.CaptureFixture[str], *argv: str) -> dict[str, Any]:
    assert main(argv) == 0
    out, err = capsys.readouterr()
    assert err == ""
    result: dict[str, Any] = json.loads(out)
    return result


def failure(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert main(argv) == 1
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    return err


def test_tokenize_one_and_many(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    many = written(tmp_path / "t.json", [case["text"] for case in CASES])
    assert output(capsys, "tokenize", BPE, "--texts-file", many, "--json")["ids"] == [
        case["ids_add_special_parse_special"] for case in CASES
    ]
    assert output(capsys, "tokenize", BPE, "--texts-file", many, "--no-special", "--no-bos", "--json")["ids"] == [
        case["ids"] for case in CASES
    ]
    (tmp_path / "one.txt").write_bytes(CASES[5]["text"].encode())
    one = output(capsys, "tokenize", BPE, "--text-file", str(tmp_path / "one.txt"), "--no-special", "--no-bos", "--json")
    assert one["ids"] == CASES[5]["ids"]


def test_tokenize_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tokenize", BPE, "--text", "hello", "--no-bos"]) == 0
    assert all(word.isdigit() for word in capsys.readouterr().out.split())


def test_detokenize_one_and_many(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lists = [case["ids_add_special_parse_special"] for case in CASES]
    many = output(capsys, "detokenize", BPE, "--ids-file", written(tmp_path / "l.json", lists), "--json")
    assert many["hex"] == [case["detok_hex"] for case in CASES]
    one = output(capsys, "detokenize", BPE, "--ids-file", written(tmp_path / "i.json", lists[0]), "--json")
    assert one["text"].encode().hex() == one["hex"] == CASES[0]["detok_hex"]
    empty = output(capsys, "detokenize", BPE, "--ids-file", written(tmp_path / "e.json", []), "--json")
    assert empty == {"text": "", "hex": ""}


@pytest.mark.parametrize("content", ["{", "1", '["a"]', "[true]", "[[1], 2]", "{}", '"x"', "[1.5]"])
def test_detokenize_refuses_what_is_no_list_of_ids(tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str) -> None:
    path = tmp_path / "ids.json"
    path.write_text(content)
    assert str(path) in failure(capsys, "detokenize", BPE, "--ids-file", str(path), "--json")


def test_ids_out_of_range_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    err = failure(capsys, "detokenize", BPE, "--ids-file", written(tmp_path / "i.json", [5, 100_000]))
    assert "token 100000 does not exist" in err


def test_text_that_is_no_utf8_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "t.txt"
    path.write_bytes(b"ab\xff")
    assert "byte 2 is not valid UTF-8" in failure(capsys, "tokenize", BPE, "--text-file", str(path))
    assert "cannot be read" in failure(capsys, "tokenize", BPE, "--text-file", str(tmp_path / "absent"))


MESSAGES = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Grüße"}]


def test_render_by_the_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    messages = written(tmp_path / "m.json", MESSAGES)
    assert main(["render", BPE, "--messages", messages]) == 0
    assert capsys.readouterr().out == (
        "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nGrüße<|im_end|>\n<|im_start|>assistant\n"
    )


def test_render_by_a_template_with_a_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    named = {
        "tokenizer.chat_template": "usual",
        "tokenizer.chat_template.tool_use": "tools",
        "tokenizer.chat_template.rag": "rag",
    }
    model = tmp_path / "m.gguf"
    model.write_bytes(build_gguf(tiny_metadata() | named))
    messages = ("--messages", written(tmp_path / "m.json", [{"role": "user", "content": "hi"}]))
    tools = ("--tools", written(tmp_path / "t.json", [{"name": "look"}]))
    for extra, expected in (((), "usual"), (tools, "tools"), (("--template-name", "rag"), "rag")):
        assert output(capsys, "render", str(model), *messages, *extra, "--json") == {"text": expected}
    assert main(["render", str(model), *messages, "--template-name", "x"]) == 1
    assert "there is no template named x; named ones: tool_use, rag" in capsys.readouterr().err


def test_render_with_variables_tools_and_special_tokens(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    metadata = tiny_metadata() | {
        "tokenizer.chat_template": "{{ eos_token }}|{{ think }}|{{ tools|tojson }}|{{ add_generation_prompt }}"
    }
    model = tmp_path / "m.gguf"
    model.write_bytes(build_gguf(metadata))
    arguments = ["--messages", written(tmp_path / "m.json", MESSAGES), "--tools", written(tmp_path / "t.json", [{"name": "f"}])]
    result = output(capsys, "render", str(model), *arguments, "--var", "think=false", "--no-generation-prompt", "--json")
    assert result == {"text": '<|im_end|>|False|[{"name": "f"}]|False'}


def test_render_cases_gives_a_result_or_an_error_for_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    template = tmp_path / "t.jinja"
    template.write_text("{% if not messages %}{{ raise_exception('empty') }}{% endif %}{{ messages[0].content }} {{ bos_token }}")
    cases = [{"messages": MESSAGES, "bos_token": "<s>", "add_generation_prompt": True}, {"messages": []}, {"messages": 3}]
    results = output(capsys, "render", "--template", str(template), "--cases", written(tmp_path / "c.json", cases), "--json")[
        "results"
    ]
    assert results[0] == {"text": "Be kind. <s>"}
    assert "empty" in results[1]["error"] and "error" in results[2]


def test_render_of_the_goldens(capsys: pytest.CaptureFixture[str]) -> None:
    folder = need_goldens("chat")
    name = "Qwen3.5-4B"
    cases = folder / f"{name}.cases.json"
    results = output(capsys, "render", "--template", str(folder / f"{name}.jinja"), "--cases", str(cases), "--json")["results"]
    for case, result in zip(json.loads(cases.read_text()), results, strict=True):
        assert result.get("text") == case.get("expected")


@pytest.mark.parametrize("var", ["x", "x=y", "1x=1", "_x=1", "=1"])
def test_render_refuses_malformed_variables(tmp_path: Path, capsys: pytest.CaptureFixture[str], var: str) -> None:
    assert var in failure(capsys, "render", BPE, "--messages", written(tmp_path / "m.json", MESSAGES), "--var", var)


def test_render_needs_a_template(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "needs a model or a template" in failure(capsys, "render", "--messages", written(tmp_path / "m.json", MESSAGES))
