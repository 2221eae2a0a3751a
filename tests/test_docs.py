"""The documentation matches the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from geminids.outcome import FAILURE_KINDS, OUTCOMES

ROOT = Path(__file__).parents[1]


def _words(page: str) -> set[str]:
    return set(re.findall(r"[a-z_]+", (ROOT / page).read_text()))


def test_every_package_is_in_the_architecture_page() -> None:
    """docs/architecture.md lists each package, and every module that it names exists."""
    source = ROOT / "src" / "geminids"
    page = (ROOT / "docs" / "architecture.md").read_text()
    packages = {folder.name for folder in source.iterdir() if (folder / "__init__.py").exists()}
    assert {name for name in packages if f"`{name}/`" not in page} == set()
    modules = {name for name in re.findall(r"`(\w+/[\w/]+)`", page) if name.split("/")[0] in packages}
    missing = {name for name in modules if not any((source / f"{name}{end}").exists() for end in ("", ".py"))}
    assert missing == set()


@pytest.mark.parametrize("names", [FAILURE_KINDS, OUTCOMES])
def test_every_ending_is_explained(names: tuple[str, ...]) -> None:
    """docs/reference/endings.md contains each failure kind and each outcome."""
    assert set(names) - _words("docs/reference/endings.md") == set()


def test_every_link_between_pages_works() -> None:
    """Relative links in Markdown name files that exist."""
    broken = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in [ROOT / "README.md", *ROOT.glob("docs/**/*.md")]
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text())
        if not (page.parent / target).exists()
    ]
    assert broken == []
