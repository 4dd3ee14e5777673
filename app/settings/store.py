"""SettingsStore: the settings file.

Reads what it can, keeps what it does not know, writes atomically, tells listeners what changed.
"""

from __future__ import annotations

import os
import tempfile
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import ValidationError

from app.errors import SettingsError
from app.log import logger
from app.settings.migrations import upgraded
from app.settings.schema import Settings, option_keys, section_type

Listener = Callable[[str, Any], None]
log = logger("settings")


class SettingsStore:
    """notices: what the user should know after reading, one sentence each. A value out of range costs that value only."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.notices: list[str] = []
        self._listeners: list[Listener] = []
        self._raw = upgraded(self._read())
        self._values = self._valid(self._raw)

    @property
    def values(self) -> Settings:
        """The present settings."""
        return self._values

    def listen(self, listener: Listener) -> None:
        """Calls `listener(key, value)` after each change."""
        self._listeners.append(listener)

    def set(self, key: str, value: Any) -> None:
        """Changes one option, `section.name`, and saves.

        Raises ValueError for a value out of range (nothing changes) and SettingsError when the file cannot be written (the value
        then holds for this run, and listeners know it).
        """
        section, name = key.split(".", 1)
        model = section_type(section)
        changed = model.model_validate({**getattr(self._values, section).model_dump(), name: value})
        if getattr(changed, name) == self._values.get(key) and name in self._raw.get(section, {}):
            return
        self._values = self._values.model_copy(update={section: changed})
        self._raw.setdefault(section, {})[name] = _toml_value(getattr(changed, name))
        for listener in tuple(self._listeners):
            listener(key, getattr(changed, name))
        self._save()

    def reset(self, key: str) -> None:
        """Back to the default. Raises SettingsError like `set`."""
        section, name = key.split(".", 1)
        self.set(key, section_type(section).model_fields[name].default)

    def _read(self) -> dict[str, Any]:
        try:
            return tomllib.loads(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            return self._set_aside(str(error))
        except OSError as error:
            self.notices.append(f"The settings in {self.path} cannot be read ({error.strerror}); the defaults are used.")
            return {}

    def _set_aside(self, cause: str) -> dict[str, Any]:
        kept = self.path.with_name(f"{self.path.stem}.damaged-{time.strftime('%Y%m%d-%H%M%S')}{self.path.suffix}")
        try:
            self.path.replace(kept)
        except OSError:
            kept = self.path
        self.notices.append(f"The settings file was damaged ({cause}). It was kept as {kept}; the defaults are used.")
        return {}

    def _valid(self, raw: dict[str, Any]) -> Settings:
        """Option by option, so that one bad value does not cost the others."""
        good: dict[str, dict[str, Any]] = {}
        for key in option_keys():
            section, name = key.split(".", 1)
            table = raw.get(section)
            if not isinstance(table, dict) or name not in table:
                continue
            try:
                section_type(section).model_validate({name: table[name]})
            except ValidationError:
                self.notices.append(f"{key} = {table[name]!r} in {self.path} is not allowed; the default is used.")
                continue
            good.setdefault(section, {})[name] = table[name]
        for section, table in tuple(raw.items()):
            if section in Settings.model_fields and not isinstance(table, dict):
                del raw[section]
        return Settings.model_validate(good)

    def _save(self) -> None:
        """Writes beside the file and renames: a crash leaves the old file or the new one."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            descriptor, name = tempfile.mkstemp(dir=self.path.parent, prefix=".settings-")
            try:
                with os.fdopen(descriptor, "wb") as file:
                    tomli_w.dump(self._raw, file)
                    file.flush()
                    os.fsync(file.fileno())
                Path(name).replace(self.path)
            except BaseException:
                Path(name).unlink(missing_ok=True)
                raise
        except OSError as error:
            raise SettingsError(
                f"The settings could not be saved in {self.path} ({error.strerror}); they hold until you quit."
            ) from error
        log.debug("saved")


def _toml_value(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
