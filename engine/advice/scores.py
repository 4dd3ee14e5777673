"""What was predicted against what came of it, after people applied a proposal: kept in the user's data folder.

{"layerdeck": "scores", "version": 1, "scores": [{"predicted": 18.0, "real": 16.5}, ...]}    percent of tokens a second
"""

from __future__ import annotations

import json
import math
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

KEPT = 100
TOLD = 5
"""The newest, which people are told of."""
_NAME = "predictions.json"


@dataclass(frozen=True, slots=True)
class Score:
    """Percent of tokens a second more: as predicted, and as measured before and after."""

    predicted: float
    real: float

    @property
    def off(self) -> float:
        """How far the speed is from the predicted one, in percent of it."""
        return 100 * abs((100 + self.real) / (100 + self.predicted) - 1)


class Scores:
    """The scores of one folder. A file that cannot be read is as good as none, one that cannot be written is not missed."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / _NAME
        self._scores = list(_read(self._path))

    @property
    def all(self) -> tuple[Score, ...]:
        """Oldest first."""
        return tuple(self._scores)

    def add(self, predicted: float, before_tok_s: float, after_tok_s: float) -> Score:
        """A proposal was applied. predicted: percent; rates: decoded tokens a second of like answers before and after."""
        score = Score(predicted, 100 * (after_tok_s / before_tok_s - 1))
        self._scores = [*self._scores, score][-KEPT:]
        self._write()
        return score

    def quantile(self, share: float) -> float | None:
        """So far off, in percent, are a `share` of all predictions at most; None without any."""
        ordered = sorted(one.off for one in self._scores)
        return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)] if ordered else None

    def sentence(self) -> str:
        """`The last 5 predictions were off by 4 % (median), 9 of 10 by at most 7 %.`; "" without any."""
        last = sorted(one.off for one in self._scores[-TOLD:])
        if not last:
            return ""
        middle = (last[(len(last) - 1) // 2] + last[len(last) // 2]) / 2
        which = "The last prediction was" if len(last) == 1 else f"The last {len(last)} predictions were"
        most = self.quantile(0.9)
        rest = (
            f" (median); 9 of 10 of all {len(self._scores)} by at most {most:.0f} %" if len(last) > 1 and most is not None else ""
        )
        return f"{which} off by {middle:.0f} %{rest}."

    def _write(self) -> None:
        value = {
            "layerdeck": "scores",
            "version": 1,
            "scores": [{"predicted": one.predicted, "real": one.real} for one in self._scores],
        }
        part = self._path.with_suffix(f".{os.getpid()}.part")
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            part.write_text(json.dumps(value, indent=1) + "\n")
            part.replace(self._path)
        except OSError:
            with suppress(OSError):
                part.unlink()


def _read(path: Path) -> tuple[Score, ...]:
    try:
        value = json.loads(path.read_text())
        found = [Score(float(one["predicted"]), float(one["real"])) for one in value["scores"]]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return ()
    return tuple(one for one in found if math.isfinite(one.off))[-KEPT:]
