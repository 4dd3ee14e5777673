"""Advice: what can be said about a machine and about work in progress, in sentences for people. Reads, never changes."""
