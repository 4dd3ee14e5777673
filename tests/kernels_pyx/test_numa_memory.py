"""The system calls for NUMA policies, on whatever machine this is: one node is enough to see that they arrive."""

from __future__ import annotations

import errno
import multiprocessing
import os
import platform
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from kernels_pyx import numa_memory
from kernels_pyx.arena import Arena
from tests.helpers.denied import deny


@pytest.fixture(scope="module", autouse=True)
def allowed() -> None:
    try:
        numa_memory.policy()
    except OSError as error:
        pytest.skip(f"policies of memory cannot be asked for here: {error}")


@pytest.fixture
def arena() -> Iterator[Arena]:
    made = Arena(64 << 12)
    yield made
    made.close()


@pytest.fixture
def usual() -> Iterator[None]:
    yield
    numa_memory.set_policy(numa_memory.DEFAULT)


def _node() -> int:
    return numa_memory.here()[1]


def _written(arena: Arena) -> list[int]:
    np.frombuffer(memoryview(arena), np.uint8)[:] = 1
    return [arena.address + at for at in range(0, arena.nbytes, 4096)]


def test_a_bound_range_says_so_and_lies_there(arena: Arena) -> None:
    node = _node()
    assert numa_memory.policy(arena.address) == (numa_memory.DEFAULT, ())
    for mode in (numa_memory.PREFERRED, numa_memory.INTERLEAVE, numa_memory.BIND):
        numa_memory.bind(arena.address, arena.nbytes, mode, (node,))
        assert numa_memory.policy(arena.address) == (mode, (node,))
    assert set(numa_memory.move_pages(_written(arena))) == {node}


def test_ends_are_widened_to_whole_pages(arena: Arena) -> None:
    node = _node()
    numa_memory.bind(arena.address + 4096 + 5, 10, numa_memory.PREFERRED, (node,), move=True)
    modes = [numa_memory.policy(arena.address + at)[0] for at in (0, 4096, 8192)]
    assert modes == [numa_memory.DEFAULT, numa_memory.PREFERRED, numa_memory.DEFAULT]


def test_the_policy_of_a_thread_is_its_own(usual: None) -> None:
    node = _node()
    numa_memory.set_policy(numa_memory.PREFERRED, (node,))
    assert numa_memory.policy() == (numa_memory.PREFERRED, (node,))
    seen: list[tuple[int, tuple[int, ...]]] = []
    made_before = threading.Event()

    def other() -> None:
        numa_memory.set_policy(numa_memory.INTERLEAVE, (node,))
        seen.append(numa_memory.policy())
        made_before.set()

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert made_before.is_set() and seen == [(numa_memory.INTERLEAVE, (node,))]
    assert numa_memory.policy() == (numa_memory.PREFERRED, (node,))
    numa_memory.set_policy(numa_memory.DEFAULT)
    assert numa_memory.policy() == (numa_memory.DEFAULT, ())


def test_pages_that_are_not_there_are_told(arena: Arena) -> None:
    pages = [arena.address, arena.address + 4096]
    assert numa_memory.move_pages(pages) == [-errno.ENOENT, -errno.ENOENT]
    _written(arena)
    assert numa_memory.move_pages(pages) == [_node()] * 2
    assert numa_memory.move_pages(pages, [_node()] * 2) == [_node()] * 2
    assert numa_memory.move_pages([]) == []


def test_what_the_system_refuses_is_its_errno(arena: Arena) -> None:
    absent = 1000
    with pytest.raises(OSError, match="mbind") as refused:
        numa_memory.bind(arena.address, arena.nbytes, numa_memory.PREFERRED, (absent,))
    assert refused.value.errno == errno.EINVAL
    with pytest.raises(OSError, match="set_mempolicy"):
        numa_memory.set_policy(numa_memory.BIND, (absent,))
    with pytest.raises(OSError, match="mbind"):
        numa_memory.bind(4096, 4096, numa_memory.PREFERRED, (_node(),), move=True)  # nothing is mapped there
    for nodes in ((-1,), (1024,)):
        with pytest.raises(ValueError, match="nodes are"):
            numa_memory.bind(arena.address, arena.nbytes, numa_memory.PREFERRED, nodes)
    with pytest.raises(ValueError, match="differ"):
        numa_memory.move_pages([arena.address], [])
    assert numa_memory.policy(arena.address) == (numa_memory.DEFAULT, ())


def test_the_processor_is_the_one_that_is_pinned() -> None:
    before = os.sched_getaffinity(0)
    cpu = max(before)
    os.sched_setaffinity(0, {cpu})
    try:
        assert numa_memory.here()[0] == cpu
    finally:
        os.sched_setaffinity(0, before)


def _refused() -> list[int | None]:
    deny()
    arena = Arena(4096)
    found: list[int | None] = []
    for call in (
        lambda: numa_memory.bind(arena.address, 4096, numa_memory.PREFERRED, (0,)),
        lambda: numa_memory.set_policy(numa_memory.DEFAULT),
        lambda: numa_memory.policy(),
        lambda: numa_memory.move_pages([arena.address]),
    ):
        try:
            call()
        except OSError as error:
            found.append(error.errno)
    return found


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the filter names the calls of x86-64")
def test_a_container_that_denies_them_is_told() -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(_refused) == [errno.EPERM] * 4
