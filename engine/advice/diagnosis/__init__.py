"""Diagnosis: what limits the work of the last seconds, by rules over windows of readings and counters."""
