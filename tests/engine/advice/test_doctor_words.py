"""No row advises what is false or harmful: its words hold none of the advice that goes round and is wrong."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from engine.advice.doctor import table

FOLDER = Path(table.__file__).parent

HARMFUL = {
    "throws away the cached model": r"drop_caches",
    "address translation can lose copies between cards": r"(intel|amd)_iommu=on(?!.*iommu=pt)|iommu=force|enable (the )?IOMMU",
    "hides a bad riser": r"pci=noaer|AER[^.]*\b(off|disable)|disable[^.]*\bAER",
    "breaks name resolution": r"systemd-resolved|stop[^.]*resolved",
    "a default hides a missing value": r"rope_(theta|freq_base)",
    "the engine pins each thread": r"numactl|taskset -c",
    "opens the model to the network": r"0\.0\.0\.0",
    "the number of workers matters, not the switch": r"(SMT|Hyper-?Threading)[^.]*(off|disable)|nosmt|smt/control",
    "threads align nothing": r"OMP_NUM_THREADS=",
    "erases settings": r"clear[^.]*CMOS",
    "ends every program on the card": r"nvidia-smi (-r|--gpu-reset)",
    "the daemon costs nothing": r"(kill|stop)[^.]*persistenced",
    "no such file": r"/sys/module/pci/parameters",
    "no such counter": r"msc0000|ethtool",
    "one exact driver": r"535\.129",
    "newer systems are fine": r"downgrade|glibc[^.]*(older|22\.04)",
    "lanes are wiring": r"PCIe? [Ss]peed[^.]*(lane|x8|x16)",
    "sleep leaves power to other cores": r"processor\.max_cstate|idle=poll|C-states?[^.]*(off|disable)",
    "frequency is not placement": r"CPPC",
    "kills programs of others": r"\bkill(all)? |pkill|fuser",
    "resists out-of-memory by hiding it": r"oom_score_adj|overcommit_memory=1",
    "unproven and board-specific": r"Gear ?Down|MemIntlv",
    "runs as root what need not": r"sudo (pip|python|layerdeck)",
    "writes what cannot be undone": r"\brm -rf|mkfs|\bdd ",
}


def strings() -> list[tuple[str, int, str]]:
    """(file, line, text) of every string that is not a docstring; parts of one that are joined count as one."""
    found = []
    for path in sorted(FOLDER.glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        docs = {
            id(node.body[0].value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef) and node.body and isinstance(node.body[0], ast.Expr)
        }
        parts = {id(value) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for value in node.values}
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                text = "".join(str(one.value) if isinstance(one, ast.Constant) else "{}" for one in node.values)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs | parts:
                text = node.value
            else:
                continue
            found.append((path.name, node.lineno, text))
    return found


WORDS = strings()


def test_the_words_are_found() -> None:
    texts = [text for _, _, text in WORDS]
    assert "sudo sysctl kernel.numa_balancing=0" in texts
    assert any("Workers that share a core wait for each other" in text for text in texts)
    assert len(texts) > 500


@pytest.mark.parametrize("why", HARMFUL)
def test_no_row_advises(why: str) -> None:
    hits = [f"{name}:{line}: {text}" for name, line, text in WORDS if re.search(HARMFUL[why], text) and name != "coverage.py"]
    assert not hits, why


def test_commands_that_change_a_setting_last_or_are_said_to() -> None:
    """A line that sets something for all programs says how long it holds."""
    for path in sorted(FOLDER.glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Fix"):
                continue
            texts = [ast.unparse(one) for one in node.args]
            assert len(texts) == 3, f"{path.name}:{node.lineno}: a fix says what it changes and how to undo it"
            if re.search(r"sudo (sysctl|sh)|nvidia-smi .*-pl|cpupower", texts[0]):
                assert re.search(r"until the next restart", texts[1]), f"{path.name}:{node.lineno}"
                assert len(texts[2]) > 2, f"{path.name}:{node.lineno}"


def test_nothing_is_run() -> None:
    """No row starts a program; probes live in a process of their own, which is this program."""
    for path in sorted(FOLDER.glob("*.py")):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"\bsubprocess\b|os\.system|os\.popen|pynvml", text), path.name
        assert not re.search(r"write_text|write_bytes|open\([^)]*['\"][wa]", text), path.name
