"""What the page asks: the same placement for every tool, and texts of other tools as placements."""

from __future__ import annotations

import pytest

from engine.api.errors import PlacementError
from engine.api.pure import equivalent_commands, import_rules, machine_of, read_outline
from engine.api.values import LoadOptions
from tests.helpers.golden_models import golden


def test_a_placement_is_shown_for_every_tool_and_read_back(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("machine") / "m.json"
    path.write_text('{"ram_gib": 64, "gpus": [{"name": "RTX 4090", "memory_gib": 24, "count": 2}]}', encoding="utf-8")
    outline, machine = read_outline(str(golden("deepseek2-v3").path)), machine_of(str(path))
    found = import_rules("-ngl 99 -ts 1,1 -cmoe -c 4096 -t 3", outline, machine)
    assert (found.differences, found.settings.n_ctx, found.settings.n_threads) == ((), 4096, 3)
    options = found.settings.options(LoadOptions())
    shown = equivalent_commands(found.placement, outline, options, "model.gguf")
    assert [one.tool for one in shown] == ["llama.cpp", "ik", "ktransformers", "sglang", "config", "script"]
    assert [one.label for one in shown][1] == "ik_llama.cpp"
    for one in shown:
        if one.tool not in ("config", "sglang"):
            again = import_rules(one.text, outline, machine)
            assert again.placement.units == found.placement.units, one.tool
    config, options_of_kt = (next(one for one in shown if one.tool == tool) for tool in ("config", "sglang"))
    assert any("parts of layers" in note for note in config.notes)
    assert any("cut over 2 GPUs" in note for note in options_of_kt.notes)


def test_a_text_that_means_nothing_is_told_in_a_sentence(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("machine") / "m.json"
    path.write_text('{"ram_gib": 64, "gpus": []}', encoding="utf-8")
    outline, machine = read_outline(str(golden("qwen3moe").path)), machine_of(str(path))
    for text in ("", "hello", "echo hello", "-ot exps", "- match: 3", '{"n_gpu_layer": 3, "n_batch": 1}'):
        with pytest.raises(PlacementError) as caught:
            import_rules(text, outline, machine)
        assert "\n" not in str(caught.value)
