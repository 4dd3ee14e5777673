"""`layerdeck` and `python -m app`: the window, or one of the commands. Qt is imported only for the window and for `shots`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

DEFAULT_PROMPT = "Write one sentence about the sea."


@dataclass(frozen=True, slots=True)
class WindowArguments:
    """model: a file to load. prompt: what a run without a display asks."""

    model: str | None = None
    prompt: str = DEFAULT_PROMPT


def window_arguments(arguments: Sequence[str]) -> WindowArguments | None:
    """What the window is started with; None when the arguments are for a command."""
    model: str | None = None
    prompt = DEFAULT_PROMPT
    rest = list(arguments)
    while rest:
        first = rest.pop(0)
        if first == "--prompt" and rest:
            prompt = rest.pop(0)
        elif first.startswith("--prompt="):
            prompt = first.removeprefix("--prompt=")
        elif model is None and _is_model(first):
            model = first
        else:
            return None
    return WindowArguments(model, prompt)


def _is_model(argument: str) -> bool:
    return not argument.startswith("-") and (argument.lower().endswith(".gguf") or "/" in argument or Path(argument).is_file())


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the window or a command; the exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["shots"]:
        return _shots(arguments[1:])
    wanted = window_arguments(arguments)
    if wanted is None:
        from engine.cli.main import main as command

        return command(arguments)
    return _window(wanted)


def _window(wanted: WindowArguments) -> int:
    from app.preflight import prepare

    platform, sentence = prepare()
    if sentence:
        sys.stderr.write(sentence + "\n")
        return 1
    from app.main import run

    return run(wanted.model, wanted.prompt, offscreen=platform in ("offscreen", "minimal"))


def _shots(arguments: list[str]) -> int:
    import os

    if not arguments or any(one.startswith("-") for one in arguments):
        asked = arguments[:1] in (["-h"], ["--help"])
        (sys.stdout if asked else sys.stderr).write("usage: layerdeck shots DIR [SCREEN...]\n")
        return 0 if asked else 2
    from app.preflight import prepare

    os.environ["QT_QPA_PLATFORM"] = "offscreen"
    _, sentence = prepare()
    if sentence:
        sys.stderr.write(sentence + "\n")
        return 1
    from app.shots.book import SCREENS
    from app.shots.run import run

    unknown = next((one for one in arguments[1:] if one not in SCREENS), None)
    if unknown is not None:
        sys.stderr.write(f"there is no screen named {unknown}; there are {', '.join(SCREENS)}\n")
        return 2
    for path in run(Path(arguments[0]), arguments[1:]):
        sys.stdout.write(f"{path}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
