"""The vocabulary that a model file brings: tokens, merges, special ids and the switches of its tokenizer, checked and frozen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from engine.errors import UnsupportedModel
from engine.gguf import keys
from engine.gguf.info import GgufFile
from engine.tokenizer.pretokenizers import PRETOKENIZERS
from engine.tokenizer.rules import ID_KEYS, TokenType, check_tokenizer, flag, numbers, strings, token_id

_SPM_IDS = {keys.UNKNOWN_ID: 0, keys.BOS_ID: 1, keys.EOS_ID: 2}
"""The special tokens of SentencePiece, where the file is silent."""

MODELS = ("gpt2", "llama")
"""The kinds of tokenizer that are run: byte-level BPE and SentencePiece BPE."""

_EOG_TEXTS = frozenset(
    {
        "<|eot_id|>",
        "<|im_end|>",
        "<|end|>",
        "<|return|>",
        "<|call|>",
        "<end_of_turn>",
        "<|endoftext|>",
        "<|eom_id|>",
        "<EOT>",
        "_<EOT>",
        "<|end_of_text|>",
        "<｜end▁of▁sentence｜>",
        "<end_of_utterance>",
        "[EOT]",
        "[EOS]",
    }
)
_END_OF_TEXT = "</s>"
"""Ends the text in vocabularies where it is a control token; in others it is a tag of HTML that is only parsed like one."""
_ENDS = _EOG_TEXTS | {_END_OF_TEXT}


@dataclass(frozen=True, slots=True)
class Vocab:
    """A checked vocabulary. Ids are positions in `tokens`; an absent special token is None."""

    model: str
    pre: str
    tokens: tuple[str, ...] = field(repr=False)
    types: Sequence[int] = field(repr=False)
    scores: Sequence[float] = field(repr=False)
    merges: tuple[str, ...] = field(repr=False)
    bos_id: int | None
    eos_id: int | None
    unknown_id: int | None
    eog_ids: frozenset[int]
    add_bos: bool
    add_eos: bool
    add_space_prefix: bool

    @property
    def n_vocab(self) -> int:
        """Number of tokens."""
        return len(self.tokens)

    @classmethod
    def from_gguf(cls, file: GgufFile) -> Vocab:
        """The vocabulary of a model.

        Raises: GgufError for broken metadata; UnsupportedModel for a kind of tokenizer that is not run, or none.
        """
        check_tokenizer(file)
        model, pre = tokenizer_kind(file)
        tokens, merges = strings(file, keys.TOKENS), strings(file, keys.MERGES)
        types = numbers(file, keys.TOKEN_TYPES) or bytes([TokenType.NORMAL]) * len(tokens)
        ids = {key: token_id(file, key) for key in ID_KEYS}
        spm = model == "llama"
        if spm:
            for key, default in _SPM_IDS.items():
                ids[key] = default if key not in file.metadata and default < len(tokens) else ids[key]
        return cls(
            model=model,
            pre=pre,
            tokens=tokens,
            types=_with_control_ends(tokens, types),
            scores=numbers(file, keys.SCORES) or (),
            merges=merges,
            bos_id=ids[keys.BOS_ID],
            eos_id=ids[keys.EOS_ID],
            unknown_id=ids[keys.UNKNOWN_ID],
            eog_ids=_eog_ids(tokens, types, (ids[keys.EOS_ID], ids[keys.EOT_ID], ids[keys.EOM_ID])),
            add_bos=flag(file, keys.ADD_BOS, spm or PRETOKENIZERS[pre].add_bos),
            add_eos=flag(file, keys.ADD_EOS, False),
            add_space_prefix=flag(file, keys.ADD_SPACE_PREFIX, spm),
        )


def tokenizer_kind(file: GgufFile) -> tuple[str, str]:
    """The kind of the tokenizer and its splitting rule.

    Raises: GgufError for broken metadata; UnsupportedModel for a kind that is not run, or none.
    """
    model = str(file.metadata.get(keys.TOKENIZER_MODEL, "none"))
    pre = str(file.metadata.get(keys.TOKENIZER_PRE, "default"))
    if model not in MODELS or not strings(file, keys.TOKENS):
        raise _unsupported(file, keys.TOKENIZER_MODEL, f"the tokenizer {model!r}", MODELS)
    if model == "gpt2" and pre not in PRETOKENIZERS:
        raise _unsupported(file, keys.TOKENIZER_PRE, f"the splitting rule {pre!r}", sorted(PRETOKENIZERS))
    return model, pre


def _unsupported(file: GgufFile, key: str, what: str, supported: Iterable[str]) -> UnsupportedModel:
    at = file.key_offsets.get(key, 0)
    return UnsupportedModel(
        f"{file.path.name}: {key} at byte {at}: {what} is not supported; supported are {', '.join(supported)}"
    )


def _with_control_ends(tokens: Sequence[str], types: Sequence[int]) -> Sequence[int]:
    """The types, with the tokens that end a text made control tokens where a converter forgot it: as plain or user-defined ones
    they would end an answer from within what people write."""
    ends = [(i, t, types[i]) for i, t in enumerate(tokens) if t in _ENDS]
    plain, named = TokenType.NORMAL, TokenType.USER_DEFINED
    forgotten = [i for i, t, kind in ends if kind == plain or (kind == named and t in _EOG_TEXTS)]
    if not forgotten:
        return types
    fixed = list(types)
    for i in forgotten:
        fixed[i] = TokenType.CONTROL
    return fixed


def _eog_ids(tokens: Sequence[str], types: Sequence[int], stored: Iterable[int | None]) -> frozenset[int]:
    ends = [(token, i) for i, token in enumerate(tokens) if token in _ENDS]
    by_text = {token: i for token, i in ends if token != _END_OF_TEXT or types[i] == TokenType.CONTROL}
    if "<|return|>" in by_text and "<|call|>" in by_text:
        # In this vocabulary <|end|> closes a message, not the answer.
        by_text.pop("<|end|>", None)
    return frozenset(by_text.values()) | frozenset(i for i in stored if i is not None)
