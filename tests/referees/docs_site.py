"""Check a built documentation site: it loads nothing from other servers.

    python tests/referees/docs_site.py site

Links to other servers are fine; scripts, styles, fonts, images and frames from them are not.
"""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path

_LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "object": "data"}
_LOADED_RELATIONS = {"stylesheet", "preconnect", "preload", "icon", "dns-prefetch"}
_CSS_URL = re.compile(r"""(?:url\(|@import)\s*["']?(https?://|//)[^)"';]*""")


class _Loads(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.urls: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if tag in _LOADED:
            self.urls.append(values.get(_LOADED[tag], ""))
        elif tag == "link" and _LOADED_RELATIONS & set(values.get("rel", "").split()):
            self.urls.append(values.get("href", ""))


def foreign_loads(file: Path) -> list[str]:
    """Return the addresses on other servers from which a page or a style sheet loads something."""
    text = file.read_text()
    if file.suffix == ".css":
        return [match[0] for match in _CSS_URL.finditer(text)]
    page = _Loads()
    page.feed(text)
    return [url for url in page.urls if url.startswith(("http:", "https:", "//"))]


def main(folder: str) -> int:
    files = [file for end in ("html", "css", "svg") for file in sorted(Path(folder).rglob(f"*.{end}"))]
    problems = [f"{file}: loads {url}" for file in files for url in foreign_loads(file)]
    print(
        "\n".join(problems) or f"{folder}: {len(files)} pages and styles, nothing loaded from other servers"
    )
    return bool(problems) or not files


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
