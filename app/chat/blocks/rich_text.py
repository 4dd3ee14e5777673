"""Markdown of one block written into a document with formats, token by token: no HTML is made or read anywhere."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markdown_it.token import Token
from mdit_py_plugins.dollarmath import dollarmath_plugin
from PySide6.QtGui import QFont, QTextBlockFormat, QTextCharFormat, QTextCursor, QTextDocument

from app import theme
from app.chat.inline_rules import bracket_math, emphasis
from app.chat.plain import clean, isolate_bidi, mark_bidi

LINE_HEIGHT = 155
_HEADING_PX = {1: 20, 2: 18, 3: 16, 4: 14, 5: 14, 6: 13}
_BULLETS = ("•", "◦", "▪")
MATH_PROPERTY = 0x100001
"""Character format property that holds the TeX source of an inline formula."""
MARKER_PROPERTY = 0x100002
"""Block format property that holds the marker of a list item; the view paints it left of the text."""


@dataclass(frozen=True, slots=True)
class TextStyle:
    """How a block is set. color: a token of the theme; ordinal: number of an ordered item, None for what the source says."""

    px: int = 14
    weight: int = 400
    color: str = "text"
    line_height: int = LINE_HEIGHT
    ordinal: int | None = None


@lru_cache(maxsize=1)
def parser() -> MarkdownIt:
    """CommonMark with tables, strikethrough and dollar math; HTML is text."""
    result = MarkdownIt("commonmark", {"html": False, "maxNesting": 40}).enable(["table", "strikethrough"])
    result.use(dollarmath_plugin, allow_space=False, allow_digits=False, allow_labels=False)
    result.inline.ruler.at("emphasis", emphasis)
    result.inline.ruler.before("escape", "bracket_math", bracket_math)
    return result


def fill(document: QTextDocument, source: str, style: TextStyle) -> None:
    """Replace the document by the markdown of `source`."""
    document.clear()
    _Writer(document, style).write(parser().parse(clean(source)))


def fill_inline(document: QTextDocument, source: str, style: TextStyle) -> None:
    """Replace the document by one line of inline markdown (a table cell)."""
    document.clear()
    writer = _Writer(document, style)
    for token in parser().parseInline(clean(source)):
        writer.start_block(writer.block_format())
        writer.inline(token.children or [])


def fill_plain(document: QTextDocument, text: str, style: TextStyle) -> None:
    """Replace the document by plain text."""
    document.clear()
    writer = _Writer(document, style)
    for i, line in enumerate(isolate_bidi(clean(text)).split("\n")):
        if i:
            writer.cursor.insertBlock()
        writer.cursor.setBlockFormat(writer.block_format(bottom=0))
        writer.cursor.insertText(line, writer.base)


class _Writer:
    def __init__(self, document: QTextDocument, style: TextStyle) -> None:
        self.cursor = QTextCursor(document)
        self.cursor.beginEditBlock()
        self.style = style
        self.first = True
        self.depth = 0
        self.quotes = 0
        self.lists: list[int | None] = []
        self.at_item = False
        self.base = QTextCharFormat()
        self.base.setFont(theme.font(style.px, style.weight))
        self.base.setForeground(theme.color(style.color))
        document.setDefaultFont(theme.font(style.px, style.weight))

    def block_format(self, bottom: float = 10, line_height: int | None = None) -> QTextBlockFormat:
        result = QTextBlockFormat()
        height = self.style.line_height if line_height is None else line_height
        result.setLineHeight(height, QTextBlockFormat.LineHeightTypes.ProportionalHeight.value)
        result.setBottomMargin(bottom)
        return result

    def start_block(self, fmt: QTextBlockFormat) -> None:
        """Open a paragraph; the first one is the block that an empty document has."""
        fmt.setLeftMargin(16.0 * max(0, self.quotes - 1))
        fmt.setIndent(len(self.lists))
        if self.at_item and self.lists:
            fmt.setProperty(MARKER_PROPERTY, self._marker())
            self.at_item = False
        if self.first:
            self.cursor.setBlockFormat(fmt)
            self.first = False
        else:
            self.cursor.insertBlock(fmt, self.base)

    def _marker(self) -> str:
        number = self.lists[-1]
        if number is None:
            return _BULLETS[min(2, len(self.lists) - 1)]
        self.lists[-1] = number + 1
        return f"{number}."

    def write(self, tokens: list[Token]) -> None:
        for token in tokens:
            self._token(token)
        self._trim()
        self.cursor.endEditBlock()

    def _trim(self) -> None:
        """No margin below the last paragraph: the column of blocks keeps the distances."""
        fmt = self.cursor.blockFormat()
        fmt.setBottomMargin(0)
        self.cursor.setBlockFormat(fmt)

    def _token(self, token: Token) -> None:
        kind = token.type
        if kind == "paragraph_open":
            self.start_block(self.block_format(bottom=0 if self.lists else 10))
        elif kind == "heading_open":
            self._heading(int(token.tag[1]))
        elif kind == "heading_close":
            self._restore()
        elif kind == "inline":
            self.inline(token.children or [])
        elif kind in ("fence", "code_block"):
            self._code(token.content)
        elif kind in ("bullet_list_open", "ordered_list_open"):
            self._open_list(token)
        elif kind in ("bullet_list_close", "ordered_list_close"):
            self.lists.pop()
        elif kind == "list_item_open":
            self.at_item = True
        elif kind == "list_item_close" and self.at_item:
            self.start_block(self.block_format(bottom=0))
        elif kind == "blockquote_open":
            self.quotes += 1
        elif kind == "blockquote_close":
            self.quotes -= 1
        elif kind in ("math_block", "math_block_label"):
            self.start_block(self.block_format())
            self._math(token.content)
        elif kind in ("td_open", "th_open"):
            self.start_block(self.block_format(bottom=2))
        elif kind == "hr":
            self.start_block(self.block_format())
            self.cursor.insertText("⁎  ⁎  ⁎", self.base)

    def _heading(self, level: int) -> None:
        self.base.setFont(theme.font(_HEADING_PX[level], 600))
        self.start_block(self.block_format(bottom=6, line_height=130))

    def _restore(self) -> None:
        self.base.setFont(theme.font(self.style.px, self.style.weight))

    def _open_list(self, token: Token) -> None:
        """Push the number of the next item, None for bullets."""
        if token.type == "bullet_list_open":
            self.lists.append(None)
            return
        start = token.attrGet("start")
        self.lists.append(
            self.style.ordinal if self.style.ordinal is not None and not self.lists else int(1 if start is None else start)
        )

    def _code(self, content: str) -> None:
        fmt = self.base_code()
        block = self.block_format(bottom=8, line_height=140)
        block.setBackground(theme.color("raised"))
        for line in mark_bidi(content.rstrip("\n")).split("\n"):
            self.start_block(QTextBlockFormat(block))
            self.cursor.insertText(line, fmt)

    def base_code(self) -> QTextCharFormat:
        result = QTextCharFormat(self.base)
        result.setFont(theme.font(self.style.px - 1, self.style.weight, mono=True))
        result.setForeground(theme.color("code_text"))
        return result

    def inline(self, tokens: list[Token]) -> None:
        """Runs of one paragraph; formats nest."""
        stack = [QTextCharFormat(self.base)]
        for token in tokens:
            kind = token.type
            if kind.endswith("_open"):
                stack.append(self._opened(token, QTextCharFormat(stack[-1])))
            elif kind.endswith("_close"):
                if len(stack) > 1:
                    stack.pop()
            elif kind == "text":
                self.cursor.insertText(isolate_bidi(token.content), stack[-1])
            elif kind == "code_inline":
                fmt = self._code_format(stack[-1])
                self.cursor.insertText(mark_bidi(token.content), fmt)
            elif kind in ("softbreak", "hardbreak"):
                self.cursor.insertText(" " if kind == "softbreak" else "\u2028", stack[-1])
            elif kind == "image":
                self._image(token)
            elif kind in ("math_inline", "math_inline_double"):
                self._math(token.content, stack[-1])
            elif token.content:
                self.cursor.insertText(isolate_bidi(token.content), stack[-1])

    def _code_format(self, outer: QTextCharFormat) -> QTextCharFormat:
        fmt = QTextCharFormat(outer)
        face = theme.font(self.style.px - 1, self.style.weight, mono=True)
        fmt.setFont(face)
        fmt.setForeground(theme.color("code_text"))
        fmt.setBackground(theme.color("raised"))
        return fmt

    def _opened(self, token: Token, fmt: QTextCharFormat) -> QTextCharFormat:
        if token.type == "strong_open":
            fmt.setFontWeight(QFont.Weight.Bold)
        elif token.type == "em_open":
            fmt.setFontItalic(True)
        elif token.type == "s_open":
            fmt.setFontStrikeOut(True)
        elif token.type == "link_open":
            target = str(token.attrGet("href") or "")
            fmt.setAnchor(True)
            fmt.setAnchorHref(target)
            fmt.setForeground(theme.color("accent"))
            fmt.setFontUnderline(True)
            fmt.setToolTip(mark_bidi(target))
        return fmt

    def _image(self, token: Token) -> None:
        """Images are never loaded: a model could send what it knows to their address."""
        host = urlsplit_host(str(token.attrGet("src") or ""))
        fmt = self._code_format(self.base)
        fmt.setFont(theme.font(self.style.px - 2, 500))
        fmt.setForeground(theme.color("text2"))
        alt = isolate_bidi(token.content) or "image"
        self.cursor.insertText(f"\u00a0{alt}, image from {host}, not loaded\u00a0", fmt)

    def _math(self, source: str, outer: QTextCharFormat | None = None) -> None:
        fmt = self._code_format(outer or self.base)
        fmt.setProperty(MATH_PROPERTY, source)
        self.cursor.insertText(mark_bidi(source.strip()), fmt)


def urlsplit_host(address: str) -> str:
    """The host of an address, or what kind of address it is."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return "an invalid address"
    return mark_bidi(clean(parts.hostname or (f"a {parts.scheme} address" if parts.scheme else "this machine")))
