"""Malformed files: whatever the damage, the reader answers with a sentence, soon, and keeps its memory small."""

from __future__ import annotations

import math
import random
import struct
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.errors import GgufError
from engine.gguf import types
from engine.gguf.reader import read_gguf
from engine.tokenizer.rules import check_tokenizer
from engine.tokenizer.template_rules import check_template
from tests.helpers.gguf_builder import Typed, array_of, assemble, build_gguf, pair, string, tensor_record, tiny_llama

HUGE = (2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**61, 2**62 + 1, 2**63 - 1, 2**63, 2**64 - 32, 2**64 - 1)
HEAD = [pair("general.architecture", "llama")]
DATA = bytes(4096)


def file_of(*pairs: bytes, records: list[bytes] | None = None, data: bytes = DATA) -> bytes:
    return assemble([*HEAD, *pairs], records if records is not None else [tensor_record("t", (32,), 0, 0)], data)


def header(version: int = 3, n_tensors: int = 0, n_pairs: int = 1, magic: bytes = b"GGUF") -> bytes:
    return magic + struct.pack("<IQQ", version, n_tensors, n_pairs) + HEAD[0] + DATA


def raw_array(item_type: int, n_items: int, body: bytes = b"") -> bytes:
    return string("a") + struct.pack("<IIQ", types.ARRAY, item_type, n_items) + body


def meta(**values: object) -> bytes:
    return file_of(*(pair(key.replace("__", "."), value) for key, value in values.items()))


def tensor(shape: tuple[int, ...] = (32,), type_id: int = 0, offset: int = 0, name: str | bytes = "t") -> bytes:
    return file_of(records=[tensor_record(name, shape, type_id, offset)])


def tokens(*texts: str, **extra: object) -> bytes:
    values = {"tokens": array_of(types.STRING, texts), **extra}
    return file_of(*(pair(f"tokenizer.ggml.{key}", value) for key, value in values.items()))


def template(text: str) -> bytes:
    return file_of(pair("tokenizer.chat_template", text))


def cases() -> dict[str, bytes]:
    whole = build_gguf({"general.architecture": "llama", "list": ["a", "b"]}, [("t", (32, 32), 0, bytes(4096))])
    result = {
        "empty": b"",
        "magic only": b"GGUF",
        "another magic": header(magic=b"GGML"),
        **{f"version {v}": header(version=v) for v in (0, 1, 4, 2**32 - 1)},
        "big-endian": header(version=0x03000000),
        "array in array": file_of(raw_array(types.ARRAY, 1, struct.pack("<IQ", types.ARRAY, 1) * 50000)),
        **{f"value type {t}": file_of(string("x") + struct.pack("<I", t) + bytes(16)) for t in (13, 255, 2**32 - 1)},
        **{f"item type {t}": file_of(raw_array(t, 1, bytes(16))) for t in (13, 255, 2**32 - 1)},
        "boolean of 2": file_of(string("x") + struct.pack("<IB", types.BOOL, 2)),
        "boolean array with 3": file_of(raw_array(types.BOOL, 2, b"\1\3")),
        "empty key": file_of(pair("", 1)),
        "key with zero byte": file_of(pair("a\0b", 1)),
        "key of broken UTF-8": file_of(pair(b"\xff\xfe", 1)),
        "value of broken UTF-8": file_of(pair("x", b"\xc3(")),
        "array of broken UTF-8": file_of(raw_array(types.STRING, 2, string(b"ok") + string(b"\xc3"))),
        "character parted by an array border": file_of(raw_array(types.STRING, 2, string(b"\xc3") + string(b"\xa9"))),
        "doubled key": file_of(pair("k", 1), pair("k", "x")),
        "doubled tensor": file_of(records=[tensor_record("t", (32,), 0, 0), tensor_record("t", (32,), 0, 128)]),
        "no architecture": assemble([], [], DATA),
        **{f"alignment {a}": meta(general__alignment=a) for a in (0, 1, 3, 4, 31, 33, 8192, 2**31)},
        **{f"alignment as {v!r}": meta(general__alignment=v) for v in ("32", 32.0, True, Typed(types.UINT64, 32))},
        "no dimensions": tensor(()),
        "five dimensions": tensor((2, 2, 2, 2, 2)),
        "a million dimensions": file_of(records=[string("t") + struct.pack("<I", 10**6)]),
        "dimension 0": tensor((32, 0)),
        "product that wraps": tensor((2**42 + 32, 2**22), 8),
        "rows of no whole blocks": tensor((100, 2), 12),
        **{f"tensor type {t}": tensor(type_id=t) for t in (4, 5, 31, 33, 36, 42, 255, 2**31, 2**32 - 1)},
        "offset off the alignment": tensor(offset=7),
        "overlapping data": file_of(records=[tensor_record("a", (32, 16), 0, 0), tensor_record("b", (32,), 0, 32)]),
        "data past the end": tensor((4096, 4096)),
        "data cut short": whole[:-4000],
        "long name": tensor(name="t" * 65),
        "very long name": tensor(name="t" * 65536),
        "empty name": tensor(name=""),
        "name with zero byte": tensor(name="a\0b"),
        "name of broken UTF-8": tensor(name=b"\xff\xfe"),
        "name like a path": tensor(name="../../etc/passwd"),
        "name of Windows": tensor(name="a\\b"),
        "architecture like a path": assemble([pair("general.architecture", "../../x")], [], DATA),
        "architecture as number": assemble([pair("general.architecture", 7)], [], DATA),
        "name as number": meta(general__name=7),
        "shard without its name": meta(split__count=Typed(types.UINT16, 65535), split__no=Typed(types.UINT16, 0)),
        "shard out of range": meta(split__count=Typed(types.UINT16, 2), split__no=Typed(types.UINT16, 2)),
        "layers beyond reason": meta(llama__block_count=10**9),
        "no layers": meta(llama__block_count=0),
        "layers as text": meta(llama__block_count="2"),
        "no heads": meta(llama__attention__head_count=0),
        "more experts used than there are": meta(llama__expert_count=4, llama__expert_used_count=400),
        "context beyond reason": meta(llama__context_length=2**32 - 1),
        **{f"epsilon {v}": meta(llama__attention__layer_norm_rms_epsilon=v) for v in (math.nan, math.inf, -1.0, 0.0)},
        "rope base of no number": meta(llama__rope__freq_base=math.nan),
        "scores as bytes": tokens("a", "b", scores=array_of(types.UINT8, [1, 2])),
        "too few scores": tokens("a", "b", scores=array_of(types.FLOAT32, [1.0])),
        "too many types": tokens("a", token_type=array_of(types.INT32, [1, 1])),
        "type out of range": tokens("a", token_type=array_of(types.INT32, [99])),
        "tokens as numbers": meta(tokenizer__ggml__tokens=array_of(types.UINT32, [1, 2])),
        "first token out of range": tokens("a", bos_token_id=1),
        "first token without tokens": meta(tokenizer__ggml__bos_token_id=2**31),
        "last token as text": tokens("a", eos_token_id="a"),
        **{f"merge {m!r}": tokens("a", merges=array_of(types.STRING, [m])) for m in ("nospace", "", " ", "a ", " a", "  ")},
        "byte token of no byte": tokens("<0x-1>", model="plamo2"),
        "template that reaches inside": template("{{ lipsum.__globals__['os'].popen('id').read() }}"),
        "template that reaches by name": template("{{ x['__class__'] }}"),
        "template that reaches by filter": template("{{ x|attr('__class__') }}"),
        "template that loops long": template("{% for i in range(10000000) %}x{% endfor %}"),
        "template that raises to a power": template("{% for i in range(10**9) %}x{% endfor %}"),
        "template that multiplies": template("{{ 'A' * 10000000000 }}"),
        "template that nests": template("{% if 1 %}" * 5000),
        "template that nests brackets": template("{{ " + "(" * 5000 + " }}"),
        "template that includes": template("{% include '/etc/passwd' %}"),
        "template without end": template("x" * 300_000),
        "named template that reaches inside": meta(tokenizer__chat_template__x="{{ x.__class__ }}"),
        "template as number": meta(tokenizer__chat_template=1),
    }
    for n in HUGE:
        result |= {
            f"{n} keys": header(n_pairs=n),
            f"{n} tensors": header(n_tensors=n),
            f"key of {n} bytes": b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", n) + DATA,
            f"array of {n} numbers": file_of(raw_array(types.UINT32, n)),
            f"array of {n} strings": file_of(raw_array(types.STRING, n)),
            f"string of {n} bytes in an array": file_of(raw_array(types.STRING, 2, string("a") + struct.pack("<Q", n))),
            f"offset {n}": tensor(offset=n),
        }
        result |= {f"dimension {i} of {n}": tensor((n, *[2] * i)) for i in range(4)}
    for n in range(0, whole.index(b"t\2\0\0\0") + 20, 5):
        result[f"cut after {n}"] = whole[:n]
    return result


CASES = cases()


def check(path: Path) -> None:
    """What `inspect` refuses."""
    file = read_gguf(path)
    check_tokenizer(file)
    check_template(file)


def timed(action: Callable[[], None]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


@pytest.mark.parametrize("name", CASES)
def test_damage_is_answered_with_a_sentence(tmp_path: Path, name: str) -> None:
    path = tmp_path / "case.gguf"
    path.write_bytes(CASES[name])
    with pytest.raises(GgufError) as caught:
        check(path)
    message = str(caught.value)
    assert " at byte " in message and "; " in message and "\n" not in message


def mutants(n: int, seed: int) -> list[bytes]:
    rng = random.Random(seed)
    base = tiny_llama(n_layers=1)
    n_header = base.index(b"blk.0.ffn_down.weight") + 60
    result = []
    for _ in range(n):
        data = bytearray(base)
        for _ in range(rng.randint(1, 6)):
            at = rng.randrange(n_header)
            match rng.randrange(4):
                case 0:
                    data[at] = rng.randrange(256)
                case 1:
                    data[at] ^= 1 << rng.randrange(8)
                case 2:
                    data[at : at + 8] = struct.pack("<Q", rng.choice(HUGE))
                case _:
                    del data[at : at + rng.randint(1, 16)]
        result.append(bytes(data))
    return result


def survive(tmp_path: Path, n: int, seed: int) -> int:
    """How many of n mutants were accepted; none may raise anything but GgufError or take long."""
    path, accepted = tmp_path / "mutant.gguf", 0
    for data in mutants(n, seed):
        path.write_bytes(data)

        def attempt() -> None:
            nonlocal accepted
            try:
                check(path)
                accepted += 1
            except GgufError:
                pass

        assert timed(attempt) < 2.0
    return accepted


def test_mutants_do_no_harm(tmp_path: Path) -> None:
    assert survive(tmp_path, 300, seed=1) < 150


@pytest.mark.slow
def test_many_mutants_do_no_harm(tmp_path: Path) -> None:
    assert survive(tmp_path, 2000, seed=2) < 1000


def test_hostile_headers_take_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "case.gguf"
    tracemalloc.start()
    try:
        for name in (n for n in CASES if "2147483647" in n or "18446744073709551615" in n):
            path.write_bytes(CASES[name])
            with pytest.raises(GgufError):
                check(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 32 << 20


def test_undamaged_model_passes(tmp_path: Path) -> None:
    path = tmp_path / "ok.gguf"
    path.write_bytes(tiny_llama())
    check(path)
