"""The frame of a self-contained HTML page: no script, no external resource."""

from __future__ import annotations

from html import escape

from geminids.views.sanitize import clean

__all__ = ["escaped", "page_head"]


def page_head(title: str, subtitle: str, style: str, *, images: bool = False) -> str:
    """The page up to its content; `images` allows embedded images."""
    # The browser enforces it too: no script and no request, whatever the page contains.
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
    """Text for a page, without control characters."""
    return escape(clean(text))
