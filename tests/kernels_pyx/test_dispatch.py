"""Which instruction set serves what, the environment cap, and the build lists that belong to the C tree."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from kernels_pyx.cpu_features import active_isa, available_isas, detected_isa
from kernels_pyx.dispatch import kernels_of
from kernels_pyx.isas import ISAS

ROOT = Path(__file__).parents[2]


def run_with_cap(cap: str, code: str) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"LAYERDECK_ISA": cap}
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=env, capture_output=True, text=True, check=False)


def test_detected_is_the_best_available_and_scalar_is_always_there() -> None:
    assert detected_isa() == available_isas()[-1]
    assert available_isas()[0] == "scalar"


@pytest.mark.parametrize("cap", ISAS)
def test_cap_gives_the_best_available_at_or_below_it(cap: str) -> None:
    done = run_with_cap(cap, "from kernels_pyx.cpu_features import active_isa; print(active_isa())")
    best = [isa for isa in available_isas() if ISAS.index(isa) <= ISAS.index(cap)][-1]
    assert done.stdout.strip() == best, done.stderr


def test_empty_cap_is_no_cap() -> None:
    done = run_with_cap("", "from kernels_pyx.cpu_features import active_isa; print(active_isa())")
    assert done.stdout.strip() == detected_isa()


def test_unknown_cap_names_the_choices() -> None:
    done = run_with_cap("sse9", "import kernels_pyx.dispatch")
    assert done.returncode != 0
    assert "LAYERDECK_ISA=sse9: no such instruction set; use one of scalar, avx2" in done.stderr


def test_active_is_within_the_cap_of_this_process() -> None:
    cap = os.environ.get("LAYERDECK_ISA") or ISAS[-1]
    assert ISAS.index(active_isa()) <= ISAS.index(cap)


@pytest.mark.parametrize("isa", ISAS)
def test_kernels_never_need_more_than_their_cap(isa: str) -> None:
    served = kernels_of(isa)
    assert bool(served) == (isa in available_isas())
    for few, many in served.values():
        assert ISAS.index(few) <= ISAS.index(isa) and ISAS.index(many) <= ISAS.index(isa)


@pytest.mark.skipif("avx512vnni" not in available_isas(), reason="needs AVX-512 VNNI")
def test_integer_formats_are_served_by_vnni() -> None:
    served = kernels_of("avx512vnni")
    assert all(served[name] == ("avx512vnni", "avx512vnni") for name in ("Q4_0", "Q4_1", "Q8_0", "Q4_K", "Q6_K"))


def extensions() -> list[dict[str, list[str]]]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return list(project["tool"]["setuptools"]["ext-modules"])


def test_every_c_file_is_compiled_once() -> None:
    sources = [source for extension in extensions() for source in extension["sources"]]
    twice = {source for source, n in Counter(sources).items() if n > 1}
    assert twice == {"kernels_pyx/c/handoff.c"}  # small and without state: for workers in a program, and for whoever else signals
    on_disk = {str(path.relative_to(ROOT)) for path in (ROOT / "kernels_pyx" / "c").rglob("*.c")}
    assert on_disk == {source for source in sources if source.startswith("kernels_pyx/c/")}


def test_every_header_is_a_dependency_so_that_changing_it_rebuilds() -> None:
    depends = {path for extension in extensions() for path in extension.get("depends", ())}
    on_disk = {str(path.relative_to(ROOT)) for path in (ROOT / "kernels_pyx" / "c").rglob("*") if path.suffix in (".h", ".def")}
    assert on_disk <= depends
    assert all((ROOT / path).exists() for path in depends)
