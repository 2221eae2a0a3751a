"""Build the start of an HTML page that needs no other files and contains no scripts."""

from __future__ import annotations

from html import escape

from geminids.views.sanitize import clean

__all__ = ["escaped", "page_head"]


def page_head(title: str, subtitle: str, style: str, *, images: bool = False) -> str:
    """Return the HTML of a page from its beginning up to its content, with a heading.

    `style` is CSS. With `images`, the page may contain embedded images.
    """
    # With this policy, the browser runs no script and sends no request, even if the text of a
    # session could insert HTML into the page.
    policy = f"default-src 'none'; style-src 'unsafe-inline'; {'img-src data:; ' if images else ''}"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f"<meta http-equiv=\"Content-Security-Policy\" content=\"{policy}base-uri 'none'; form-action 'none'\">\n"
        '<meta name="viewport" content="width=device-width,initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer"><meta name="robots" content="noindex">\n'
        f"<title>{escaped(title)}</title><style>{style}</style></head><body>\n"
        f'<header><h1>{escaped(title)}</h1><div class="dim">{escaped(subtitle)}</div></header>\n<main>\n'
    )


def escaped(text: str) -> str:
    """Escape text for HTML, and replace its control characters."""
    return escape(clean(text))
