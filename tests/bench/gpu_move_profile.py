"""What the thread of a move does, function by function.

Run as `python -m tests.bench.gpu_move_profile OUT.json` on a machine with a GPU, or with `--emulate` on any. Figures of the
moves themselves are too high by what the profiler takes: `tests.bench.gpu_migrate` has those.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import pstats
import sys
from pathlib import Path
from typing import Any

from tests.bench import gpu_migrate
from tests.bench.gpu import Result, short

N_FUNCTIONS = 45


class Watched:
    """The runs of moves under a profiler, one after another; `last` is the newest. Not for two models at once."""

    def __init__(self) -> None:
        from engine.runtime.move import Move

        self.last: cProfile.Profile | None = None
        self._kind, self._run = Move, Move._run

    def __enter__(self) -> Watched:
        run = self._run

        def profiled(move: Any) -> None:
            self.last = cProfile.Profile()
            self.last.runcall(run, move)

        self._kind._run = profiled  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        self._kind._run = self._run  # type: ignore[method-assign]

    def rows(self, order: str) -> list[str]:
        """The functions that took most, `own` or `all` of what they call: milliseconds of both, calls, name."""
        if self.last is None:
            return []
        stats: Any = pstats.Stats(self.last)
        found = sorted(stats.stats.items(), key=lambda one: -one[1][2 if order == "own" else 3])[:N_FUNCTIONS]
        return [
            f"{1e3 * own:.1f} {1e3 * total:.1f} x{calls} {Path(file).name}:{line} {name}"
            for (file, line, name), (_, calls, own, total, _) in found
        ]


def main() -> int:
    """Runs the moves of the other bench and writes what their threads did beside them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="where the JSON goes")
    parser.add_argument("--emulate", action="store_true", help="a GPU that the CPU plays")
    args = parser.parse_args()
    if args.emulate:
        os.environ["LAYERDECK_GPU"] = "emulate:1"
    found: Result = {}

    def save() -> None:
        args.out.write_text(json.dumps(found, indent=1), encoding="utf-8")

    taken = gpu_migrate.taken_by
    with Watched() as watched:
        gpu_migrate.taken_by = lambda move: taken(move) | {"own": watched.rows("own"), "all": watched.rows("all")}
        try:
            gpu_migrate.moves(found, emulate=args.emulate, save=save)
        except Exception as error:
            found["error"] = short(error)
    save()
    return 0


if __name__ == "__main__":
    sys.exit(main())
