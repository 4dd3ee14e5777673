"""What stands beside places in what is written for other tools: threads, context, chunk, overridden keys of the file, and the
memory that a command is bound to. What a tool cannot say is a note."""

from __future__ import annotations

from collections.abc import Sequence

from engine.gguf.overrides import Override
from engine.placement.interchange.written import Written
from engine.placement.options import LoadOptions

_ROPE = {
    "rope.freq_base": "--rope-freq-base",
    "rope.scaling.type": "--rope-scaling",
    "rope.scaling.factor": "--rope-scale",
    "rope.scaling.original_context_length": "--yarn-orig-ctx",
}
"""Keys with flags of their own in llama.cpp and ik_llama.cpp."""
_SCALINGS = ("none", "linear", "yarn")
_KINDS: tuple[tuple[type, str], ...] = ((bool, "bool"), (int, "int"), (float, "float"), (str, "str"))
_OWN = ("general.", "tokenizer.")


def settings_words(written: Written, numbers: bool = True) -> list[str]:
    """Context and threads, where numbers asks for them, chunk and overridden keys as flags."""
    options, found = written.options, list[str]()
    if options is None:
        return found
    for flag, value in (("-c", options.n_ctx), ("-t", options.n_threads)):
        found += [flag, str(value)] if value and numbers else []
    if options.prefill_chunk > 2048:
        found += ["-b", str(options.prefill_chunk)]
    if options.prefill_chunk != LoadOptions().prefill_chunk:
        found += ["-ub", str(options.prefill_chunk)]
    for one in written.keys:
        found += _key_words(one, written.architecture)
    return found


def _key_words(one: Override, architecture: str) -> list[str]:
    key, value = one
    short = short_key(key, architecture)
    if short in _ROPE and (short != "rope.scaling.type" or value in _SCALINGS):
        return [_ROPE[short], str(value)]
    if not _sayable(one):
        return []
    kind = next(name for of, name in _KINDS if isinstance(value, of))
    text = str(value).lower() if kind == "bool" else str(value)
    whole = key if key.startswith((f"{architecture}.", *_OWN)) else f"{architecture}.{key}"
    return ["--override-kv", f"{whole}={kind}:{text}"]


def short_key(key: str, architecture: str) -> str:
    """A key without the name of the architecture."""
    return key.removeprefix(f"{architecture}.")


def _sayable(one: Override) -> bool:
    """Whether a flag can hold it: commas stand between two of them."""
    return "," not in f"{one[0]}{one[1]}"


def keys_note(keys: Sequence[Override], tool: str) -> tuple[str, ...]:
    """That a tool takes these keys as the file has them."""
    names = ", ".join(key for key, _ in keys)
    return (f"{tool} has no place for {names}: as the file says it is used there",) if keys else ()


def memory_words(written: Written) -> list[str]:
    """What stands in front of a command so that it uses the same nodes of memory; nothing where that is the first one."""
    if written.n_spread:
        return ["numactl", "--interleave=all"]
    if len(written.nodes) == 1 and written.nodes[0]:
        return ["numactl", f"--cpunodebind={written.nodes[0]}", f"--membind={written.nodes[0]}"]
    return []


def not_in_flags(written: Written) -> tuple[str, ...]:
    """What no flag of llama.cpp can say."""
    notes = []
    if written.pools:
        notes.append("experts in slots of GPUs have no flag: whole layers of experts are written")
    unsaid = [one for one in written.keys if not _sayable(one) and short_key(one[0], written.architecture) not in _ROPE]
    return (*notes, *memory_notes(written), *keys_note(unsaid, "a flag"), *own_notes(written))


def memory_notes(written: Written) -> tuple[str, ...]:
    """That other tools know one CPU."""
    if written.n_spread:
        told = "are split over nodes of memory here, by rows: other tools know one CPU, whose pages numactl can lay on all nodes"
        return (f"{written.n_spread} parts {told}",)
    if len(written.nodes) > 1:
        return (f"parts lie on {', '.join(f'numa{one}' for one in written.nodes)} here: other tools know one CPU",)
    return ()


def prefix_note(written: Written) -> tuple[str, ...]:
    """What has to stand in front of a command that is not written."""
    words = memory_words(written) if written.options is None else []
    return (f"put {' '.join(words)} in front of the command: it is about memory, of which nothing is said here",) if words else ()


def own_notes(written: Written) -> tuple[str, ...]:
    """Settings that only this engine has, where they are not as usual."""
    options, usual = written.options, LoadOptions()
    if options is None:
        return ()
    found = []
    if options.stream_experts != usual.stream_experts:
        found.append(f"--stream-experts {options.stream_experts}")
    if options.f32_activations:
        found.append("--f32-activations")
    if options.node_memory != usual.node_memory:
        found.append(f"--node-memory {options.node_memory}")
    return (f"settings of this engine alone are left out: {', '.join(found)}",) if found else ()
