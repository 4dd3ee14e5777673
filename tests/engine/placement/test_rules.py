"""Rules of llama.cpp and placement files, resolved for real models to places of our units."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.arch.units import UnitId
from engine.errors import PlacementError
from engine.hardware.gpus import GpuInfo
from engine.placement.file import Rules, from_json, rules_of, to_json
from engine.placement.flags import parse_flags
from engine.placement.options import LoadOptions
from engine.placement.placement import Device, Gpu, Numa, Placement, units_of
from engine.placement.resolution import Resolution
from engine.placement.rules import resolve
from engine.placement.source import resolve_source
from engine.placement.tensors import tensor_uses
from tests.helpers.described import Described, model
from tests.helpers.golden_models import MODELS

GPUS = [GpuInfo(i, "card", 24 << 30, 24 << 30) for i in range(2)]
OPTIONS = LoadOptions(n_threads=2)


def resolved(name: str, flags: str, gpus: list[GpuInfo] = GPUS) -> Resolution:
    one = model(name)
    return resolve(parse_flags(flags), one.spec, one.graph, one.file, gpus, OPTIONS)


def places(found: Resolution, kind: str) -> dict[int, str]:
    return {unit.layer: str(device) for unit, device in found.placement.units if unit.kind == kind}


@pytest.mark.parametrize("name", MODELS)
def test_every_tensor_of_the_file_belongs_to_a_unit_and_gets_a_place(name: str) -> None:
    one = model(name)
    used = {use.name for use in tensor_uses(one.graph)}
    assert used <= set(one.file.tensors)
    found = resolved(name, "-ngl 99 -ts 1,1 -ot exps=CPU")
    assert set(found.tensors) == set(one.file.tensors)
    assert [unit for unit, _ in found.placement.units] == list(units_of(one.spec))
    assert set(places(found, "experts").values()) <= {"numa0"}
    assert {device for kind in ("mixer", "ffn", "head") for device in places(found, kind).values()} == {"gpu0", "gpu1"}
    assert found.differences == ()


def test_experts_are_moved_by_themselves() -> None:
    found = resolved("qwen3moe", "-ngl 99 -ncmoe 1", GPUS[:1])
    n = len(places(found, "experts"))
    assert places(found, "experts") == {i: "numa0" if i == 0 else "gpu0" for i in range(n)}
    assert places(found, "kv") == dict.fromkeys(range(n), "gpu0")
    assert (places(found, "embed"), places(found, "head")) == ({-1: "numa0"}, {-1: "gpu0"})
    assert found.placement.devices == (Numa(0), Gpu(0))


def test_a_unit_cut_in_two_lies_where_most_of_it_is_and_the_rest_is_told() -> None:
    found = resolved("qwen3moe", "-ngl 99 -ot 'ffn_(up|down)_exps=CPU'", GPUS[:1])
    layers = sorted(places(found, "experts"))
    assert set(places(found, "experts").values()) == {"numa0"}
    assert found.tensors["blk.0.ffn_gate_exps.weight"] == "CUDA0"
    assert found.differences == (f"ffn_gate_exps of layers 0-{layers[-1]}: CUDA0 there, CPU here, as all experts of a layer",)


def test_a_cache_apart_from_its_attention_comes_to_it() -> None:
    found = resolved("qwen3moe", "-ngl 99 -nkvo -ctk q4_0 -ctv q8_0", GPUS[:1])
    assert set(places(found, "kv").values()) == {"gpu0"}
    assert (found.placement.k_type, found.placement.v_type) == ("q8_0", "q8_0")
    assert any(one.startswith("the cache of layers 0-") and "CPU there, CUDA0 here" in one for one in found.differences)
    assert "a cache of type q4_0 is not known here: q8_0 is used" in found.differences
    away = resolved("qwen3moe", "-ngl 99 -ot attn=CPU", GPUS[:1])
    assert set(places(away, "kv").values()) == {"numa0"}
    assert any("CUDA0 there, CPU here" in one for one in away.differences)
    state = resolved("qwen35", "-ngl 99 -nkvo", GPUS[:1])
    assert any(one.startswith("the state of") for one in state.differences)


def test_a_tied_head_has_a_copy_on_its_own_device() -> None:
    name = next(one for one in MODELS if model(one).spec.head.weight == model(one).spec.embed)
    found = resolved(name, "-ngl 99", GPUS[:1])
    assert (places(found, "embed"), places(found, "head")) == ({-1: "numa0"}, {-1: "gpu0"})
    both = resolved(name, "-ngl 99 -ot token_embd=CUDA1")
    assert (places(both, "embed"), places(both, "head")) == ({-1: "gpu1"}, {-1: "gpu1"})


def test_rules_about_nothing_are_noted() -> None:
    found = resolved("qwen3moe", '-ngl 99 -ot "ffn_down_exps=CPU, ffn_up_exps=CPU"', GPUS[:1])
    assert found.notes == ("-ot  ffn_up_exps=CPU matches no tensor of this model",)


def test_unknown_cache_types_are_refused() -> None:
    with pytest.raises(PlacementError, match="'q3_k'"):
        resolved("qwen3moe", "-ctk q3_k")


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_a_file_gives_back_what_it_was_made_of(data: st.DataObject) -> None:
    one = model("qwen35moe")
    devices: list[Device] = [Numa(0), Gpu(0), Gpu(1)]
    drawn = {unit: data.draw(st.sampled_from(devices)) for unit in units_of(one.spec)}
    units = tuple(
        (unit, drawn[UnitId("mixer", unit.layer)] if unit.kind in ("kv", "state") else device) for unit, device in drawn.items()
    )
    whole = resolve(parse_flags(""), *one, [], OPTIONS).placement
    placement = Placement(units, "q8_0", "f16", whole.workers)
    rules = Rules("llama.cpp", ("-ngl", "99"))
    text = to_json(placement, one.spec, rules)
    assert from_json(text, one.spec, GPUS, OPTIONS, "p.json") == placement
    assert rules_of(text, "p.json") == rules
    assert resolve_source(text, *one, GPUS, OPTIONS).placement == placement


def test_files_for_something_else_are_refused_in_a_sentence(tmp_path: Path) -> None:
    one, other = model("qwen3moe"), model("qwen2moe")
    good = json.loads(to_json(resolved("qwen3moe", "-ngl 99", GPUS[:1]).placement, one.spec))

    def problem(changed: dict[str, object], there: Described = one, gpus: list[GpuInfo] = GPUS) -> str:
        path = tmp_path / "p.json"
        path.write_text(json.dumps(changed), encoding="utf-8")
        with pytest.raises(PlacementError) as caught:
            resolve_source(str(path), *there, gpus, OPTIONS)
        return str(caught.value)

    assert "made for a model of architecture 'qwen3moe'" in problem(good, other)
    assert "this machine has numa0" in problem(good, gpus=[])
    assert "no unit 'experts.99'" in problem(good | {"units": good["units"] | {"experts.99": "numa0"}})
    assert "no unit 'kitchen'" in problem(good | {"units": good["units"] | {"kitchen": "numa0"}})
    assert "no device 'tpu0'" in problem(good | {"units": good["units"] | {"head": "tpu0"}})
    assert "kv.0 is on numa0 and mixer.0 on gpu0" in problem(good | {"units": good["units"] | {"kv.0": "numa0"}})
    assert "head has no place" in problem(good | {"units": {name: one for name, one in good["units"].items() if name != "head"}})
    assert "version 7" in problem(good | {"version": 7})
    assert "cache type 'q4_0'" in problem(good | {"k_type": "q4_0"})
    assert "no placement of Layerdeck" in problem({"units": {}})
    (tmp_path / "broken.json").write_text("{", encoding="utf-8")
    with pytest.raises(PlacementError, match="not a JSON file"):
        resolve_source(str(tmp_path / "broken.json"), *one, GPUS, OPTIONS)
    with pytest.raises(PlacementError, match="cannot be read"):
        resolve_source("nowhere.json", *one, GPUS, OPTIONS)


def test_a_file_of_flags_is_as_good_as_the_flags(tmp_path: Path) -> None:
    one = model("qwen3moe")
    path = tmp_path / "run.sh"
    path.write_text("./llama-server -m x.gguf \\\n  -ngl 99 \\\n  -cmoe\n", encoding="utf-8")
    found, flags = resolve_source(str(path), *one, GPUS, OPTIONS), resolve_source("-ngl 99 -cmoe", *one, GPUS, OPTIONS)
    assert (found.tensors, found.placement, found.notes) == (flags.tensors, flags.placement, flags.notes)
