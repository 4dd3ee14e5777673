"""An engine that nobody asks anything: it imports nothing heavy, never torch, and uses no processor time."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

from engine.service.engine import Engine
from tests.helpers.golden_models import LLAMAS, golden

TINY = golden(LLAMAS[0]).path


def test_an_idle_engine_imports_nothing_heavy_and_never_torch() -> None:
    script = (
        "import sys, engine.service.engine as e\n"
        "engine = e.Engine()\n"
        "heavy = [m for m in ('numpy', 'tokenizers', 'psutil', 'kernels_pyx.executor') if m in sys.modules]\n"
        "assert not heavy, heavy\n"
        "import threading, time\n"
        "from engine.api.commands import LoadModel\n"
        "from engine.api.values import RequestId\n"
        "done = threading.Event()\n"
        "engine.subscribe(lambda event: done.set() if type(event).__name__ in ('Finished', 'Failed') else None)\n"
        f"engine.submit(LoadModel(RequestId('a'), {str(TINY)!r}))\n"
        "assert done.wait(60)\n"
        "engine.close()\n"
        "bad = [m for m in ('torch', 'gguf', 'triton', 'PySide6', 'jinja2') if m in sys.modules]\n"
        "assert not bad, bad\n"
    )
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", script], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_an_idle_engine_sleeps() -> None:
    engine = Engine()
    thread = next(one for one in threading.enumerate() if one.name == "engine")
    clock = Path(f"/proc/self/task/{thread.native_id}/stat")
    before = clock.read_text().split()[13:15]
    threading.Event().wait(0.3)
    assert clock.read_text().split()[13:15] == before
    engine.close()
