"""What the engine tells of its own work on a real GPU: shares of a token by device, waits by the card's clock, traffic of links.

Run as `python -m tests.bench.gpu_work MODEL [FLAGS] [OUT.json]` on a machine with a GPU, e.g. with '-ngl 99 -ot exps=CPU'. MODEL:
a file, or KIND:LAYERS of a synthetic one that is written first. It loads the model, answers for some seconds while sensors are
watched, and prints the figures beside those of the driver, and where the time of one token went.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path

from engine.api.commands import Command, Generate, LoadModel, WatchSensors
from engine.api.events import Counters, Event, Failed, Finished, Sensors
from engine.api.values import LoadOptions, RequestId, SamplingParams, TokenTrace
from engine.service.engine import Engine
from tests.bench.synthetic import write_synthetic

N_TOKENS = 600


class Listener:
    """Keeps readings, and says when a request has ended."""

    def __init__(self) -> None:
        self.counters: list[Counters] = []
        self.sensors: list[Sensors] = []
        self._ended: dict[RequestId, threading.Event] = {}

    def __call__(self, event: Event) -> None:
        if isinstance(event, Counters):
            self.counters.append(event)
        elif isinstance(event, Sensors):
            self.sensors.append(event)
        elif isinstance(event, Finished | Failed):
            if isinstance(event, Failed):
                sys.stderr.write(f"{event.message}\n")
            self._ended.setdefault(event.request_id, threading.Event()).set()

    def run(self, engine: Engine, command: Command) -> None:
        """Submits a command and waits for its end."""
        ended = self._ended.setdefault(command.request_id, threading.Event())
        engine.submit(command)
        ended.wait(300)


def trace_text(trace: TokenTrace) -> str:
    """Of a traced step: what each device did in all, and its first spans; whether they are in order within the step."""
    lines = [f"trace: {trace.total_ms:.3f} ms, {len(trace.spans)} spans"]
    for device in dict.fromkeys(span.device for span in trace.spans):
        spans = [span for span in trace.spans if span.device == device]
        sums: dict[str, float] = {}
        for span in spans:
            sums[span.kind] = sums.get(span.kind, 0.0) + span.ms
        told = ", ".join(f"{kind} {ms:.3f} ms" for kind, ms in sums.items())
        sound = all(first.start_ms + first.ms <= then.start_ms + 1e-6 for first, then in pairwise(spans))
        lines.append(f"  {device}: {told}; {'in order' if sound else 'NOT in order'}")
        lines += [f"    {span.start_ms:8.3f} {span.ms:8.3f} {span.kind} {span.layer}" for span in spans[:8]]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Measures, and writes what it found."""
    listener = Listener()
    path = sys.argv[1]
    if not Path(path).exists():
        kind, layers = path.split(":")
        path = str(Path(tempfile.mkdtemp()) / "model.gguf")
        write_synthetic(kind, Path(path), int(layers), words=True)
    engine = Engine(listener)
    placement = sys.argv[2] if len(sys.argv) > 2 else ""
    listener.run(engine, LoadModel(RequestId("load"), path, LoadOptions(n_ctx=2048, placement=placement)))
    listener.run(engine, WatchSensors(RequestId("watch"), 0.5))
    sampling = SamplingParams(max_tokens=N_TOKENS, temperature=0.0)
    listener.run(engine, Generate(RequestId("answer"), prompt="Count: 1, 2, 3,", sampling=sampling, ignore_eog=True))
    engine.close()
    found = []
    for one in listener.counters:
        if one.sample.n_decoded:
            near = min(listener.sensors, key=lambda sensors: abs(sensors.snapshot.time_s - one.sample.time_s))
            cards = {gpu.key: (gpu.state, gpu.busy_percent, gpu.power_w) for gpu in near.snapshot.gpus}
            found.append({"work": asdict(one.sample), "cards": cards})
    for row in found:
        sample = row["work"]
        sys.stdout.write(
            f"{sample['decode_tok_s']:.1f} tok/s, step {sample['step_ms']:.2f} ms, outside {sample['outside_ms']:.2f}\n"
        )
        for device in sample["devices"]:
            sys.stdout.write(f"  {json.dumps(device)}\n")
        sys.stdout.write(f"  driver: {row['cards']}\n")
    traced = [one.sample.trace for one in listener.counters if one.sample.trace is not None]
    if traced:
        sys.stdout.write(trace_text(traced[-1]))
    if len(sys.argv) > 3:
        Path(sys.argv[3]).write_text(json.dumps(found, indent=1), encoding="utf-8")
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main())
