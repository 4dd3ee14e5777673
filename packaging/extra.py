"""Prints the requirements of one extra of pyproject.toml, one a line, nested extras resolved."""

import sys
import tomllib
from pathlib import Path

project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]


def expand(name: str) -> list[str]:
    """Requirements of extra `name`."""
    out: list[str] = []
    for requirement in project["optional-dependencies"][name]:
        if requirement.startswith(project["name"] + "["):
            for inner in requirement[requirement.index("[") + 1 : -1].split(","):
                out += expand(inner)
        else:
            out.append(requirement)
    return out


print("\n".join(expand(sys.argv[1])))
