"""A process that shows hostile answers in the real transcript and watches itself: files opened (by Python through the audit hook,
by anything through inotify on canaries), connections made (audit hook, and a listening canary). Prints one line of JSON."""

from __future__ import annotations

import ctypes
import json
import os
import random
import socket
import struct
import sys
import time
from pathlib import Path

IN_ACCESS, IN_OPEN = 0x1, 0x20
N_RANDOM = 60

TEMPLATES = (
    "![a]({file})",
    "![a](<{file}>)",
    "![a]({path})",
    "![a]({relative})",
    "![a][r]\n\n[r]: {file}",
    "[![a]({file})]({http})",
    "<img src='{file}'>",
    '<img src="{http}/a.png">',
    "<img src={path}>",
    "<IMG SRC=`{file}`>",
    "<iframe src='{file}'></iframe>",
    "<object data='{file}'></object>",
    "<embed src='{file}'>",
    "<video src='{http}/v'></video>",
    "<audio src='{file}'>",
    "<link rel=stylesheet href='{http}/x.css'>",
    "<link rel=stylesheet href='{file}'>",
    "<style>@import url({http});</style>",
    "<body background='{file}'>",
    "<table background='{file}'><tr><td>x</td></tr></table>",
    "<td background={file}>",
    "<p style='background-image:url({file})'>x</p>",
    "<span style='background:url({http})'>x</span>",
    "<ul style='list-style-image:url({file})'>",
    "<svg><image href='{file}'/></svg>",
    "<svg xmlns='http://www.w3.org/2000/svg'><use href='{file}#a'/></svg>",
    "<script src='{http}/x.js'></script>",
    "<script>fetch('{http}')</script>",
    "<meta http-equiv=refresh content='0;url={http}'>",
    "<base href='{http}'>![a](a.png)",
    "<form action='{http}'><input></form>",
    "<a href='{file}'>x</a>",
    "<!DOCTYPE html><html><img src={file}></html>",
    "<?xml version='1.0'?><!DOCTYPE a [<!ENTITY e SYSTEM '{file}'>]><a>&e;</a>",
    "[x]({file})",
    "[x](javascript:alert(1))",
    "[x](data:text/html;base64,PHNjcmlwdD4=)",
    "![x](data:image/png;base64,iVBORw0KGgo=)",
    "[x](smb://127.0.0.1/share)",
    "[x](\\\\127.0.0.1\\share)",
    "<{http}>",
    "{http}",
    "file://{path}",
    "![a](qrc:/x.png)",
    "![a](:/x.png)",
    "![{file}]({http}/a.png?{path})",
    "![a]({fifo})",
    "<img src='{fifo}'>",
    "`![a]({file})`",
    "```html\n<img src='{file}'>\n```",
    "~~~\n![a]({fifo})\n~~~",
    "| a |\n|---|\n| ![a]({file}) |",
    "- ![a]({file})\n  - <img src='{file}'>",
    "> ![a]({file})",
    "# ![a]({file})",
    "$$\\input{{{path}}}$$",
    "$\\includegraphics{{{path}}}$",
    "$$\\href{{{http}}}{{x}}$$",
    "$$\\text{{<img src='{file}'>}}$$",
    "$$<image href='{file}'/>$$",
    "<think>![a]({file})</think>",
    "<think><img src='{file}'>",
    "\u202e![a]({file})\u202c",
    "[\u202egnp.exe]({http})",
    "a\u2066b\u2067c\u2068d\u2069e",
    "\x00\x01\x1b[31m![a]({file})",
    "\ud800![a]({file})",
    "&lt;img src='{file}'&gt;",
    "&#60;img src={file}&#62;",
    "\\<img src='{file}'\\>",
    "!\\[a]({file})",
    "[a]: {file}\n\n![a]",
    "[^1]: ![a]({file})\n\nx[^1]",
    "<details><summary>![a]({file})</summary></details>",
    "{{{{ '{file}' | open }}}}",
    "${{{file}}}",
    "%s%n{file}",
    "a" * 30_000,
    "> " * 3000 + "x",
    "- " * 400 + "x",
    "*" * 5000,
    "[" * 3000,
    "`" * 4001,
    "|" * 3000 + "\n" + "|-" * 300,
    "![" * 2000,
    "<" * 4000,
    "$" * 3001,
    "\\(" * 1500,
    "\n" * 3000,
    "<b>" * 1500,
    "&" * 3000,
    "http://" * 800,
)


def canaries(folder: Path) -> dict[str, str]:
    """A picture, a text and a pipe that must not be opened, and a port that must not be called."""
    picture = folder / "secret.png"
    picture.write_bytes(b"\x89PNG\r\n\x1a\n" + b"\0" * 64)
    fifo = folder / "pipe.png"
    os.mkfifo(fifo)
    return {"file": picture.as_uri(), "path": str(picture), "relative": os.path.relpath(picture), "fifo": fifo.as_uri()}


def samples(targets: dict[str, str]) -> list[str]:
    """Each template alone, then random mixtures."""
    single = [template.format(**targets) if len(template) < 500 else template for template in TEMPLATES]
    rng = random.Random(29)
    short = [text for text in single if len(text) < 500]
    mixed = [rng.choice(("", "\n", "\n\n", " ")).join(rng.sample(short, rng.randint(2, 9))) for _ in range(N_RANDOM)]
    return single + mixed


def watch(folder: Path) -> int:
    """An inotify descriptor that tells of any opening or reading in the folder, whoever does it."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor: int = libc.inotify_init1(os.O_NONBLOCK)
    assert descriptor >= 0
    assert libc.inotify_add_watch(descriptor, os.fsencode(folder), IN_OPEN | IN_ACCESS) >= 0
    return descriptor


def events(descriptor: int) -> list[str]:
    """The names of the files that were touched."""
    try:
        data = os.read(descriptor, 65_536)
    except BlockingIOError:
        return []
    names, at = [], 0
    while at < len(data):
        _wd, _mask, _cookie, length = struct.unpack_from("iIII", data, at)
        names.append(data[at + 16 : at + 16 + length].rstrip(b"\0").decode() or ".")
        at += 16 + length
    return names


def main(folder: Path) -> None:
    """Shows every sample, streamed in pieces and whole."""
    server = socket.create_server(("127.0.0.1", 0))
    server.setblocking(False)
    targets = canaries(folder) | {"http": f"http://127.0.0.1:{server.getsockname()[1]}"}
    opened: list[str] = []
    connected: list[str] = []
    watching = False

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if watching and event == "open":
            opened.append(str(arguments[0]))
        elif watching and event in ("socket.connect", "socket.getaddrinfo", "subprocess.Popen", "os.exec", "os.posix_spawn"):
            connected.append(f"{event} {arguments[1:]}")

    sys.addaudithook(hook)
    from PySide6.QtWidgets import QApplication

    from app import theme
    from app.chat.transcript_view import TranscriptView
    from app.shots import script

    app = QApplication([])
    theme.apply(app, theme.DARK)
    view = TranscriptView()
    view.resize(800, 600)
    view.show()

    def settle() -> None:
        deadline = time.monotonic() + 60
        app.processEvents()
        while view.pending and time.monotonic() < deadline:
            time.sleep(0.002)
            app.processEvents()

    view.set_messages((*script.streaming(), script.message(3, "assistant", script.MATH)))  # fonts, icons, formulas are loaded now
    settle()
    view.grab()
    touched = watch(folder)
    watching = True
    lost: list[str] = []
    slowest_ms = 0.0
    texts = samples(targets)
    for number, text in enumerate(texts):
        view.set_messages((script.message(1, "user", text), script.message(2, "assistant", "", "streaming")))
        began_s = time.thread_time()
        for at in range(0, len(text), 512):
            view.append_text(2, text[at : at + 512])
        view.update_message(script.message(2, "assistant", text))
        app.processEvents()
        slowest_ms = max(slowest_ms, 1000 * (time.thread_time() - began_s) / (1 + len(text) // 4096))
        settle()
        view.grab()
        message = view._views[2]
        column = message._column
        assert column is not None
        if message.row.text != text or "".join(block.source for block in column._splitter.closed) != text:
            lost.append(f"{number}: {text[:80]!r}")
    watching = False
    try:
        server.accept()
        connected.append("the canary port")
    except BlockingIOError:
        pass
    result = {
        "n": len(texts),
        "opened": opened,
        "connected": connected,
        "touched": events(touched),
        "lost": lost,
        "slowest_ms": slowest_ms,
    }
    view.shut_down()
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    os.environ["QT_QPA_PLATFORM"] = "offscreen"
    main(Path(sys.argv[1]))
