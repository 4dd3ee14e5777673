"""Launch scripts and command lines of any shape: which command starts a model, what stands in front of it, and whose rules it
has."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from engine.errors import PlacementError
from engine.placement.flag_settings import SETTINGS
from engine.placement.flags import LlamaFlags, LlamaTool, parse_words
from engine.placement.interchange.kt_options import KtOptions, parse_options
from engine.placement.interchange.prefixes import bound_by
from engine.placement.interchange.shell import Command, Word, commands_of

_LLAMA = re.compile(r"(?:llama[-_].+|llama|main|server|koboldcpp)(?:\.exe)?", re.IGNORECASE)
_KT_MODULES = ("ktransformers.server.main", "ktransformers.local_chat", "ktransformers")
_KT_FILES = re.compile(r"(?:.*/)?(?:local_chat|server/main|local_chat_test)\.py")
_WRAPPERS = {
    "numactl": ("--interleave", "-i", "--cpunodebind", "-N", "--membind", "-m", "--physcpubind", "-C", "--preferred", "-p"),
    "taskset": (),
    "nice": ("-n",),
    "ionice": ("-c", "-n"),
    "chrt": (),
    "sudo": ("-u", "-g"),
    "env": ("-u",),
    "timeout": (),
    "stdbuf": (),
    "nohup": (),
    "exec": (),
    "time": (),
    "command": (),
    "setsid": (),
}
"""What may stand in front of a command, with the options of it that have a word behind them."""
_ARGUMENTS = {"taskset": 1, "chrt": 1, "timeout": 1}
"""Words of their own that stand behind the options."""
_VARIABLES = {
    "N_GPU_LAYERS": "-ngl",
    "OVERRIDE_TENSOR": "-ot",
    "N_CPU_MOE": "-ncmoe",
    "N_CPU_FFN": "-ncffn",
    "TENSOR_SPLIT": "-ts",
    "SPLIT_MODE": "-sm",
    "MAIN_GPU": "-mg",
    "DEVICE": "-dev",
    "CTX_SIZE": "-c",
    "THREADS": "-t",
    "BATCH": "-b",
    "UBATCH": "-ub",
    "CACHE_TYPE_K": "-ctk",
    "CACHE_TYPE_V": "-ctv",
    "FLASH_ATTN": "-fa",
    "MODEL": "-m",
    "N_PREDICT": "-n",
    "NUMA": "--numa",
    "HOST": "--host",
    "PORT": "--port",
}
"""llama.cpp's `LLAMA_ARG_*` variables: they count as flags in front of all others."""


@dataclass(frozen=True, slots=True)
class Launch:
    """The command that starts a model. visible: the GPUs that it sees, by their numbers here, None: all; cores, node: of memory,
    that it may use.

    differences: prefixes that mean nothing here; notes: what only a shell could know, and what else the text starts. whole:
    whether the text is that command and nothing else.
    """

    rules: LlamaFlags | KtOptions
    visible: tuple[int, ...] | None = None
    cores: tuple[int, ...] = ()
    node: int | None = None
    differences: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    whole: bool = True


def parse_launch(text: str) -> Launch:
    """The command of a text that starts a model. Raises: PlacementError, one sentence."""
    commands = commands_of(text)
    starts = [(command, *_without_prefix(command.words)) for command in commands]
    known = [(command, words, prefix) for command, words, prefix in starts if _kind(words) is not None]
    if not known:
        known = [(command, words, prefix) for command, words, prefix in starts if _has_flags(words)]
    if not known:
        raise PlacementError(_why_none(commands))
    command, words, prefix = next((one for one in known if one[0].sure), known[0])
    notes = [f"{len(known)} commands of the script start a model: the first that would run is read"] if len(known) > 1 else []
    if not command.sure:
        notes.append("whether the script reaches the command that starts a model is known only when it runs")
    plain, unknown = _known_words(words)
    notes += unknown
    rules: LlamaFlags | KtOptions
    if _kind(words) in ("ktransformers", "sglang"):
        rules = parse_options(plain, sglang=_kind(words) == "sglang")
    else:
        rules = parse_words([plain[0], *_from_env(command.env), *plain[1:]] if plain else plain, _llama_tool(words))
    bound = bound_by(prefix)
    differences = bound.differences
    if isinstance(rules, KtOptions) and command.env.get("USE_NUMA") == "1":
        differences += ("USE_NUMA=1: experts are not copied to every node of memory here",)
    notes += bound.notes
    return Launch(rules, _visible(command), bound.cores, bound.node, differences, tuple(notes), whole=len(commands) == 1)


def _kind(words: Sequence[Word]) -> str | None:
    """Whose command it is: of `llama`, `ktransformers` or `sglang`."""
    if not words:
        return None
    program = words[0].text.replace("\\", "/").rpartition("/")[2]
    if re.fullmatch(r"(?:python|python3|pypy3|uv|torchrun)(?:\.\d+)*(?:\.exe)?", program):
        texts = [word.text for word in words[1:]]
        module = texts[texts.index("-m") + 1] if "-m" in texts and texts.index("-m") + 1 < len(texts) else ""
        if module.startswith("sglang") or module in ("kt_kernel",):
            return "sglang"
        script = next((text for text in texts if text.endswith(".py")), "")
        return "ktransformers" if module in _KT_MODULES or _KT_FILES.fullmatch(script) else None
    if program in ("ktransformers", "kt"):
        return "sglang" if program == "kt" else "ktransformers"
    return "llama" if _LLAMA.fullmatch(program) and len(words) > 1 else None


def _has_flags(words: Sequence[Word]) -> bool:
    """Whether a command of an unknown program has flags about places."""
    names = {word.text.partition("=")[0].replace("_", "-") for word in words if word.text.startswith("-")}
    places = {"-ngl", "--gpu-layers", "--n-gpu-layers", "-ot", "--override-tensor", "-cmoe", "--cpu-moe", "-ncmoe", "--n-cpu-moe"}
    return not names.isdisjoint(places | {"-ts", "--tensor-split", "--kt-num-gpu-experts", "--kt-method"})


def _llama_tool(words: Sequence[Word]) -> LlamaTool | None:
    return "ik" if words and "ik_llama" in words[0].text else None


def _without_prefix(words: Sequence[Word]) -> tuple[tuple[Word, ...], tuple[str, ...]]:
    """The words of the command itself, and each thing that stands in front of it."""
    rest, prefix = list(words), []
    while rest and rest[0].text.rpartition("/")[2] in _WRAPPERS:
        name = rest[0].text.rpartition("/")[2]
        taken, at, left = [name], 1, _ARGUMENTS.get(name, 0)
        while at < len(rest) and (rest[at].text.startswith("-") or left or (name == "env" and "=" in rest[at].text)):
            option = rest[at].text
            left = max(0, left - (not option.startswith("-")))
            taken.append(option)
            at += 1
            if option in _WRAPPERS[name] and at < len(rest):
                taken.append(rest[at].text)
                at += 1
        prefix.append(" ".join(taken))
        rest = rest[at:]
    return tuple(rest), tuple(prefix)


def _known_words(words: Sequence[Word]) -> tuple[list[str], list[str]]:
    """Words without numbers that only a shell could know, and a note on each of those."""
    found, notes, at = list[str](), [], 0
    while at < len(words):
        following = words[at + 1] if at + 1 < len(words) else None
        flag = words[at].text.replace("_", "-") if words[at].text.startswith("--") else words[at].text
        free = SETTINGS.get(flag, "") in ("the path of a model", "an address") or flag in (
            "--model-path",
            "--gguf-path",
            "--model",
        )
        if words[at].text.startswith("-") and following is not None and not following.known and not free:
            notes.append(f"{flag} {following.text[:40]}: the value is known only when the script runs, and left out")
            at += 2
            continue
        found.append(words[at].text)
        at += 1
    return found, notes


def _from_env(env: dict[str, str]) -> list[str]:
    """Flags that variables stand for."""
    found = []
    for name, value in env.items():
        flag = _VARIABLES.get(name.removeprefix("LLAMA_ARG_")) if name.startswith("LLAMA_ARG_") else None
        if flag is not None:
            found += [flag, value]
        elif name == "LLAMA_ARG_CPU_MOE" and value.lower() in ("1", "true", "on", "enabled"):
            found.append("-cmoe")
    return found


def _visible(command: Command) -> tuple[int, ...] | None:
    """The GPUs that the command sees. Raises: PlacementError: by other names than numbers."""
    wrapped = [word.text.partition("=")[2] for word in command.words if word.text.startswith("CUDA_VISIBLE_DEVICES=")]
    text = wrapped[-1] if wrapped else command.env.get("CUDA_VISIBLE_DEVICES")
    if text is None:
        return None
    numbers = [one.strip() for one in text.split(",") if one.strip()]
    if not all(re.fullmatch(r"\d{1,3}", one) for one in numbers) or len(set(numbers)) < len(numbers):
        raise PlacementError(f"CUDA_VISIBLE_DEVICES={text[:40]!r} is no list of numbers such as 0,1; name GPUs by their numbers")
    return tuple(map(int, numbers))


def _why_none(commands: Sequence[Command]) -> str:
    """Why nothing was found."""
    config = next((word.text for one in commands for word in one.words if word.text.endswith("config.json")), None)
    if config is not None:
        return f"the script takes what it starts from {config[:80]}: import that file"
    return "nothing in the text starts a model with flags that are known here; give flags of llama.cpp, rules or a placement file"
