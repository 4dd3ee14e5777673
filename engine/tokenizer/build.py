"""Text to token ids and back, by the vocabulary of a model file. Merging is done by the `tokenizers` library; what surrounds it
(special tokens, blanks, bytes) is done here so that the ids equal those of the tools the models were published with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import tokenizers
from tokenizers import models, pre_tokenizers

from engine.errors import InvalidRequest
from engine.tokenizer.partition import Partitioner, trusted_ranges
from engine.tokenizer.pretokenizers import PRETOKENIZERS
from engine.tokenizer.rules import TokenType
from engine.tokenizer.vocab import Vocab

_BLANK = "\u2581"
"""How SentencePiece writes a blank."""


def _byte_alphabet() -> dict[str, int]:
    """Character -> byte of the alphabet that byte-level vocabularies are written in: printable bytes stand for themselves, the
    others are moved, in order, above U+0100."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    moved = iter(range(0x100, 0x200))
    return {chr(b if b in printable else next(moved)): b for b in range(256)}


class Tokenizer:
    """A model's tokenizer. Safe to share between threads: nothing changes after construction."""

    def __init__(self, vocab: Vocab) -> None:
        self.vocab = vocab
        self._spm = vocab.model == "llama"
        ids = {token: i for i, token in enumerate(vocab.tokens)}
        control = (TokenType.CONTROL.value, TokenType.UNKNOWN.value)
        self._partitioner = Partitioner(_of_type(vocab, *control), _of_type(vocab, TokenType.USER_DEFINED.value))
        self._merger = _build_spm(vocab, ids) if self._spm else _build_bpe(vocab, ids)
        self._alphabet = _byte_alphabet()
        self.channel_tokens = _channel_tokens(ids)
        """The tokens that structure answers in channels, by id; empty for other vocabularies."""

    @property
    def n_vocab(self) -> int:
        """Number of tokens."""
        return self.vocab.n_vocab

    def encode(self, text: str, *, special: bool, bos: bool) -> list[int]:
        """Token ids of `text`. special: texts of control tokens become those tokens; bos: with what the file says belongs at its
        ends."""
        ids = self._encode(((text, special),), frozenset(self.channel_tokens))
        if not bos:
            return ids
        begin = [self.vocab.bos_id] if self.vocab.add_bos and self.vocab.bos_id is not None else []
        end = [self.vocab.eos_id] if self.vocab.add_eos and self.vocab.eos_id is not None else []
        return begin + ids + end

    def encode_parts(self, parts: Sequence[tuple[str, bool]]) -> list[int]:
        """Token ids of the joined parts, as if they were one text; control tokens are found only inside the parts marked True."""
        return self._encode(parts, frozenset())

    def _encode(self, parts: Sequence[tuple[str, bool]], always: frozenset[int]) -> list[int]:
        text, trusted = trusted_ranges(parts)
        ids: list[int] = []
        after_special = True
        for start, end, token in self._partitioner.split(text, trusted, always):
            if token is not None:
                ids.append(token)
                after_special = True
                continue
            ids += self._merge(text[start:end], after_special)
            after_special = False
        return ids

    def _merge(self, text: str, after_special: bool) -> list[int]:
        text = _encodable(text)
        if self._spm:
            if after_special and self.vocab.add_space_prefix:
                text = " " + text
            text = text.replace(" ", _BLANK)
        ids: list[int] = self._merger.encode(text, add_special_tokens=False).ids
        return ids

    def token_bytes(self, token: int) -> bytes:
        """The bytes that a token stands for; control tokens give their text.

        Raises: InvalidRequest for an id outside the vocabulary.
        """
        if not 0 <= token < len(self.vocab.tokens):
            raise InvalidRequest(
                f"token {token} does not exist; the ids of this model run from 0 to {len(self.vocab.tokens) - 1}"
            )
        text, kind = self.vocab.tokens[token], self.vocab.types[token]
        if kind == TokenType.BYTE:
            return bytes([int(text[3:5], 16)])
        if kind in (TokenType.CONTROL, TokenType.UNKNOWN):
            return text.encode()
        if self._spm:
            return text.replace(_BLANK, " ").encode()
        if kind == TokenType.USER_DEFINED:
            return text.encode()
        alphabet = self._alphabet
        try:
            return bytes([alphabet[c] for c in text])
        except KeyError:
            # A token outside the byte alphabet was added to the vocabulary as plain text.
            return text.encode()

    def decode(self, ids: Iterable[int]) -> bytes:
        """The bytes of a whole text; without the blank that encoding put before it, where it put one."""
        pieces = [self.token_bytes(token) for token in ids]
        if self._spm:
            if pieces and self.vocab.add_space_prefix:
                pieces[0] = pieces[0].removeprefix(b" ")
            return b"".join(pieces)
        text = b"".join(pieces)
        return _tidy_blanks(text) if PRETOKENIZERS[self.vocab.pre].tidies_blanks else text


_TIDY = tuple((b" " + ending, ending) for ending in (b"?", b"!", b".", b",", b"'s", b"'m", b"'re", b"'ve"))


def _tidy_blanks(text: bytes) -> bytes:
    text = text.replace(b" ' ", b"'")
    for spaced, tight in _TIDY:
        text = text.replace(spaced, tight)
    return text


def _of_type(vocab: Vocab, *types: int) -> list[tuple[str, int]]:
    """Texts and ids of the tokens of some types."""
    return [(vocab.tokens[i], i) for i, kind in enumerate(vocab.types) if kind in types]


def _channel_tokens(ids: Mapping[str, int]) -> dict[int, str]:
    """The tokens that structure messages in vocabularies with channels (gpt-oss). Tools that tokenize plain text always parse
    them; in conversations, whose parts say what is trusted, they are control tokens like others."""
    if "<|return|>" not in ids or "<|call|>" not in ids:
        return {}
    names = ("<|start|>", "<|message|>", "<|channel|>", "<|constrain|>", "<|end|>")
    return {ids[name]: name for name in names if name in ids}


def _encodable(text: str) -> str:
    """`text` with lone surrogates, which have no UTF-8 form, replaced one for one."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in text)
    return text


def _build_bpe(vocab: Vocab, ids: dict[str, int]) -> tokenizers.Tokenizer:
    rule = PRETOKENIZERS[vocab.pre]
    tokenizer = tokenizers.Tokenizer(models.BPE(ids, _known_merges(vocab.merges, ids), ignore_merges=rule.ignore_merges))
    splits = [pre_tokenizers.Split(tokenizers.Regex(regex), "isolated") for regex in rule.regexes]
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*splits, byte_level])
    return tokenizer


def _known_merges(merges: Sequence[str], ids: dict[str, int]) -> list[tuple[str, str]]:
    """The merges as pairs; those that no token comes of are left out, for the library refuses them."""
    return [
        (left, right)
        for merge in merges
        for left, right in (merge.split(" ", 1) if merge[0] != " " else _cut_later(merge),)
        if left in ids and right in ids and left + right in ids
    ]


def _cut_later(merge: str) -> tuple[str, str]:
    """The halves of a merge whose first half begins with a blank."""
    cut = merge.find(" ", 1)
    return merge[:cut], merge[cut + 1 :]


def _build_spm(vocab: Vocab, ids: dict[str, int]) -> tokenizers.Tokenizer:
    """SentencePiece merges the neighbours whose union is the token of the highest score: the best token's merges come first."""
    scores = vocab.scores if len(vocab.scores) else [0.0] * len(vocab.tokens)
    best_first = sorted((i for t, i in ids.items() if len(t) > 1), key=lambda i: (-scores[i], i))
    merges = [
        (token[:cut], token[cut:])
        for token in map(vocab.tokens.__getitem__, best_first)
        for cut in range(1, len(token))
        if token[:cut] in ids and token[cut:] in ids
    ]
    unknown = vocab.tokens[vocab.unknown_id] if vocab.unknown_id is not None else None
    return tokenizers.Tokenizer(models.BPE(ids, merges, unk_token=unknown, byte_fallback=True, fuse_unk=False))
