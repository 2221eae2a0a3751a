"""Parse Markdown for the terminal and for HTML. HTML in Markdown is treated as text."""

from __future__ import annotations

from markdown_it import MarkdownIt
from markdown_it.parser_inline import ParserInline
from markdown_it.token import Token
from markdown_it.utils import EnvType

__all__ = ["MarkdownParser"]

# For each "[", markdown-it searches the rest of the paragraph for the "]": 20,000 of them take 2 seconds.
_MAX_BRACKETS = 2000


class MarkdownParser(MarkdownIt):
    """Parses Markdown with tables and strikethrough, and without HTML."""

    def __init__(self) -> None:
        super().__init__("js-default", {"html": False, "linkify": False, "typographer": False})
        self.inline: ParserInline = _BoundedInline()
        # A definition of a link can come after its use. The text that is already in the terminal
        # could not change any more.
        self.disable("reference")


class _BoundedInline(ParserInline):
    def parse(self, src: str, md: MarkdownIt, env: EnvType, tokens: list[Token]) -> list[Token]:
        if src.count("[") <= _MAX_BRACKETS:
            return super().parse(src, md, env, tokens)
        tokens.append(Token("text", "", 0, content=src))
        return tokens
