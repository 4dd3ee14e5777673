"""Token ids to text while they come: whole characters only, so that one split over several tokens is never shown broken."""

from __future__ import annotations

import codecs

from engine.tokenizer.build import Tokenizer


class StreamDecoder:
    """Decodes one answer. Bytes that are no UTF-8 become U+FFFD; bytes that may still become a character are held back."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        """The characters that are complete with this token; may be empty.

        Raises: InvalidRequest for an id outside the vocabulary.
        """
        return self._decoder.decode(self._tokenizer.token_bytes(token))

    def flush(self) -> str:
        """What was held back, at the end of the answer; the decoder can be used again after it."""
        return self._decoder.decode(b"", final=True)
