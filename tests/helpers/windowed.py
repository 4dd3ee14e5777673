"""The small llama models of `runs` with windows, sinks, soft caps and post-norms, and one sequence in their bounded pools."""

from __future__ import annotations

from dataclasses import replace

from engine.arch.spec import BlockSpec, ModelSpec, Norm
from engine.runtime.cache_groups import ring_tables
from engine.runtime.loader import LoadedModel
from tests.helpers.runs import Change, Steps


def windowed(
    *widths: int | None, sinks: bool = True, softcap: float = 0.0, post_norms: bool = False, embed_scale: float = 1.0
) -> Change:
    """Layer i sees widths[i % len(widths)] keys; softcap: of scores and of logits."""

    def block_of(block: BlockSpec) -> BlockSpec:
        at = f"blk.{block.index}."
        mixer = replace(
            block.mixer,
            window=widths[block.index % len(widths)],
            sinks=at + "test_sinks.weight" if sinks else None,
            softcap=softcap,
        )
        norm = Norm(at + "attn_norm.weight", 1e-5) if post_norms else None
        return replace(block, mixer=mixer, post_norm=norm, ffn_post_norm=norm)

    def change(spec: ModelSpec) -> ModelSpec:
        blocks = tuple(block_of(block) for block in spec.blocks)
        return replace(spec, blocks=blocks, embed_scale=embed_scale, softcap=3 * softcap)

    return change


def only_sequence(model: LoadedModel, n_tokens: int) -> Steps:
    """A sequence of up to n_tokens that goes through the model's pools again and again."""
    return Steps(model, ring_tables(model.cache_groups, n_tokens))
