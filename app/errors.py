"""Errors the application shows to people, one sentence each with what to do.

Bugs are other exceptions and end in the crash dialog.
"""

from __future__ import annotations


class UserFacingError(Exception):
    """A known failure. `str(error)` is the sentence that is shown."""


class StoreError(UserFacingError):
    """The chats could not be read or written. Nothing that was acknowledged is lost; the work can be tried again."""


class SettingsError(UserFacingError):
    """The settings could not be written."""
