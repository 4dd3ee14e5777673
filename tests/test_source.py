"""The house rules that tools can check, run as tests."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
HOUSES = ("app", "engine", "kernels_pyx", "resources", "tests", "packaging")
LONGEST_FILE = 400


def run(*command: str) -> None:
    done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def sources(*suffixes: str) -> list[Path]:
    """Files of the houses with one of the suffixes; without caches, builds and generated C."""
    found = [path for house in HOUSES for suffix in suffixes for path in (ROOT / house).rglob(f"*{suffix}")]
    return [
        path
        for path in found
        if ("__pycache__" not in path.parts and path.with_suffix(".pyx") == path) or not path.with_suffix(".pyx").exists()
    ]


def test_format() -> None:
    run("ruff", "format", "--check", *HOUSES)


def test_lint() -> None:
    run("ruff", "check", *HOUSES)


def test_types() -> None:
    run("mypy")


def test_import_floors() -> None:
    done = subprocess.run(
        [str(Path(sys.executable).parent / "lint-imports"), "--no-logo"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_files_have_one_noun() -> None:
    """A file over 400 lines has a second noun in it."""
    long = {
        str(path.relative_to(ROOT)): count
        for path in sources(".py", ".pyx", ".pxd", ".pyi", ".c", ".h")
        if (count := path.read_text(encoding="utf-8").count("\n")) > LONGEST_FILE
    }
    assert not long


def test_packages_are_listed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    listed = set(project["tool"]["setuptools"]["packages"])
    found = {
        ".".join(path.parent.relative_to(ROOT).parts)
        for house in ("app", "engine", "kernels_pyx", "resources")
        for path in (ROOT / house).rglob("__init__.py")
    }
    assert listed == found


def test_every_header_is_a_dependency_of_an_extension() -> None:
    """setuptools rebuilds only for what `depends` lists."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    listed = {
        name for module in project["tool"]["setuptools"]["ext-modules"] for name in module.get("depends", []) + module["sources"]
    }
    headers = {
        str(path.relative_to(ROOT)) for pattern in ("*.h", "*.def", "*.c") for path in (ROOT / "kernels_pyx" / "c").rglob(pattern)
    }
    assert headers <= listed, sorted(headers - listed)


def test_packaging_is_no_package() -> None:
    """An __init__.py there would shadow the PyPI module of that name."""
    assert not (ROOT / "packaging" / "__init__.py").exists()


@pytest.mark.parametrize("pattern", [r"raise NotImplementedError", r"\bTODO\b", r"\bFIXME\b", r"\bprint\("])
def test_nothing_is_left_undone(pattern: str) -> None:
    """Stubs, to-dos and stray prints; the command line and packaging scripts may print."""
    allowed = ("cli/", "packaging/", "tests/", "app/main.py", "app/__main__.py", "app/demo.py", "app/preflight.py")
    hits = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in sources(".py", ".pyx", ".c", ".h")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if re.search(pattern, line) and not (any(part in str(path) for part in allowed))
    ]
    assert not hits


def test_hostile_build_flags_change_nothing() -> None:
    """-ffast-math in the environment would make importing our modules flush denormals for the whole process."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.search(r"^unexport .*CFLAGS", makefile, re.MULTILINE)


def test_the_other_engine_is_not_installed() -> None:
    done = subprocess.run([sys.executable, "-c", "import llama_cpp"], capture_output=True, check=False)
    assert done.returncode != 0
