"""Render the Markdown of an answer as HTML. HTML in the Markdown is shown as text."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from html import escape

from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict

from geminids.views.markdown_parser import MarkdownParser
from geminids.views.sanitize import clean

__all__ = ["answer_html"]

_SCHEMES = ("http://", "https://", "mailto:")
_MAX_LANGUAGE_LENGTH = 40


def answer_html(text: str) -> str:
    """Return the HTML of an answer.

    >>> print(answer_html("Use `a<b`, **now** <script>").rstrip())
    <p>Use <code>a&lt;b</code>, <strong>now</strong> &lt;script&gt;</p>
    """
    # Clean the result too: the parser decodes entities such as `&#x202e;`.
    return clean(str(_parser().render(clean(text))))


class _Parser(MarkdownParser):
    def validateLink(self, url: str) -> bool:  # noqa: N802 (a name of markdown-it)
        """Return whether a link may have this address. Other links are shown as their source."""
        return url.lower().startswith(_SCHEMES)


class _Renderer(RendererHTML):
    def link_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return _link(str(tokens[idx].attrGet("href")))

    def image(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        """Return a link to an image, so that the page loads nothing from the network."""
        return f"{_link(str(tokens[idx].attrGet('src')))}{escape(tokens[idx].content or 'image')}</a>"

    def fence(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        language = tokens[idx].info.strip()[:_MAX_LANGUAGE_LENGTH]
        title = f' title="{escape(language)}"' if language else ""
        return f"<pre{title}>{escape(tokens[idx].content)}</pre>\n"

    def code_block(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return f"<pre>{escape(tokens[idx].content)}</pre>\n"


def _link(address: str) -> str:
    return f'<a href="{escape(address)}" rel="noopener noreferrer nofollow">'


@cache
def _parser() -> _Parser:
    parser = _Parser()
    parser.options["breaks"] = True  # as in the terminal, a line break stays a line break
    parser.renderer = _Renderer(parser)
    return parser
