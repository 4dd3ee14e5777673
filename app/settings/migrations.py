"""Steps from an older settings file to the present one, each a named function with a test by its name.

The file says its version in the top-level key `version`; a file without one is as new as the first version.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Table = dict[str, Any]
Step = Callable[[Table], Table]

VERSION = 1
STEPS: dict[int, Step] = {}
"""From version to the function that leads to the next one."""


def upgraded(data: Table, steps: Mapping[int, Step] = STEPS, newest: int = VERSION) -> Table:
    """The file's table in the form of version `newest`. A newer file is taken as it is: unknown keys are kept."""
    found = data.get("version")
    version = found if isinstance(found, int) else 1
    while version < newest:
        data = steps[version](data)
        version += 1
    return {**data, "version": version}
