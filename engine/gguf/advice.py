"""What is odd about a model file without being wrong, shown by `inspect` and when the file is loaded."""

from __future__ import annotations

from engine.gguf import keys
from engine.gguf.groups import grouped, layer_counts, mixer_matrices
from engine.gguf.info import GgufFile
from engine.gguf.types import EXACT_TYPES, few_bits


def warnings_of(file: GgufFile) -> tuple[str, ...]:
    """One clause for each oddity, without a capital and a full stop, the weightiest first."""
    found = (_incomplete(file), _no_template(file), _no_rope_base(file), _slow(file), *_coarse(file), *_unused(file))
    return tuple(sentence for sentence in found if sentence)


def _incomplete(file: GgufFile) -> str:
    if not file.tensors:
        return "the file holds no tensors: it is a vocabulary, not a model"
    return "" if sum(layer_counts(file)) else "the file does not say how many layers the model has"


def _no_template(file: GgufFile) -> str:
    has_template = isinstance(file.metadata.get(keys.CHAT_TEMPLATE), str)
    return "" if has_template else "the file has no chat template: plain ChatML is used, which the model may not know"


def _no_rope_base(file: GgufFile) -> str:
    """Which base heads were trained to turn with is nothing to guess in silence."""
    key = keys.of(file.architecture, keys.ROPE_FREQ_BASE)
    if key in file.metadata or not any(group == "attention" for _, group, _ in mixer_matrices(file)):
        return ""
    return f"the file does not say {key}: 10,000 is used, with which models that were trained otherwise write garbage"


def _slow(file: GgufFile) -> str:
    slow = sorted(EXACT_TYPES & {info.type_name for info in file.tensors.values()})
    return f"exact but slow formats, multiplied as f32: {', '.join(slow)}" if slow else ""


def _coarse(file: GgufFile) -> list[str]:
    """Attention and DeltaNet in 4 bits or less. Rounding errors of these layers stay in the context and add up; those of
    feed-forward layers and experts do not."""
    found: dict[str, tuple[set[int], set[str]]] = {}
    for info, group, layer in mixer_matrices(file):
        if few_bits(info.type_name) <= 4:
            layers, types = found.setdefault(group, (set(), set()))
            layers.add(layer)
            types.add(info.type_name)
    return [
        f"{group} weights have 4 bits or less in {len(layers)} layers ({', '.join(sorted(types))}), where models are most "
        "sensitive; a file that keeps them in Q6_K or Q8_0 answers better"
        for group, (layers, types) in found.items()
    ]


def _unused(file: GgufFile) -> list[str]:
    sentences = []
    _, extra = layer_counts(file)
    groups = {group for _, group in grouped(file)}
    if extra or "extra layers" in groups:
        what = "1 block" if extra == 1 else f"{extra or 'the'} blocks"
        sentences.append(
            f"{what} at the end of the file, for guessing several tokens at once (MTP), will not be used; answers are the same"
        )
    if "vision" in groups:
        sentences.append("tensors for pictures or sound are not used: this version reads text only")
    return sentences
