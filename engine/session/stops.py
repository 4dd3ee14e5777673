"""Stop strings over a stream of text: what may be shown, and whether the answer ends."""

from __future__ import annotations

from collections.abc import Sequence


class StopMatcher:
    """Holds text back while it could be the start of a stop string; nothing of a stop string is ever shown."""

    def __init__(self, stops: Sequence[str]) -> None:
        """stops: texts that end the answer; none of them empty."""
        self._stops = tuple(stops)
        self._held = ""
        self.stopped = False

    def push(self, text: str) -> str:
        """The text that may be shown now. `stopped` is set once a stop string was found; later text is swallowed."""
        if self.stopped:
            return ""
        if not self._stops:
            return text
        text = self._held + text
        found = min((at for stop in self._stops if (at := text.find(stop)) >= 0), default=-1)
        if found >= 0:
            self.stopped = True
            self._held = ""
            return text[:found]
        keep = max(_overlap(text, stop) for stop in self._stops)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def flush(self) -> str:
        """The rest, at the end of the answer."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that is a proper start of `stop`."""
    for n in range(min(len(text), len(stop) - 1), 0, -1):
        if stop.startswith(text[len(text) - n :]):
            return n
    return 0
