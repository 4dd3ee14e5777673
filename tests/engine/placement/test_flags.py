"""Flags of llama.cpp as rules: what is read, what is refused, and in which order rules count."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import PlacementError
from engine.hardware.gpus import GpuInfo
from engine.placement.flags import Override, parse_flags, to_text
from engine.placement.patterns import compile_pattern, compile_python
from engine.placement.rules import layer_devices, tensor_map
from tests.helpers.tensor_names import deepseek, mixture

TWO = [GpuInfo(0, "big", 24 << 30, 24 << 30), GpuInfo(1, "small", 12 << 30, 12 << 30)]
EXPERTS = "blk.7.ffn_up_exps.weight"


def place(flags: str, name: str = EXPERTS, gpus: list[GpuInfo] = TWO) -> str:
    return tensor_map(parse_flags(flags), mixture(48), 48, gpus)[name]


def test_the_last_layers_go_first_and_the_output_counts_as_one() -> None:
    flags = parse_flags("-ngl 3")
    assert layer_devices(flags, 8, TWO[:1]) == ("CPU",) * 6 + ("CUDA0",) * 3
    assert layer_devices(parse_flags("-ngl 1"), 8, TWO[:1]) == ("CPU",) * 8 + ("CUDA0",)
    for text in ("-ngl 9", "-ngl 999", "-ngl all", "-ngl -1", ""):
        assert set(layer_devices(parse_flags(text), 8, TWO[:1])) == {"CUDA0"}
    assert set(layer_devices(parse_flags("--n_gpu_layers 0"), 8, TWO[:1])) == {"CPU"}
    assert set(layer_devices(parse_flags("-ngl 99"), 8, ())) == {"CPU"}


def test_shares_default_to_free_memory_and_the_last_flag_counts() -> None:
    assert layer_devices(parse_flags("-ngl 99"), 8, TWO) == ("CUDA0",) * 6 + ("CUDA1",) * 3
    assert layer_devices(parse_flags("-ngl 99 -ts 1/2"), 8, TWO) == ("CUDA0",) * 3 + ("CUDA1",) * 6
    assert layer_devices(parse_flags("-ts 1,2 -ngl 99 -ts 0,5"), 8, TWO) == ("CUDA1",) * 9
    assert layer_devices(parse_flags("-ngl 99 -ts 0,0,7"), 8, TWO) == ("CUDA0",) * 6 + ("CUDA1",) * 3


def test_single_gpus_and_chosen_gpus() -> None:
    assert set(layer_devices(parse_flags("-ngl 99 -sm none"), 8, TWO)) == {"CUDA0"}
    assert set(layer_devices(parse_flags("-ngl 99 -sm none -mg 1"), 8, TWO)) == {"CUDA1"}
    assert set(layer_devices(parse_flags("-ngl 99 -sm none -mg -1"), 8, TWO)) == {"CPU"}
    assert set(layer_devices(parse_flags("-ngl 99 -dev none"), 8, TWO)) == {"CPU"}
    assert layer_devices(parse_flags("-ngl 99 -dev CUDA1,CUDA0 -ts 1,2"), 8, TWO) == ("CUDA1",) * 3 + ("CUDA0",) * 6
    with pytest.raises(PlacementError, match=r"-mg 2.*CUDA0, CUDA1"):
        layer_devices(parse_flags("-ngl 99 -sm none -mg 2"), 8, TWO)
    with pytest.raises(PlacementError, match=r"'CUDA4'.*CPU, CUDA0, CUDA1"):
        layer_devices(parse_flags("-dev CUDA4"), 8, TWO)


def test_the_first_rule_that_matches_counts_whatever_flag_it_comes_from() -> None:
    assert place("-ngl 99 -cmoe") == "CPU"
    assert place("-ngl 99 -ot exps=CUDA1 -cmoe") == "CUDA1"
    assert place("-ngl 99 --cpu-moe --override-tensor exps=CUDA1") == "CPU"
    assert place("-ngl 99 -ncmoe 7") == "CUDA0"
    assert place("-ngl 99 -ncmoe 8") == "CPU"
    assert place("-ngl 99 -ncmoe 8", "blk.70.ffn_up_exps.weight".replace("70", "17")) == "CUDA0"
    assert place("-ngl 99 -ncmoe 8 -ot blk.7.=CUDA1") == "CPU"
    assert place("-ngl 99 -ot blk.7.=CUDA1 -ncmoe 8") == "CUDA1"
    assert place("-ngl 0 -ot exps=CUDA1") == "CUDA1"


def test_dense_layers_have_a_flag_of_their_own() -> None:
    found = tensor_map(parse_flags("-ngl 99 -ncffn 2"), deepseek(), 61, TWO)
    assert [found[f"blk.{i}.ffn_down.weight"] for i in range(3)] == ["CPU", "CPU", "CUDA0"]
    assert found["blk.1.attn_output.weight"] == "CUDA0"


def test_a_command_line_is_read_as_a_shell_reads_it() -> None:
    flags = parse_flags(
        "CUDA_VISIBLE_DEVICES=0,1 ./llama-server \\\n -m 'my model.gguf' -n -1 \\\n -ot \"blk\\.1\\.=CPU\" --jinja -ngl 99"
    )
    assert flags.overrides == (Override(r"blk\.1\.", "CPU"),)
    assert flags.words == ("-m", "my model.gguf", "-n", "-1", "-ot", r"blk\.1\.=CPU", "-ngl", "99")
    assert flags.ignored == ("--jinja",)
    assert flags.settings.model_path == "my model.gguf"
    assert parse_flags(to_text(flags.words)).overrides == parse_flags(r"-ot 'blk\.1\.=CPU' -ngl 99").overrides


def test_a_comma_ends_a_pattern_and_blanks_belong_to_it() -> None:
    flags = parse_flags('-ot "ffn_down_exps=CPU, ffn_up_exps=CPU"')
    assert [rule.pattern for rule in flags.overrides] == ["ffn_down_exps", " ffn_up_exps"]
    assert place('-ngl 99 -ot "ffn_down_exps=CPU, ffn_up_exps=CPU"') == "CUDA0"


def test_what_has_no_meaning_here_is_said() -> None:
    flags = parse_flags("-ngl auto -sm row --rpc 10.0.0.1:50052 -otd exps=CPU -nkvo")
    assert [one.split(":")[0] for one in flags.unsupported] == [
        "-ngl auto",
        "-sm row",
        "--rpc 10.0.0.1",
        "-otd exps=CPU",
    ]
    assert not flags.kv_offload
    assert flags.words[-1] == "-nkvo" and "--rpc" in flags.words


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("-ngl many", "-ngl 'many'"),
        ("-ngl", "has no value"),
        ("-ot exps", "not PATTERN=DEVICE"),
        ("-ot exps=CPU,", "not PATTERN=DEVICE"),
        ("-ot 'a{1,2}=CPU'", "not PATTERN=DEVICE"),
        ("-ot '(=CPU'", "no regular expression"),
        ("-ot '(?<=x)y=CPU'", "no regular expression|not understood|not PATTERN"),
        ("-ot '(?i)exps=CPU'", "ECMAScript"),
        ("-ot 'a*+=CPU'", "possessive"),
        ("-ot '[a=CPU'", "not closed"),
        ("-ot '(.*)*x$=CPU'", "repeat of what repeats"),
        ("-ot '((a|b+)c)+x=CPU'", "repeat of what repeats"),
        ("-ot '.*a.*b.*c.*d.*e=CPU'", "more than 4 repeats"),
        ("-ot '[a--b]=CPU'", "two dashes"),
        ("-ot '(.|..)(.|..)(.|..)(.|..)(.|..)(.|..)(.|..)(.|..)(.|..)x=CPU'", "more than 8 groups of alternatives"),
        ("-ot '(a?){20}=CPU'", "repeat of what repeats"),
        ("-ot '.?.?.?.?.?.?.?.?.?x=CPU'", "more than 8 optional parts"),
        ("-ts 1,x", "shares"),
        ("-ts 1,-2", "shares"),
        ("-ncmoe -3", "negative"),
        ("-sm diagonal", "none, layer, row"),
        ("-ot 'exps=CPU", "quotation"),
    ],
)
def test_nonsense_is_refused_in_a_sentence(text: str, problem: str) -> None:
    with pytest.raises(PlacementError, match=problem):
        parse_flags(text)


def test_a_device_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(PlacementError, match=r"'CUDA2'.*this machine has CPU, CUDA0, CUDA1"):
        place("-ot exps=CUDA2")
    with pytest.raises(PlacementError, match=r"'cpu'.*this machine has CPU"):
        place("-ot exps=cpu", gpus=[])


@pytest.mark.parametrize(
    ("pattern", "name", "found"),
    [
        (r"blk\.[[:digit:]]+\.ffn", "blk.12.ffn_up.weight", True),
        (r"^blk\.[^0-3]\.", "blk.7.ffn_up.weight", True),
        (r"blk.*[02468].ffn", "blk.11.ffn_up.weight", False),
        (r"blk\.(?:[x]|[5-9][0-9])\.", "blk.51.ffn_up.weight", True),
        (r"ffn_(?!gate)", "blk.1.ffn_gate.weight", False),
        (r"a\/b|weight$", "blk.1.ffn_gate.weight", True),
        (r"[a[b]", "x[y", True),
        (r"\_norm", "output_norm.weight", True),
    ],
)
def test_patterns_are_those_of_ecmascript(pattern: str, name: str, found: bool) -> None:
    assert (compile_pattern(pattern).search(name) is not None) is found


@pytest.mark.parametrize("pattern", ["[[a]", "[a&&b]", "[a||b]", r"[\[b]", "[]b]"])
def test_sets_of_characters_are_plain(pattern: str) -> None:
    assert compile_python(pattern).search("xbx" if "b" in pattern else "xax") is not None


def test_alternatives_are_counted_by_themselves() -> None:
    layers = "|".join(rf"blk\.{i}\..*(up|down)_exps" for i in range(20))
    assert compile_pattern(layers).search("blk.19.ffn_up_exps.weight") is not None
    assert compile_pattern(layers).search("blk.20.ffn_up_exps.weight") is None


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from([r"\.1\.", "ffn", "exps", "attn", "up", "blk", "zzz", r"\d+\.ffn_(up|gate)"]), st.booleans()),
        max_size=6,
    )
)
def test_of_any_list_the_first_match_wins(rules: list[tuple[str, bool]]) -> None:
    text = " ".join(f"-ot '{pattern}={'CUDA1' if on_gpu else 'CPU'}'" for pattern, on_gpu in rules)
    names = mixture(3)
    found = tensor_map(parse_flags(f"-ngl 99 -sm none {text}"), names, 3, TWO)
    for name in names:
        first = next((on_gpu for pattern, on_gpu in rules if re.search(pattern, name)), None)
        plain = "CPU" if name == "token_embd.weight" else "CUDA0"
        assert found[name] == (plain if first is None else "CUDA1" if first else "CPU")


@settings(deadline=None)
@given(st.integers(0, 130), st.integers(1, 100), st.lists(st.integers(0, 97), min_size=1, max_size=6).filter(any))
def test_layers_are_cut_in_order_by_their_shares(n_gpu: int, n_layers: int, shares: list[int]) -> None:
    gpus = [GpuInfo(i, "card", 8 << 30, 8 << 30) for i in range(len(shares))]
    found = layer_devices(parse_flags(f"-ngl {n_gpu} -ts {','.join(map(str, shares))}"), n_layers, gpus)
    on_gpus = [int(name.removeprefix("CUDA")) for name in found if name != "CPU"]
    assert len(found) == n_layers + 1
    assert len(on_gpus) == min(n_gpu, n_layers + 1)
    assert found[: len(found) - len(on_gpus)] == ("CPU",) * (len(found) - len(on_gpus))
    assert on_gpus == sorted(on_gpus)
    for i, share in enumerate(shares):
        assert abs(on_gpus.count(i) - len(on_gpus) * share / sum(shares)) <= 1
        assert share or i not in on_gpus
