"""Files with counts of experts: `generate --counts` writes how often each expert was passed, `fit --counts` fills pools by it.

`{"name": ..., "architecture": ..., "n_layers": 48, "n_experts": 128, "n_tokens": 300, "layers": {"0": [3, 0, ...], ...}}`: of the
layers that have experts, the turns of every expert.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from engine.api.expert_use import ExpertUse
from engine.api.pure import ModelOutline
from engine.api.values import ModelInfo
from engine.cli.output import note, read_json_file
from engine.errors import InvalidRequest

MOST = 1 << 62
_AGAIN = "count the model that you place with layerdeck generate --counts"


def write_counts(path: Path, info: ModelInfo, use: ExpertUse | None) -> None:
    """Writes the counts of an answer.

    Raises:
        InvalidRequest: there are none. OSError.
    """
    if use is None:
        raise InvalidRequest(f"{info.name or info.path} has no experts to count; leave --counts out")
    layers = {str(layer): row for layer, row in zip(use.layers, use.counts().tolist(), strict=True)}
    head = {"name": info.name, "architecture": info.architecture, "n_layers": info.n_layers, "n_experts": use.n_experts}
    path.write_text(json.dumps(head | {"n_tokens": use.n_tokens, "layers": layers}) + "\n", encoding="utf-8")


def read_counts(path: Path, outline: ModelOutline) -> dict[int, tuple[int, ...]]:
    """The counts in a file, by layer, of this model.

    Raises:
        InvalidRequest: none, damaged ones, or those of another model; a sentence with what to do.
    """
    content = read_json_file(path)
    if not isinstance(content, dict) or not isinstance(content.get("layers"), dict):
        raise InvalidRequest(f"{path}: these are no counts of experts; {_AGAIN}")
    info = outline.info
    model = (content.get("architecture"), content.get("n_layers"), content.get("n_experts"))
    if model != (info.architecture, info.n_layers, outline.n_experts):
        raise InvalidRequest(
            f"{path}: these are counts of {_shown(*model)}, and this model is "
            f"{_shown(info.architecture, info.n_layers, outline.n_experts)}; {_AGAIN}"
        )
    if content.get("name") != info.name:
        note(f"{path}: the counts are of {str(content.get('name'))[:60]!r}, a model of the same shape as {info.name!r}")
    routed = {fact.unit.layer for fact in outline.units if fact.unit.kind == "experts"}
    return dict(sorted(_row(path, key, row, routed, outline.n_experts) for key, row in content["layers"].items()))


def _row(path: Path, key: str, row: Any, routed: set[int], n_experts: int) -> tuple[int, tuple[int, ...]]:
    layer = int(key) if key.isascii() and key.isdigit() and len(key) < 7 else -1
    if layer not in routed:
        raise InvalidRequest(f"{path}: layer {key[:20]!r} of the counts has no experts in this model; {_AGAIN}")
    whole = isinstance(row, list) and all(type(one) is int and 0 <= one < MOST for one in row)
    if not whole or len(row) != n_experts:
        raise InvalidRequest(f"{path}: layer {layer} is no list of {n_experts} counts, one an expert; {_AGAIN}")
    return layer, tuple(row)


def _shown(architecture: Any, n_layers: Any, n_experts: Any) -> str:
    return f"{str(architecture)[:40]} of {str(n_layers)[:10]} layers with {str(n_experts)[:10]} experts each"
