"""Hugging Face checkpoints to GGUF files: reading, renaming, quantising, writing, one tensor at a time."""
