"""What the system says of itself and of the programs that run on it. Never raises."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from engine.hardware import sysfs

PAGE = 4096


def os_release(root: Path) -> dict[str, str]:
    """`ID`, `VERSION_ID`, `PRETTY_NAME` and what else the distribution says (os-release(5))."""
    pairs = (line.partition("=") for path in ("etc/os-release", "usr/lib/os-release") for line in sysfs.lines(root / path))
    found: dict[str, str] = {}
    for key, equals, value in pairs:
        if equals:
            found.setdefault(key.strip(), value.strip().strip("\"'"))
    return found


@dataclass(frozen=True, slots=True)
class Engine:
    """A program that runs models. resident_bytes: of memory, None where it is not told."""

    pid: int
    name: str
    resident_bytes: int | None


NAMES = {
    "ollama": "Ollama",
    "llama-server": "llama-server",
    "llama-cli": "llama-cli",
    "llama-bench": "llama-bench",
    "koboldcpp": "KoboldCpp",
    "lm-studio": "LM Studio",
    "LM Studio": "LM Studio",
    "lms": "LM Studio",
    "vllm": "vLLM",
    "sglang": "SGLang",
    "ktransformers": "KTransformers",
    "jan": "Jan",
    "gpt4all": "GPT4All",
}
"""By the name of the process, up to 15 letters of which the kernel keeps."""
MODULES = {"vllm": "vLLM", "sglang": "SGLang", "ktransformers": "KTransformers", "llama_cpp.server": "llama-cpp-python"}
"""By what a Python program was started with."""


def other_engines(root: Path, own: frozenset[int]) -> tuple[Engine, ...]:
    """Programs that run models, but those of `own`; the processes of one program are added up."""
    found: dict[str, tuple[int, int | None]] = {}
    for pid, name in _named(root, own):
        words = (sysfs.text(root / f"proc/{pid}/statm") or "").split()
        pages = sysfs.as_number(words[1]) if len(words) > 1 else None
        nbytes = None if pages is None else pages * PAGE
        if name in found:
            first, before = found[name]
            found[name] = (first, nbytes if before is None else before + (nbytes or 0))
        else:
            found[name] = (pid, nbytes)
    return tuple(Engine(pid, name, nbytes) for name, (pid, nbytes) in found.items())


def _named(root: Path, own: frozenset[int]) -> Iterator[tuple[int, str]]:
    for pid, folder in sysfs.numbered(root / "proc", ""):
        if pid in own:
            continue
        comm = sysfs.text(folder / "comm") or ""
        name = NAMES.get(comm) or NAMES.get(comm.partition("::")[0].lower(), "")
        if not name and comm.startswith(("python", "uvicorn")):
            words = (sysfs.read(folder / "cmdline") or b"").decode("utf-8", "replace").split("\0")[1:4]
            name = next((MODULES[word] for word in _modules(words) if word in MODULES), "")
        if name:
            yield pid, name


def _modules(words: list[str]) -> Iterator[str]:
    """`vllm` of `-m vllm.entrypoints.api` and of `/usr/bin/vllm`."""
    for word in words:
        yield word
        yield word.split(".")[0]
        yield word.rpartition("/")[2]


def engine_pids(root: Path, own: frozenset[int]) -> dict[int, str]:
    """Process -> name of the program that runs models there."""
    return dict(_named(root, own))
