"""Rule files of KTransformers: every form that its documentation describes, in small files of our own, with the devices that its
rules give each kind of tensor (worked out by hand from its injection tutorial and `optimize/optimize.py`)."""

from __future__ import annotations

import re

import pytest

from engine.errors import PlacementError
from engine.hardware.gpus import GpuInfo
from engine.placement.interchange.kt_modules import ModuleMap, class_matches
from engine.placement.interchange.kt_resolve import KtMap, resolve_kt
from engine.placement.interchange.kt_rules import parse_rules
from engine.placement.options import LoadOptions
from engine.placement.resolution import Resolution
from tests.engine.placement.test_public_commands import PARTS, layers_of
from tests.helpers import tensor_names
from tests.helpers.described import model

GPUS = [GpuInfo(i, "card", 24 << 30, 24 << 30) for i in range(4)]
DEEPSEEK, QWEN3 = ("deepseek2", tensor_names.deepseek()), ("qwen3moe", tensor_names.mixture(48))


def rule(
    name: str = "", device: str = "", *, of: str = "", by: str = "default", recursive: bool = True, more: tuple[str, ...] = ()
) -> str:
    """One rule as people write it."""
    match = [f'    name: "{name}"'] if name else []
    match += [f"    class: {of}"] if of else []
    kwargs = [f'      generate_device: "{device}"'] if device else []
    kwargs += [f"      {one}" for one in more]
    lines = ["- match:", *match, "  replace:", f"    class: {by}", *(["    kwargs:", *kwargs] if kwargs else [])]
    return "\n".join([*lines, *([] if recursive else ["  recursive: False  # not what lies below"])]) + "\n"


LINEAR = {"of": "torch.nn.Linear", "by": "ktransformers.operators.linear.KTransformersLinear"}
GATE = "ktransformers.models.modeling_deepseek_v3.MoEGate"
EXPERTS = "ktransformers.operators.experts.KTransformersExperts"
FIRST, SECOND = r"^model\\.layers\\.(0|[1-9]|[12][0-9])\\.", r"^model\\.layers\\.([3456][0-9])\\."
EMBED = rule("^model.embed_tokens", "cpu")
ONE_GPU = (
    rule(r"^model\\.layers\\.(?!.*self_attn\\.kv_b_proj).*$", "cuda", **LINEAR)
    + rule(r"^model\\.layers\\..*\\.mlp$", of="ktransformers.models.modeling_deepseek_v3.DeepseekV3MoE", by="x.KDeepseekV3MoE")
    + rule(r"^model\\.layers\\..*\\.mlp\\.experts$", "cpu", by=EXPERTS, recursive=False, more=('out_device: "cuda"',))
    + rule(r"^model\\.layers\\..*\\.self_attn$", "cuda", by="ktransformers.operators.attention.KDeepseekV2Attention")
    + EMBED
    + rule(r"^model\\.layers\\..*\\.|^lm_head", "cuda")
)
TWO_GPUS = (
    EMBED
    + rule(rf"{FIRST}(?!self_attn\\.kv_b_proj).*$", "cuda:0", **LINEAR)
    + rule(rf"{SECOND}(?!self_attn\\.kv_b_proj).*$", "cuda:1", **LINEAR)
    + rule(rf"{FIRST}mlp\\.experts$", "cpu", by=EXPERTS, recursive=False)
    + rule(rf"{SECOND}mlp\\.experts$", "cpu", by=EXPERTS, recursive=False)
    + rule("^model$", by="ktransformers.operators.models.KDeepseekV2Model", more=("transfer_map:", '  30: "cuda:1"'))
    + rule(FIRST, "cuda:0")
    + rule("^lm_head", "cuda:1", **LINEAR)
    + rule(f"({SECOND})|(model.norm)", "cuda:1")
)
ALL = "CUDA0 0-60"
CASES: list[tuple[str, tuple[str, tuple[str, ...]], str, dict[str, str]]] = [
    ("one GPU", DEEPSEEK, ONE_GPU, {"attn_output": ALL, "exps": "CPU 3-60", "ffn_up_shexp": "CUDA0 3-60", "output": "CUDA0"}),
    ("two GPUs", DEEPSEEK, TWO_GPUS, {
        "attn_output": "CUDA0 0-29; CUDA1 30-60", "attn_k_b": "CUDA0 0-29; CUDA1 30-60", "exps": "CPU 3-60",
        "ffn_gate": "CUDA0 0-2", "ffn_gate_inp": "CUDA0 3-29; CUDA1 30-60", "attn_norm": "CUDA0 0-29; CUDA1 30-60",
        "output": "CUDA1", "output_norm": "CUDA1"}),
    ("experts of some layers on a GPU: the rule in front counts", DEEPSEEK,
     rule(r"^model\\.layers\\.([4-8])\\.mlp\\.experts$", "cuda:0", by=EXPERTS, recursive=False) + TWO_GPUS,
     {"exps": "CPU 3,9-60; CUDA0 4-8", "attn_output": "CUDA0 0-29; CUDA1 30-60"}),
    ("a rule behind one that matches does nothing", DEEPSEEK,
     TWO_GPUS + rule(r"^model\\.layers\\.([4-8])\\.mlp\\.experts$", "cuda:0", by=EXPERTS, recursive=False),
     {"exps": "CPU 3-60"}),
    ("no rule: the first GPU", DEEPSEEK, rule("^model.embed_tokens", "cpu"),
     {"attn_output": ALL, "exps": "CUDA0 3-60", "output": "CUDA0", "output_norm": "CUDA0"}),
    ("experts that are not taken as one: those of their linear layers", DEEPSEEK,
     rule(r"^model\\.layers\\.5\\.", "cuda:1", **LINEAR), {"exps": "CUDA0 3-4,6-60; CUDA1 5", "attn_norm": ALL,
      "attn_output": "CUDA0 0-4,6-60; CUDA1 5", "token_embd": "CUDA0"}),
    ("experts without a device are on the CPU", DEEPSEEK, rule(r"mlp\\.experts$", by=EXPERTS, recursive=False),
     {"exps": "CPU 3-60", "token_embd": "CUDA0"}),
    ("below what is not recursive nothing is looked at", DEEPSEEK,
     rule(r"^model\\.layers\\.7\\.self_attn$", "cuda:1", by="x.Attention", recursive=False)
     + rule(r"^model\\.layers\\.8\\.self_attn$", "cuda:1", by="x.Attention") + rule(r"self_attn", "cuda:2"),
     {"attn_output": "CUDA0 7; CUDA2 0-6,8-60", "token_embd": "CUDA0"}),
    ("classes alone", QWEN3,
     rule(of="ktransformers.models.modeling_qwen3_moe.Qwen3MoeRMSNorm", device="cuda:1", by="x.KQwen3MoeRMSNorm")
     + rule(of="ktransformers.models.modeling_qwen2_moe.Qwen2MoeMLP", device="cuda:2", by="x.KQwen2MoeMLP")
     + rule(of="torch.nn.Embedding", device="cpu") + rule(r"\\.mlp\\.experts$", "cpu", by=EXPERTS, recursive=False),
     {"attn_norm": "CUDA1 0-47", "ffn_norm": "CUDA1 0-47", "attn_output": "CUDA0 0-47", "exps": "CPU 0-47",
      "output_norm": "CUDA1"}),
    ("the way of choosing experts", DEEPSEEK,
     rule(r"\\.mlp\\.gate$", "cuda:1", of=GATE, by="x.KMoEGate") + ONE_GPU,
     {"ffn_gate_inp": "CUDA1 3-60", "ffn_gate": "CUDA0 0-2"}),
    ("a gate that is a linear layer is none of that class", QWEN3,
     rule(r"\\.gate$", "cuda:1", of=GATE, by="x.KMoEGate") + EMBED,
     {"ffn_gate_inp": "CUDA0 0-47"}),
    ("layers on the CPU", DEEPSEEK,
     EMBED + rule(rf"{SECOND}(?!self_attn).*$", "cpu", **LINEAR)
     + rule(rf"{FIRST}mlp\\.experts$", "cpu", by=EXPERTS, recursive=False)
     + rule(rf"{SECOND}mlp\\.experts$", "cpu", by=EXPERTS, recursive=False) + rule(FIRST, "cuda:0")
     + rule(f"({SECOND})|(model.norm)", "cpu") + rule("^lm_head", "cuda:0", **LINEAR),
     {"attn_output": "CPU 30-60; CUDA0 0-29", "exps": "CPU 3-60", "ffn_up_shexp": "CPU 30-60; CUDA0 3-29", "output": "CUDA0",
      "output_norm": "CPU"}),
    ("several documents", DEEPSEEK, "---\n" + EMBED + "---\n" + rule("mlp.shared_experts", "cuda:3") + "...\n",
     {"ffn_up_shexp": "CUDA3 3-60", "ffn_gate": "CUDA0 0-2"}),
    ("another maker's devices", DEEPSEEK, EMBED + rule(r"^model\\.layers\\..*\\.self_attn", "xpu") + rule("^lm_head", "npu:1"),
     {"attn_output": "XPU0 0-60", "output": "NPU1"}),
]  # fmt: skip


@pytest.mark.parametrize(("what", "of", "text", "expected"), CASES, ids=[case[0] for case in CASES])
def test_tensors_lie_where_the_tool_puts_them(
    what: str, of: tuple[str, tuple[str, ...]], text: str, expected: dict[str, str]
) -> None:
    architecture, names = of
    placed = KtMap(parse_rules(text), architecture, names)
    found = {name: placed.tensor(name) for name in names}
    assert found["token_embd.weight"] == expected.get("token_embd", "CPU")
    for part, devices in expected.items():
        if part in ("output", "output_norm", "token_embd"):
            assert found[f"{part}.weight"] == devices
            continue
        for tensor in PARTS.get(part, (part,)):
            there = {
                int(match[1]): found[name] for name in names if (match := re.fullmatch(rf"blk\.(\d+)\.{tensor}\.weight", name))
            }
            assert there == layers_of(devices), (what, tensor)


def resolved(name: str, text: str) -> Resolution:
    return resolve_kt(parse_rules(text), *model(name), GPUS, LoadOptions(n_threads=2))


def test_units_come_to_lie_as_the_rules_say() -> None:
    text = EMBED + rule(r"\\.mlp\\.experts$", "cpu", by=EXPERTS, recursive=False)
    found = resolved("deepseek2-v3", text + rule(r"^model\\.layers\\.[12]\\.", "cuda:1") + rule("^lm_head|model.norm", "cuda:1"))
    places = {str(unit): str(device) for unit, device in found.placement.units}
    assert (places["embed"], places["mixer.0"], places["mixer.1"], places["kv.2"]) == ("numa0", "gpu0", "gpu1", "gpu1")
    assert (places["experts.1"], places["shared.1"], places["ffn.1"], places["head"]) == ("numa0", "gpu1", "gpu1", "gpu1")
    assert (found.differences, found.notes) == ((), ())


def test_what_cannot_be_done_here_is_told() -> None:
    found = resolved("deepseek2-lite", EMBED + rule("model.norm", "cpu") + rule(r"layers\\..*\\.self_attn", "xpu:0"))
    assert "output_norm of the model: CPU there, CUDA0 here, as the whole output" in found.differences
    assert "xpu devices are not known here: a GPU of the same number is taken" in found.differences


def test_what_is_probably_not_meant_is_noted() -> None:
    moves = rule("^model$", by="x.KDeepseekV2Model", more=("transfer_map:", '  1: "cuda:1"'))
    found = resolved("deepseek2-v3", EMBED + moves + rule(r"layers\\.9[0-9]\\.", "cuda:1"))
    assert "rule 2: transfer_map brings rows to CUDA1 at layer 1, whose attention is on CUDA0" in found.notes
    assert "rule 3: no part of this model is placed by it" in found.notes
    wrong = rule(r"\\.experts$", "cuda", by=EXPERTS, more=('generate_op: "KExpertsCPU"',), recursive=False)
    assert any("computes on the CPU alone" in note for note in resolved("qwen3moe", wrong).notes)


def test_prompts_that_are_computed_layer_by_layer_bring_experts_to_a_gpu() -> None:
    slow = rule("^model$", by="x.KQwen2MoeModel", more=("per_layer_prefill_intput_threshold: 2000", "prefill_op: None"))
    assert resolved("qwen3moe", slow).settings.stream_experts == "auto"
    assert resolved("qwen3moe", EMBED).settings.stream_experts is None


def test_a_device_that_is_not_there_is_named() -> None:
    with pytest.raises(PlacementError, match=r"rule 1: there is no device 'CUDA7'; this machine has CPU, CUDA0"):
        resolved("qwen3moe", rule("^model", "cuda:7"))


@pytest.mark.parametrize(
    ("name", "module", "kind"),
    [
        ("blk.3.ffn_gate_inp.weight", "model.layers.3.mlp.gate", "gate"),
        ("blk.0.ffn_gate.weight", "model.layers.0.mlp.gate_proj", "linear"),
        ("blk.3.exp_probs_b.bias", "model.layers.3.mlp.gate", "gate"),
        ("blk.3.ffn_up_shexp.weight", "model.layers.3.mlp.shared_experts.up_proj", "linear"),
        ("blk.3.ffn_down_exps.weight", "model.layers.3.mlp.experts.0.down_proj", "linear"),
        ("blk.3.attn_kv_a_norm.weight", "model.layers.3.self_attn.kv_a_layernorm", "norm"),
        ("output.weight", "lm_head", "linear"),
        ("token_embd.weight", "model.embed_tokens", "embedding"),
    ],
)
def test_tensors_belong_to_modules(name: str, module: str, kind: str) -> None:
    modules = ModuleMap(*DEEPSEEK)
    assert (modules.module_of(name), modules.kind_of(module)) == (module, kind)


def test_every_tensor_of_every_golden_model_belongs_to_a_module() -> None:
    for name in ("qwen35moe", "qwen3next", "gemma3", "gpt-oss", "minimax-m2", "hunyuan-moe", "glm4moe", "llama-mha-spm"):
        one = model(name)
        modules = ModuleMap(one.file.architecture, one.file.tensors)
        for tensor in one.file.tensors:
            module = modules.module_of(tensor)
            assert "nextn" in tensor or not re.fullmatch(r"model\.layers\.\d+", module), tensor


def test_classes_are_those_of_the_architecture() -> None:
    moe = "ktransformers.models.modeling_qwen3_moe.Qwen3MoeSparseMoeBlock"
    assert class_matches(moe, "moe", "qwen3moe") and not class_matches(moe, "moe", "qwen2moe")
    assert not class_matches(moe, "mlp", "qwen3moe")
    assert class_matches("torch.nn.Module", "linear", "qwen3moe")
    assert not class_matches("torch.nn.Conv2d", "linear", "qwen3moe")
    assert class_matches("x.DeepseekV3YarnRotaryEmbedding", "rotary", "deepseek2")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: 1", "no list"),
        ("- 3", "rule 1 is 3, not a mapping"),
        ("- match: {}\n  replace: {}", "neither name nor class"),
        ("- match: {name: x}", "rule 1: replace is missing"),
        ("- match: {name: 3}\n  replace: {}", "name is 3"),
        ("- match: {name: '('}\n  replace: {}", "no regular expression"),
        ("- match: {name: '(a+)+$'}\n  replace: {}", "takes too long"),
        ("- match: {name: '(a|aa)+$'}\n  replace: {}", "takes too long"),
        ("- match: {name: x}\n  replace: {kwargs: {generate_device: tpu}}", "'tpu'; devices here are"),
        ("- match: {name: x}\n  replace: {kwargs: {transfer_map: {a: cuda}}}", "transfer_map is 'a'"),
        ("- match: [", "not YAML in line"),
        ("- match: !!python/object/apply:os.system [true]\n  replace: {}", "not YAML"),
        ("- &a {match: x}\n- *a", "aliases"),
        ("- match:\n" + "[" * 5000, "nested too deeply|not YAML"),
        ("# match: nothing\n", "no rule"),
        ("- match: {name: x}\n  replace: {}\n" * 10_000, "at most"),
        ("- match: \0", "not YAML"),
    ],
)
def test_nonsense_is_refused_in_a_sentence(text: str, problem: str) -> None:
    with pytest.raises(PlacementError, match=problem) as caught:
        parse_rules(text)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 400
