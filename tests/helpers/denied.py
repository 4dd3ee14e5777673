"""A process to which the system denies policies of memory, as the usual profile of containers does: a filter of its own."""

from __future__ import annotations

import ctypes
import errno

CALLS = (237, 238, 239, 256, 279)
"""mbind, set_mempolicy, get_mempolicy, migrate_pages, move_pages of x86-64."""
_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
_NO_NEW_PRIVS, _SET_SECCOMP, _FILTER = 38, 22, 2


class _Step(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint16), ("yes", ctypes.c_uint8), ("no", ctypes.c_uint8), ("k", ctypes.c_uint32))


class _Program(ctypes.Structure):
    _fields_ = (("n", ctypes.c_uint16), ("steps", ctypes.POINTER(_Step)))


def deny(calls: tuple[int, ...] = CALLS) -> None:
    """From now on these calls fail with EPERM in this thread and those it starts. There is no way back.

    Raises:
        OSError: the system has no such filters.
    """
    steps = [_Step(_LOAD, 0, 0, 0)]
    for i, number in enumerate(calls):
        steps.append(_Step(_EQUAL, len(calls) - i, 0, number))
    steps += [_Step(_RETURN, 0, 0, _ALLOW), _Step(_RETURN, 0, 0, _ERROR | errno.EPERM)]
    program = _Program(len(steps), (_Step * len(steps))(*steps))
    libc = ctypes.CDLL(None, use_errno=True)
    for arguments in ((_NO_NEW_PRIVS, 1, 0, 0, 0), (_SET_SECCOMP, _FILTER, ctypes.byref(program), 0, 0)):
        if libc.prctl(*arguments) != 0:
            number = ctypes.get_errno()
            raise OSError(number, "prctl")
