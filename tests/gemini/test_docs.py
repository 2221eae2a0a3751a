"""The reference page of the toolchain agrees with the code."""

from __future__ import annotations

from pathlib import Path

from geminids.gemini.features import NEWEST_TESTED, OLDEST_SUPPORTED
from geminids.gemini.locate.candidates import COMMON

PAGE = Path(__file__).parents[2] / "docs/reference/toolchain.md"


def test_supported_releases() -> None:
    """The page names the oldest supported release and the newest tested one."""
    page = PAGE.read_text()
    assert f"runs Gemini CLI {OLDEST_SUPPORTED} and newer" in page
    assert f"{OLDEST_SUPPORTED} to {NEWEST_TESTED}.x" in page


def test_common_places() -> None:
    """The page lists every common place that is searched."""
    page = PAGE.read_text()
    assert [place for place in COMMON if f"`{place}`" not in page] == []
