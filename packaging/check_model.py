"""Checks the included model's file against the checksum it was tested with; exits 1 with a sentence if it differs."""

import hashlib
import sys
from pathlib import Path

SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

files = sorted(Path(sys.argv[1]).glob("*.gguf"))
if len(files) != 1:
    raise SystemExit(f"the included model is not in {sys.argv[1]}: run `make clean` and try again")
with files[0].open("rb") as stream:
    digest = hashlib.file_digest(stream, "sha256").hexdigest()
if digest != SHA256:
    raise SystemExit(f"{files[0].name} has checksum {digest}, expected {SHA256}: run `make clean` and try again")
