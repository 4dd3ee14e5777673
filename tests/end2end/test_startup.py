"""From the first command of a cold process to a model that answers: its cost in CPU time, which a busy machine hardly moves."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.helpers.beside import BESIDE
from tests.helpers.models import need_included_model

ROOT = Path(__file__).resolve().parents[2]
ALLOWED_S = 0.9 * BESIDE
"""Measured 0.5 s (2 cores, shared with six busy processes). A quiet machine is ready in about as long on the wall clock."""

# One worker: others would spend time of ours waiting for the first token.
LOAD = """
import sys, threading, time
from engine.api.commands import LoadModel
from engine.api.events import Failed, ModelReady
from engine.api.values import LoadOptions, RequestId
from engine.service.engine import Engine

ended = threading.Event()
events = []

def listen(event):
    events.append(event)
    if isinstance(event, (ModelReady, Failed)):
        spent.append(time.process_time())
        ended.set()

spent = [time.process_time()]
engine = Engine(listen)
engine.submit(LoadModel(RequestId("load"), sys.argv[1], LoadOptions(n_threads=1)))
ended.wait(60)
engine.close()
assert any(isinstance(event, ModelReady) for event in events), events
print(spent[1] - spent[0])
"""


def cpu_seconds_to_ready(model: Path) -> float:
    done = subprocess.run([sys.executable, "-c", LOAD, str(model)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return float(done.stdout)


def test_the_included_model_is_ready_soon() -> None:
    model = need_included_model()
    spent: list[float] = []
    while len(spent) < 4 and min(spent, default=ALLOWED_S) >= ALLOWED_S:
        spent.append(cpu_seconds_to_ready(model))
    assert min(spent) < ALLOWED_S, spent
