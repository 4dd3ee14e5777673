"""The names of the instruction sets in the order of `ld_isa` (c/dispatch.h), worst first."""

from __future__ import annotations

ISAS = ("scalar", "avx2", "avxvnni", "avx512", "avx512vnni")
