"""How the checkpoints of each family become GGUF tensors and keys."""
