"""The mailbox keeps order, wakes its thread, and stops exactly the work that a Cancel names."""

from __future__ import annotations

import threading

from engine.api.commands import Cancel, Generate, UnloadModel
from engine.api.values import RequestId
from engine.service.mailbox import Mailbox


class Flag:
    """A stop flag that tells."""

    def __init__(self) -> None:
        self.up = False

    def set(self) -> None:
        self.up = True

    def clear(self) -> None:
        self.up = False


def unload(name: str) -> UnloadModel:
    return UnloadModel(RequestId(name))


def cancel(name: str, target: str) -> Cancel:
    return Cancel(RequestId(name), RequestId(target))


def boxed() -> tuple[Mailbox, Flag]:
    mailbox, flag = Mailbox(), Flag()
    mailbox.stops(flag)
    return mailbox, flag


def test_first_in_first_out() -> None:
    mailbox, _ = boxed()
    assert mailbox.put(unload("a")) and mailbox.put(unload("b"))
    assert [mailbox.take(0), mailbox.take(0), mailbox.take(0)] == [unload("a"), unload("b"), None]


def test_a_waiting_thread_is_woken() -> None:
    mailbox, _ = boxed()
    threading.Timer(0.02, lambda: mailbox.put(unload("a"))).start()
    assert mailbox.take(5.0) == unload("a")


def test_cancel_raises_the_flag_only_for_work_under_way() -> None:
    mailbox, flag = boxed()
    assert mailbox.start([RequestId("a")])
    mailbox.put(cancel("c", "other"))
    assert not flag.up
    mailbox.put(cancel("d", "a"))
    assert flag.up


def test_work_does_not_start_while_its_cancel_waits() -> None:
    mailbox, flag = boxed()
    mailbox.put(cancel("c", "a"))
    assert not mailbox.start([RequestId("a")])
    assert mailbox.take(0) == cancel("c", "a")
    assert mailbox.start([RequestId("a")])
    assert not flag.up


def test_queued_requests_leave_with_their_cancel() -> None:
    mailbox, _ = boxed()
    asked = Generate(RequestId("a"), prompt="x")
    mailbox.put(asked)
    mailbox.put(unload("b"))
    mailbox.put(cancel("c", "a"))
    mailbox.put(cancel("d", "loading"))
    assert mailbox.take_cancelled() == (asked, cancel("c", "a"))
    assert [mailbox.take(0), mailbox.take(0), mailbox.take(0)] == [unload("b"), cancel("d", "loading"), None]


def test_closing_stops_work_and_keeps_the_rest_for_the_end() -> None:
    mailbox, flag = boxed()
    mailbox.put(unload("a"))
    mailbox.close()
    assert flag.up
    assert mailbox.take(None) is None
    assert not mailbox.put(unload("b"))
    assert not mailbox.start([])
    assert mailbox.leftovers() == (unload("a"),)
    assert mailbox.leftovers() == ()
