"""The command `layerdeck shots DIR [NAME...]`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from app.shots.book import SCREENS
from app.shots.run import run


def main(arguments: Sequence[str]) -> int:
    """Write the pictures and print their paths; exit status 0."""
    parser = argparse.ArgumentParser(prog="layerdeck shots", description="Pictures of every screen in both themes, 2880 x 1800.")
    parser.add_argument("directory", type=Path, help="where the PNG files go")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"screens to draw, all by default: {', '.join(SCREENS)}")
    wanted = parser.parse_args(list(arguments))
    unknown = [name for name in wanted.names if name not in SCREENS]
    if unknown:
        parser.error(f"no such screen: {', '.join(unknown)}")
    for path in run(wanted.directory, wanted.names):
        sys.stdout.write(f"{path}\n")
    return 0
