"""A bounded reader of one file's header. It copies bytes with `pread` and never maps the file: one that is cut short meanwhile
gives an error message and not a SIGBUS."""

from __future__ import annotations

import os
import struct
from array import array
from dataclasses import dataclass, field

from engine.errors import GgufError
from engine.gguf import types
from engine.gguf.info import MetaArray, MetaValue

MAX_HEADER_BYTES = 256 << 20
MAX_STRING_BYTES = 64 << 20
MAX_ARRAY_ITEMS = 16 << 20
_FIRST_READ = 1 << 20

_DAMAGED = "the file is damaged or was cut short; download it again"
_HOSTILE = "no real model needs that; get the file from a source you trust"


@dataclass(slots=True)
class Cursor:
    """A position in the header of an open file. `where` names the field that is being read, for messages."""

    fd: int
    file_name: str
    file_bytes: int
    pos: int = 0
    where: str = "header"
    string_bytes: int = 0
    _buffer: bytes = field(default=b"", repr=False)

    @property
    def left(self) -> int:
        """Bytes between the position and the end of the file."""
        return self.file_bytes - self.pos

    def error(self, problem: str, advice: str = _DAMAGED, at: int | None = None) -> GgufError:
        """The error to raise about the current field, or about the byte `at`."""
        return GgufError(f"{self.file_name}: {self.where} at byte {self.pos if at is None else at}: {problem}; {advice}")

    def need(self, n_bytes: int) -> bytes:
        """The buffer, which holds at least `n_bytes` from the position on.

        Raises: GgufError when the file or the largest allowed header ends before.
        """
        end = self.pos + n_bytes
        if end > len(self._buffer):
            self._fill(end)
        return self._buffer

    def _fill(self, end: int) -> None:
        if end > self.file_bytes:
            raise self.error(f"{end - self.pos:,} bytes are needed but the file ends after {max(self.left, 0):,}")
        if end > MAX_HEADER_BYTES:
            raise self.error(f"the header passes the limit of {MAX_HEADER_BYTES >> 20} MiB", _HOSTILE)
        have = len(self._buffer)
        # Growing four-fold keeps the copies of a large header below a third of its size.
        want = min(max(end, _FIRST_READ, 4 * have), self.file_bytes, MAX_HEADER_BYTES)
        chunks = [self._buffer]
        while have < want:
            chunk = os.pread(self.fd, want - have, have)
            if not chunk:
                break
            chunks.append(chunk)
            have += len(chunk)
        self._buffer = b"".join(chunks)
        if have < end:
            raise self.error(f"the file ended at byte {have:,} while it was read")

    def take(self, n_bytes: int) -> bytes:
        """The next bytes."""
        data = self.need(n_bytes)[self.pos : self.pos + n_bytes]
        self.pos += n_bytes
        return data

    def u32(self) -> int:
        """The next 32-bit unsigned number."""
        (value,) = struct.unpack_from("<I", self.need(4), self.pos)
        self.pos += 4
        return int(value)

    def u64(self) -> int:
        """The next 64-bit unsigned number."""
        (value,) = struct.unpack_from("<Q", self.need(8), self.pos)
        self.pos += 8
        return int(value)

    def string(self, max_bytes: int = MAX_STRING_BYTES) -> str:
        """The next length-prefixed UTF-8 string."""
        start = self.pos
        n_bytes = self.u64()
        self._charge(n_bytes, start, max_bytes)
        try:
            return self.take(n_bytes).decode()
        except UnicodeDecodeError as error:
            raise self.error("the string is not valid UTF-8", at=start) from error

    def _charge(self, n_bytes: int, start: int, max_bytes: int) -> None:
        if n_bytes > self.left:
            raise self.error(f"a string of {n_bytes:,} bytes is announced but {self.left:,} are left", at=start)
        self.string_bytes += n_bytes
        if n_bytes > max_bytes or self.string_bytes > MAX_STRING_BYTES:
            limit = min(max_bytes, MAX_STRING_BYTES)
            raise self.error(f"a string of {n_bytes:,} bytes passes the limit of {limit:,} bytes", _HOSTILE, at=start)

    def value(self, type_id: int) -> MetaValue:
        """The next metadata value of the given type."""
        if type_id == types.STRING:
            return self.string()
        if type_id == types.ARRAY:
            return self._array()
        size = types.VALUE_BYTES.get(type_id)
        if size is None:
            raise self.error(f"value type {type_id} does not exist (0 to 12 do)")
        start = self.pos
        raw = self.take(size)
        if type_id == types.BOOL and raw[0] > 1:
            raise self.error(f"a boolean is 0 or 1, not {raw[0]}", at=start)
        value: MetaValue = struct.unpack("<" + types.STRUCT_CODES[type_id], raw)[0]
        return value

    def _array(self) -> MetaArray:
        start = self.pos
        item_type, n_items = self.u32(), self.u64()
        if item_type == types.ARRAY:
            raise self.error("arrays inside arrays are not allowed", _HOSTILE, at=start)
        if item_type != types.STRING and item_type not in types.VALUE_BYTES:
            raise self.error(f"item type {item_type} does not exist (0 to 12 do)", at=start)
        least = 8 if item_type == types.STRING else types.VALUE_BYTES[item_type]
        if n_items > self.left // least:
            raise self.error(f"an array of {n_items:,} items is announced but {self.left:,} bytes are left", at=start)
        if n_items > MAX_ARRAY_ITEMS:
            raise self.error(f"an array of {n_items:,} items passes the limit of {MAX_ARRAY_ITEMS:,}", _HOSTILE, at=start)
        if item_type == types.STRING:
            return self._strings(n_items)
        raw = self.take(n_items * least)
        if item_type == types.BOOL:
            if n_items and max(raw) > 1:
                raise self.error(f"a boolean is 0 or 1, not {max(raw)}", at=start)
            return tuple(map(bool, raw))
        numbers: MetaArray = array(types.STRUCT_CODES[item_type], raw)
        return numbers

    def _strings(self, n_items: int) -> tuple[str, ...]:
        start = self.pos
        self._prefetch(min(32 * n_items, self.left, MAX_HEADER_BYTES))
        raw = self._raw_strings(n_items)
        while raw is None:
            # The guess was too low: four times as much, until the file or the limit ends it.
            self._fill(max(len(self._buffer) + 1, start + 8))
            raw = self._raw_strings(n_items)
        self.string_bytes += self.pos - start - 8 * n_items
        if self.string_bytes > MAX_STRING_BYTES:
            raise self.error(f"the strings pass the limit of {MAX_STRING_BYTES:,} bytes", _HOSTILE, at=start)
        try:
            # One decode of all is ten times as fast as one of each; a zero byte never is part of another character.
            items = b"\0".join(raw).decode().split("\0") if raw else []
            return tuple(items) if len(items) == n_items else tuple([item.decode() for item in raw])
        except UnicodeDecodeError as error:
            raise self.error("a string of the array is not valid UTF-8", at=start) from error

    def _raw_strings(self, n_items: int) -> list[bytes] | None:
        """The next strings, or None when the buffer ends before them. This is the hot loop of opening a model (300,000 strings):
        nothing is checked in it, for after a slice past the end the next length cannot be read."""
        length_at = struct.Struct("<Q").unpack_from
        buffer, pos = self._buffer, self.pos
        raw: list[bytes] = []
        append = raw.append
        try:
            for _ in range(n_items):
                end = pos + 8 + length_at(buffer, pos)[0]
                append(buffer[pos + 8 : end])
                pos = end
        except (struct.error, OverflowError):
            pos = max(pos, len(buffer) + 1)
        if pos > self.file_bytes and len(buffer) >= self.file_bytes:
            raise self.error(f"{len(raw):,} of {n_items:,} strings reach past the end of the file")
        if pos > len(buffer):
            return None
        self.pos = pos
        return raw

    def _prefetch(self, n_bytes: int) -> None:
        end = min(self.pos + n_bytes, MAX_HEADER_BYTES, self.file_bytes)
        if end > len(self._buffer):
            self._fill(end)
