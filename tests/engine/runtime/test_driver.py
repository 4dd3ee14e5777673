"""Who steps has the driver until the program of the CPU is at work: no call that waits for an idle card comes between."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest

from engine.errors import InvalidRequest
from engine.runtime.driver import DRIVER, Driver
from tests.helpers.golden_models import batch, golden, greedy
from tests.helpers.placed import hybrid as half
from tests.helpers.placed import need_torch, on_cpu, open_placed


def is_free() -> bool:
    """Whether another thread would get it."""
    found: list[bool] = []

    def take() -> None:
        found.append(DRIVER.lock.acquire(blocking=False))
        if found[0]:
            DRIVER.lock.release()

    other = threading.Thread(target=take)
    other.start()
    other.join()
    return found[0]


def test_who_has_the_driver_calls_within_a_call_while_a_step_waits_for_it() -> None:
    driver, had = Driver(), threading.Event()

    def call() -> None:
        with driver:
            had.set()
            while not driver._wanted:
                time.sleep(0.001)
            with driver:  # memory for the results of a kernel whose code is being loaded
                pass

    caller = threading.Thread(target=call, daemon=True)
    caller.start()
    assert had.wait(5)
    taken: list[bool] = []
    stepper = threading.Thread(target=lambda: taken.append(driver.take() is None), daemon=True)
    stepper.start()
    stepper.join(5)
    caller.join(5)
    assert taken == [True] and not caller.is_alive()


def test_a_program_lets_go_as_it_begins_and_a_refused_step_does_not() -> None:
    model = open_placed(golden("qwen3").path, on_cpu)
    assert model.placed is not None and model.placed.programs is not None
    programs, one = model.placed.programs, batch([1])
    compiled = programs.compiled[0]
    assert compiled is not None
    logits = np.empty((1, model.spec.n_vocab), np.float32)
    arguments: Any = (one.token_ids, one.positions, one.seq_of_row, programs.fill_tables(one), one.out_rows, logits, model.abort)
    DRIVER.take()
    assert not is_free()
    compiled.program.run(*arguments, let_go=DRIVER.lock)
    assert is_free()
    DRIVER.take()
    with pytest.raises(ValueError, match="differ in length"):
        compiled.program.run(one.token_ids, np.zeros(2, np.int32), *arguments[2:], let_go=DRIVER.lock)
    assert not is_free()
    DRIVER.let_go()
    DRIVER.let_go()
    assert is_free()
    model.close()


def test_nothing_that_waits_for_an_idle_card_comes_between_launch_and_program(monkeypatch: pytest.MonkeyPatch) -> None:
    need_torch()
    monkeypatch.setenv("LAYERDECK_GPU", "emulate:1")
    from engine.runtime import gpu_executor

    model = open_placed(golden("qwen3moe").path, half)
    executor: Any = model.executor
    seen: list[tuple[str, bool]] = []
    usual = gpu_executor.GpuExecutor._run_cpu

    class Meeting:
        """As much of a meeting as a step asks for; the lanes' pieces run before the program."""

        class host:
            stopped = 0

            @staticmethod
            def stop() -> None:
                seen.append(("stop", is_free()))

        def next_step(self) -> None:
            seen.append(("begin", is_free()))

        def problem(self) -> None:
            seen.append(("end", is_free()))

        def reset(self) -> None:
            return

    def run_cpu(self: Any, *args: Any) -> None:
        seen.append(("program", is_free()))
        if refuse:
            raise InvalidRequest("refused")

    refuse: list[bool] = []
    monkeypatch.setattr(gpu_executor.GpuExecutor, "_run_cpu", run_cpu)
    bound = next(one for index, one in executor._binder.kept if index == 0)
    work = type("Work", (), {"index": 0, "logits": np.empty((0, 0), np.float32)})()
    monkeypatch.setattr(type(bound), "pieces", property(lambda self: []))
    executor._run_beside(bound, Meeting(), work)
    assert seen == [("begin", True), ("program", False), ("end", True)]
    seen.clear()
    refuse.append(True)
    with pytest.raises(InvalidRequest):
        executor._run_beside(bound, Meeting(), work)
    assert seen == [("begin", True), ("program", False), ("stop", False), ("end", True)]
    monkeypatch.setattr(gpu_executor.GpuExecutor, "_run_cpu", usual)
    monkeypatch.undo()
    assert greedy(model, golden("qwen3moe").ids("short"), 4) == golden("qwen3moe").greedy("short")[:4]
    model.close()
