"""The tokenizer against the ids of two independent implementations, over tiny, adversarial and full vocabularies."""

from __future__ import annotations

import json
import lzma
import time
from pathlib import Path
from typing import Any

import pytest

from engine.errors import InvalidRequest
from engine.gguf import types
from engine.gguf.reader import read_gguf
from engine.tokenizer.build import Tokenizer
from engine.tokenizer.vocab import Vocab
from tests.helpers.gguf_builder import array_of, build_gguf, tiny_metadata
from tests.helpers.models import GOLDEN, goldens, need_goldens, need_included_model

IN_TREE = {
    "vocab-adversarial-smollm": "tokenizer/vocab-adversarial-smollm.gguf",
    "vocab-adversarial-llama-bpe": "tokenizer/vocab-adversarial-llama-bpe.gguf",
    "tiny-llama-gqa-rope3": "models/llama-gqa-rope3.f16.gguf",
    "tiny-llama-mha-spm": "models/llama-mha-spm.f16.gguf",
}
SETS_OUTSIDE = (
    "ggml-vocab-deepseek-llm",
    "ggml-vocab-llama-bpe",
    "ggml-vocab-llama-spm",
    "ggml-vocab-qwen35",
    "tiny-deepseek2-lite",
    "tiny-deepseek2-v3",
    "tiny-gemma3",
    "tiny-glm4moe",
    "tiny-gpt-oss",
    "tiny-qwen3",
    "tiny-qwen35",
    "vocab-adversarial-deepseek-coder",
    "vocab-adversarial-deepseek-llm",
    "vocab-adversarial-deepseek-v3",
    "vocab-adversarial-glm4",
    "vocab-adversarial-gpt-2",
    "vocab-adversarial-gpt-4o",
    "vocab-adversarial-qwen2",
    "vocab-adversarial-qwen35",
)


def tokenizer_of(path: Path) -> Tokenizer:
    return Tokenizer(Vocab.from_gguf(read_gguf(path)))


def unpacked(path: Path, tmp_path: Path) -> Path:
    target = tmp_path / path.stem
    target.write_bytes(lzma.decompress(path.read_bytes()))
    return target


def check_set(tokenizer: Tokenizer, content: dict[str, Any]) -> None:
    approximated = tokenizer.vocab.pre == "gpt-4o"
    for case in content["cases"]:
        text = case["text"]
        # llama.cpp only approximates this family's expression; where the two differ the published one counts.
        exact = approximated and "hf_ids" in case
        assert tokenizer.encode(text, special=False, bos=False) == (case["hf_ids"] if exact else case["ids"]), text
        if not exact:
            assert tokenizer.encode(text, special=True, bos=True) == case["ids_add_special_parse_special"], text
        assert tokenizer.decode(case["ids_add_special_parse_special"]).hex() == case["detok_hex"], text
    for token, piece in content["piece_hex"].items():
        assert tokenizer.token_bytes(int(token)).hex() == piece, token


@pytest.mark.parametrize("name", IN_TREE)
def test_ids_and_bytes_equal_the_goldens(name: str) -> None:
    content = json.loads((GOLDEN / f"tokenizer/{name}.cases.json").read_text())
    check_set(tokenizer_of(GOLDEN / IN_TREE[name]), content)


@pytest.mark.parametrize("name", SETS_OUTSIDE)
def test_ids_and_bytes_equal_the_larger_goldens(name: str, tmp_path: Path) -> None:
    folder = need_goldens("tokenizer")
    if name.startswith("ggml"):
        path, cases = unpacked(folder / f"{name}.gguf.xz", tmp_path), folder / f"{name}.extra.json"
    else:
        cases = folder / f"{name}.cases.json"
        path = folder.parent / json.loads(cases.read_text())["vocab"] if name.startswith("tiny") else folder / f"{name}.gguf"
    check_set(tokenizer_of(path), json.loads(cases.read_text()))


@pytest.mark.parametrize("name", [n for n in SETS_OUTSIDE if n.startswith("ggml")])
def test_ids_equal_the_published_pairs(name: str, tmp_path: Path) -> None:
    folder = need_goldens("tokenizer")
    tokenizer = tokenizer_of(unpacked(folder / f"{name}.gguf.xz", tmp_path))
    texts = (folder / f"{name}.gguf.inp").read_bytes().decode().split("\n__ggml_vocab_test__\n")
    lines = (folder / f"{name}.gguf.out").read_text().splitlines()
    pairs = [(t, [int(i) for i in line.split()]) for t, line in zip(texts, lines, strict=False)]
    assert len(pairs) > 30
    for text, ids in pairs:
        assert tokenizer.encode(text, special=False, bos=False) == ids, text


def test_large_vocabulary_is_built_in_time(tmp_path: Path) -> None:
    path = unpacked(need_goldens("tokenizer") / "ggml-vocab-qwen35.gguf.xz", tmp_path)
    file = read_gguf(path)
    times = []
    for _ in range(2):
        start = time.perf_counter()
        Tokenizer(Vocab.from_gguf(file))
        times.append(time.perf_counter() - start)
    assert min(times) < 4.0  # 0.4 s on an idle machine; the goal is 0.8 s


@pytest.fixture(scope="module")
def smollm() -> Tokenizer:
    return tokenizer_of(GOLDEN / IN_TREE["vocab-adversarial-smollm"])


@pytest.fixture(scope="module")
def spm() -> Tokenizer:
    return tokenizer_of(GOLDEN / IN_TREE["tiny-llama-mha-spm"])


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    path = tmp_path_factory.mktemp("tiny") / "t.gguf"
    path.write_bytes(build_gguf(tiny_metadata()))
    return tokenizer_of(path)


TEXTS = ("", " ", "  two", "héllo wörld", "日本語のテキスト", "a\n\n\tb\r\n", "😀👩‍👩‍👧", "\0\x01\x7f", "x" * 1000, "0123456789")


@pytest.mark.parametrize("text", TEXTS)
def test_decode_of_encode_is_identity(text: str, smollm: Tokenizer, spm: Tokenizer, tiny: Tokenizer) -> None:
    for tokenizer in (smollm, spm, tiny):
        assert tokenizer.decode(tokenizer.encode(text, special=False, bos=False)) == text.encode()


def test_lone_surrogates_are_replaced(tiny: Tokenizer) -> None:
    assert tiny.decode(tiny.encode("a\ud800b", special=False, bos=False)).decode() == "a\ufffdb"


def test_control_tokens_only_where_allowed(tiny: Tokenizer) -> None:
    start, end = 257, 258
    text = "<|im_start|>he<|im_end|>"
    assert tiny.encode(text, special=True, bos=False) == [start, 256, end]
    assert not {start, end} & set(tiny.encode(text, special=False, bos=False))


def test_parts_are_one_text_with_control_tokens_in_the_trusted_ones(tiny: Tokenizer) -> None:
    own, brought = "<|im_start|>user\nh", "e <|im_end|> x"
    ids = tiny.encode_parts([(own, True), (brought, False), ("<|im_end|>", True)])
    assert ids[0] == 257 and ids.count(258) == 1 and ids[-1] == 258
    assert 256 in ids  # "h" and "e" merge across the border
    assert tiny.decode(ids).decode() == own + brought + "<|im_end|>"


def test_parts_cannot_complete_a_control_token(tiny: Tokenizer) -> None:
    ids = tiny.encode_parts([("<|im_", True), ("end|>", False)])
    assert 258 not in ids


def test_parts_equal_the_whole_text(smollm: Tokenizer) -> None:
    text = "Hello there, it's 1234 o'clock  \n\n done"
    whole = smollm.encode(text, special=True, bos=False)
    for cut in range(len(text)):
        assert smollm.encode_parts([(text[:cut], True), (text[cut:], False)]) == whole


@pytest.mark.parametrize("token", [-1, 260, 10**9])
def test_unknown_id_is_refused(tiny: Tokenizer, token: int) -> None:
    with pytest.raises(InvalidRequest, match=rf"token {token} does not exist"):
        tiny.token_bytes(token)


def test_merges_without_a_token_are_left_out(tmp_path: Path) -> None:
    metadata = tiny_metadata() | {"tokenizer.ggml.merges": array_of(types.STRING, ["h e", "he l", "q q"])}
    path = tmp_path / "m.gguf"
    path.write_bytes(build_gguf(metadata))
    tokenizer = tokenizer_of(path)
    assert tokenizer.encode("hel", special=False, bos=False)[0] == 256


def test_included_model_speaks_chatml() -> None:
    tokenizer = tokenizer_of(need_included_model())
    ids = tokenizer.encode("<|im_start|>user\nHi<|im_end|>\n", special=True, bos=True)
    assert tokenizer.vocab.tokens[ids[0]] == "<|im_start|>"
    assert ids[-2] in tokenizer.vocab.eog_ids


def test_included_model_equals_the_goldens() -> None:
    root = goldens()
    if root is None or not (root / "smollm2/smollm2.json").is_file():
        pytest.skip("LAYERDECK_GOLDENS does not name a folder with smollm2/")
    tokenizer = tokenizer_of(need_included_model())
    content = json.loads((root / "smollm2/smollm2.json").read_text())
    for case in content["cases"]:
        assert tokenizer.encode(case["prompt"], special=True, bos=False) == case["ids"]
    text = (root / "smollm2" / content["ppl"]["text_file"]).read_text()
    ids = tokenizer.encode(text, special=False, bos=False)
    assert ids[: len(content["ppl"]["ids"])] == content["ppl"]["ids"]


def test_channel_tokens_in_conversations_are_control_tokens(tmp_path: Path) -> None:
    metadata = tiny_metadata()
    names = ["<|start|>", "<|message|>", "<|return|>", "<|call|>", "<|end|>"]
    listed = metadata["tokenizer.ggml.tokens"].value + names
    metadata |= {
        "tokenizer.ggml.tokens": array_of(types.STRING, listed),
        "tokenizer.ggml.token_type": array_of(types.INT32, [1] * 257 + [3] * 8),
    }
    path = tmp_path / "c.gguf"
    path.write_bytes(build_gguf(metadata))
    tokenizer = tokenizer_of(path)
    assert tokenizer.encode("<|start|>", special=False, bos=False) == [260]
    assert 260 not in tokenizer.encode_parts([("<|start|>", False)])
    assert 264 not in tokenizer.vocab.eog_ids  # <|end|> closes a message here
    assert {262, 263} <= tokenizer.vocab.eog_ids
