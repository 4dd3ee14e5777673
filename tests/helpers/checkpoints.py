"""Writes tiny checkpoint folders as people download them: config.json, safetensors, a tokenizer."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tokenizers
from tokenizers import models, pre_tokenizers

from engine.tokenizer.pretokenizers import PRETOKENIZERS
from tests.helpers.gguf_builder import CHATML_TEMPLATE, byte_alphabet

_NAMES = {"f8": "F64", "f4": "F32", "f2": "F16", "u1": "U8", "i4": "I32"}
N_VOCAB = 512
WORDS = ("th", "in", "er", "the", "an", "on", "ing")
"""What the tokenizer merges, beside bytes."""


def write_safetensors(path: Path, tensors: Mapping[str, npt.NDArray[Any]], dtypes: Mapping[str, str] | None = None) -> None:
    """A safetensors file; dtypes: the stored type where it is not that of the array (`BF16` of u16, `F8_E4M3` of u8)."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data, at = [], 0
    for name, values in tensors.items():
        raw = np.ascontiguousarray(values).tobytes()
        stored = (dtypes or {}).get(name) or _NAMES.get(values.dtype.str[1:], "F32")
        header[name] = {"dtype": stored, "shape": list(values.shape), "data_offsets": [at, at + len(raw)]}
        data.append(raw)
        at += len(raw)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data))


def write_tokenizer(folder: Path, pre: str = "qwen2", *, settings: Mapping[str, Any] | None = None) -> tokenizers.Tokenizer:
    """A byte-level BPE that cuts by the rule `pre`, with control tokens and user-defined ones; gives it, too."""
    rule = PRETOKENIZERS[pre]
    vocab = {character: i for i, character in enumerate(byte_alphabet())}
    merges = []
    for word in WORDS:
        vocab[word] = len(vocab)
        merges.append((word[:-1], word[-1]) if word[:-1] in vocab else (word[0], word[1:]))
    made = tokenizers.Tokenizer(models.BPE(vocab, merges, ignore_merges=rule.ignore_merges))
    splits = [pre_tokenizers.Split(tokenizers.Regex(regex), "isolated") for regex in rule.regexes]
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]  # type: ignore[list-item]
    )
    made.add_special_tokens(["<|im_start|>", "<|im_end|>", "<|endoftext|>"])
    made.add_tokens(["<think>", "</think>"])
    made.save(str(folder / "tokenizer.json"))
    known = {"eos_token": "<|im_end|>", "bos_token": None, "chat_template": CHATML_TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(known | dict(settings or {})))
    return made


def write_llama(folder: Path, *, parts: int = 1, dtype: str = "f4", **changes: Any) -> dict[str, npt.NDArray[Any]]:
    """A random llama checkpoint with its tokenizer, in `parts` files; gives its tensors. changes: to config.json."""
    config = {
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "vocab_size": N_VOCAB,
        "tie_word_embeddings": False,
    } | changes
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    write_tokenizer(folder)
    rng = np.random.default_rng(5)
    n, n_ff, n_kv = config["hidden_size"], config["intermediate_size"], config["hidden_size"] // 2
    shapes: dict[str, Sequence[int]] = {
        "model.embed_tokens.weight": (N_VOCAB, n),
        "model.norm.weight": (n,),
        "lm_head.weight": (N_VOCAB, n),
    }
    for i in range(config["num_hidden_layers"]):
        at = f"model.layers.{i}."
        shapes |= {f"{at}input_layernorm.weight": (n,), f"{at}post_attention_layernorm.weight": (n,)}
        shapes |= {f"{at}self_attn.{one}_proj.weight": (n, n) for one in "qo"}
        shapes |= {f"{at}self_attn.{one}_proj.weight": (n_kv, n) for one in "kv"}
        shapes |= {f"{at}mlp.{one}_proj.weight": (n_ff, n) for one in ("gate", "up")} | {f"{at}mlp.down_proj.weight": (n, n_ff)}
    tensors = {name: (rng.standard_normal(shape) * shape[-1] ** -0.5).astype(dtype) for name, shape in shapes.items()}
    names = list(tensors)
    for part in range(parts):
        file = "model.safetensors" if parts == 1 else f"model-{part + 1:05d}-of-{parts:05d}.safetensors"
        write_safetensors(folder / file, {name: tensors[name] for name in names[part::parts]})
    if parts > 1:
        where = {name: f"model-{i % parts + 1:05d}-of-{parts:05d}.safetensors" for i, name in enumerate(names)}
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))
    return tensors
