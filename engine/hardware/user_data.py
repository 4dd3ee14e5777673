"""Where what is measured of a machine is kept between runs: the data folder of the user, or below LAYERDECK_HOME."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import platformdirs


def user_data_dir(env: Mapping[str, str] = os.environ) -> Path:
    """The folder; it need not exist. The application keeps its chats in the same one."""
    home = env.get("LAYERDECK_HOME")
    if home:
        return Path(home).expanduser().absolute() / "data"
    return platformdirs.PlatformDirs("layerdeck", appauthor=False).user_data_path
