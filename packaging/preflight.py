"""Names what the build needs and lacks; runs on a bare python3, before any package is there."""

import importlib.util
import shutil
import subprocess
import sysconfig
from pathlib import Path

missing = []
if not shutil.which("git"):  # the build is stamped with the commit it comes from
    missing.append("git")
if not importlib.util.find_spec("ensurepip"):
    missing.append("python3-venv")
if not (Path(sysconfig.get_paths()["include"]) / "Python.h").exists():
    missing.append("python3-dev")
compiler = shutil.which("cc") or shutil.which("gcc")
if not compiler:
    missing.append("gcc")
probe = "#include <stdio.h>\n#include <stdint.h>\n"
if compiler and subprocess.run([compiler, "-E", "-"], input=probe, text=True, capture_output=True, check=False).returncode:
    missing.append("libc6-dev")
if missing:
    names = " ".join(missing)
    raise SystemExit(f"layerdeck cannot be built here, missing: {names}\n  sudo apt install {names}")
