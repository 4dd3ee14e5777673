"""The team of workers: counts right, parks, joins, survives a fork."""

from __future__ import annotations

import errno
import os
import time

import psutil
import pytest

from kernels_pyx.pool import Pool


@pytest.mark.parametrize("n_workers", [1, 2, 3, 7])
def test_team_does_each_task_once(n_workers: int) -> None:
    pool = Pool([-1] * n_workers)
    assert [pool.tally(n) for n in (0, 1, 1000, 100_000)] == [0, 1, 1000, 100_000]
    pool.close()


def test_thousands_of_jobs() -> None:
    pool = Pool([-1, -1, -1])
    assert sum(pool.tally(3) for _ in range(5000)) == 15000
    pool.close()


def test_thousands_of_teams() -> None:
    before = psutil.Process().num_threads()
    for i in range(1500):
        pool = Pool([-1, -1, -1], spin_us=i % 3)
        if i % 2:
            assert pool.tally(5) == 5
        pool.close()
    assert psutil.Process().num_threads() <= before  # one of another test may have ended meanwhile


def test_workers_are_pinned_and_say_where_not() -> None:
    here = sorted(os.sched_getaffinity(0))
    pool = Pool([here[-1], here[0], here[-1]])
    assert pool.tally(1000) == 1000
    deadline = time.monotonic() + 2
    while 0 in pool.threads and time.monotonic() < deadline:
        time.sleep(0.001)
    assert [os.sched_getaffinity(thread) for thread in pool.threads] == [{here[0]}, {here[-1]}]
    assert (pool.refused, os.sched_getaffinity(0)) == ((), set(here))  # the caller's mask is its own
    pool.close()
    assert pool.threads == ()


def test_cores_that_are_not_there_are_refused_and_the_team_works() -> None:
    absent = [1023, 5000]  # beyond what is on, and beyond the system's set of processors
    for cores in ([-1, *absent], [absent[0], -1]):
        pool = Pool(cores)
        assert pool.refused == tuple((core, errno.EINVAL) for core in cores if core in absent)
        assert pool.tally(1000) == 1000
        pool.close()


def test_idle_team_parks_and_uses_no_cpu() -> None:
    pool = Pool([-1, -1, -1])
    pool.tally(10)
    deadline = time.monotonic() + 2
    while pool.parked < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert pool.parked == 2
    used = []
    for _ in range(5):  # other threads of the test run may be busy for a moment
        before = time.process_time()
        time.sleep(0.2)
        used.append(time.process_time() - before)
    assert min(used) < 0.2 * 0.01
    assert pool.tally(1000) == 1000
    pool.close()


def test_forgotten_team_ends_its_threads() -> None:
    before = psutil.Process().num_threads()
    pool = Pool([-1, -1])
    pool.tally(1)
    del pool
    assert psutil.Process().num_threads() <= before  # one of another test may have ended meanwhile


def test_closed_team_refuses_work() -> None:
    pool = Pool([-1, -1])
    pool.close()
    pool.close()
    with pytest.raises(ValueError, match="closed"):
        pool.tally(1)
    with pytest.raises(ValueError, match="0 workers"):
        Pool([])


def test_forked_child_works_alone_and_ends() -> None:
    pool = Pool([-1, -1, -1])
    pool.tally(100)
    child = os.fork()
    if child == 0:
        counted = pool.tally(1000)
        pool.close()
        os._exit(0 if counted == 1000 else 1)
    deadline = time.monotonic() + 10
    status = 1
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        time.sleep(0.01)
    else:
        os.kill(child, 9)
        os.waitpid(child, 0)
        pytest.fail("the child hangs")
    assert status == 0
    assert pool.tally(1000) == 1000
    pool.close()
