"""Hostile model output in the real transcript, in a process that watches itself: nothing is opened, nobody is called."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_model_text_opens_no_file_and_no_socket_and_is_kept(tmp_path: Path) -> None:
    folder = tmp_path / "canaries"
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "tests.helpers.hostile_child", str(folder)],
        cwd=ROOT,
        env={**os.environ, "QT_QPA_PLATFORM": "offscreen"},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    result = json.loads(done.stdout)
    own = (
        str(ROOT),
        sys.prefix,
        sys.base_prefix,
        *sysconfig.get_paths().values(),
        "/usr/share/fonts",
        "/proc/self/",
        "/dev/null",
    )
    assert result["n"] >= 100
    assert [path for path in result["opened"] if not path.startswith(own)] == []
    assert result["touched"] == []
    assert result["connected"] == []
    assert result["lost"] == []
    assert result["slowest_ms"] < 2000
