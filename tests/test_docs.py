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


PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)


def _anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and MkDocs make them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def _broken_links(page: Path, text: str) -> list[str]:
    broken = []
    for target in _LINK.findall(_CODE.sub("", text)):
        file, _, anchor = target.partition("#")
        if re.match(r"https?://", target):
            continue
        path = page.parent / file if file else page
        if not path.exists() or (anchor and anchor not in _anchors(path)):
            broken.append(f"{page.relative_to(ROOT)}: {target}")
    return broken


def test_every_link_between_pages_works() -> None:
    """Links in Markdown name files that exist, and headings that these files have."""
    assert [link for page in PAGES for link in _broken_links(page, page.read_text())] == []


@pytest.mark.parametrize("target", ["gone.md", "index.md#gone", "#gone", "../docs"])
def test_a_broken_link_is_found(target: str) -> None:
    """A missing file and a missing heading are found; a folder is a link that works on GitHub."""
    broken = _broken_links(ROOT / "docs" / "index.md", f"See [it]({target}), [this](#how-to) and `[a](b)`.")
    assert broken == ([] if target == "../docs" else [f"docs/index.md: {target}"])


def test_the_site_has_every_page() -> None:
    """mkdocs.yml lists each page of docs/ once."""
    listed = re.findall(r"([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(
        str(page.relative_to(ROOT / "docs")) for page in ROOT.glob("docs/**/*.md")
    )


def test_the_index_lists_every_guide() -> None:
    """docs/index.md links the tutorial and each how-to, migration, reference and explanation page."""
    index = (ROOT / "docs" / "index.md").read_text()
    pages = [page.relative_to(ROOT / "docs").as_posix() for page in ROOT.glob("docs/**/*.md")]
    exempt = ("index.md", "reference/dialects/")
    assert [page for page in pages if not page.startswith(exempt) and f"({page})" not in index] == []


def test_the_glossary_is_short_and_sorted() -> None:
    """docs/glossary.md explains at most 25 terms, in alphabetical order."""
    terms = re.findall(r"^\| ([a-z][\w ]*) \|", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE)
    terms.remove("term")
    assert 0 < len(terms) <= 25
    assert terms == sorted(terms)
