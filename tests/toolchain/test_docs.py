"""The reference page says what the code does."""

from __future__ import annotations

from pathlib import Path

from geminids.toolchain.releases import ABILITIES
from geminids.toolchain.search import COMMON

PAGE = Path(__file__).parents[2] / "docs/reference/toolchain.md"


def test_table_of_abilities() -> None:
    """The table of the page is the table of the code, row by row."""
    rows = [f"| `{row.name}` | {row.what} | {row.since or 'ever'} | {row.until or ''} |" for row in ABILITIES]
    table = [
        line for line in PAGE.read_text().splitlines() if line.startswith("| `") and line.count("|") == 5
    ]
    assert table == rows


def test_common_places() -> None:
    """Every common place that is searched is on the page."""
    page = PAGE.read_text()
    assert [place for place in COMMON if f"`{place}`" not in page] == []
