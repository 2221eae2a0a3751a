"""Every code block of the README, the tutorial and the how-to and migration pages runs as it is."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from doc_blocks import LANGUAGES, ROOT, Block, blocks_of, run_page

HOW_TO = sorted(f"docs/how-to/{file.name}" for file in ROOT.glob("docs/how-to/*.md"))
MIGRATION = sorted(f"docs/migrate/{file.name}" for file in ROOT.glob("docs/migrate/*.md"))
TUTORIAL = "docs/tutorial.md"
PAGES = ["README.md", TUTORIAL, "docs/index.md", *HOW_TO]

# Blocks that another test runs: a part of the code → the test.
RUN_BY = {
    "git clone <this repository>": "tests/real/run/test_interfaces.py::test_a_clone_sets_itself_up_and_runs",
    'PATH="$PWD/.venv/bin:$PATH"': "tests/real/run/test_interfaces.py::test_a_clone_sets_itself_up_and_runs",
}
# The reasons why blocks are not run, and how many blocks have each.
NOT_RUN = {
    "installs a package; CI runs the same test with its own pytest.": 1,
    "needs GitHub and an API key.": 1,
    "needs a Google Cloud project.": 1,
    "needs a Google account and a browser.": 1,
    "needs a key for Vertex AI.": 1,
    "needs an API key and a keyring.": 1,
    "needs an API key.": 2,
    "needs a person at the keyboard.": 3,
    "needs a recording with a real model.": 2,
}
# Quick pages run in `make test`, the others in `make test-deep`.
_QUICK = ("README.md", TUTORIAL)

_PICTURE = bytes.fromhex("89504e470d0a1a0a") + bytes(16)


def _runnable(page: str) -> list[Block]:
    """The blocks of a page that are run here, without the output of those that are not."""
    runnable: list[Block] = []
    is_left_out = False
    for block in blocks_of(page):
        is_left_out = any(part in block.code for part in RUN_BY) or (is_left_out and block.language == "text")
        if not is_left_out:
            runnable.append(block)
    return runnable


def test_each_block_has_a_language_that_is_tested() -> None:
    """Each block is fenced, and its language is run or parsed."""
    blocks = [block for page in PAGES for block in blocks_of(page)]
    assert [str(block) for block in blocks if block.language not in LANGUAGES] == []
    fences = {page: (ROOT / page).read_text().count("```") for page in PAGES}
    assert fences == {page: 2 * len(blocks_of(page)) for page in PAGES}
    indented = [
        f"{page}:{number}"
        for page in PAGES
        for number, (line, above) in enumerate(_lines_outside_fences(page), 2)
        if line.startswith("    ") and not above.strip()
    ]
    assert indented == []


def _lines_outside_fences(page: str) -> list[tuple[str, str]]:
    lines, inside = [], False
    for line in (ROOT / page).read_text().splitlines():
        inside ^= line.startswith("```")
        lines.append("" if inside or line.startswith("```") else line)
    return list(zip(lines[1:], lines, strict=False))


def test_blocks_that_are_not_run_have_a_reason() -> None:
    """The blocks that cannot run here are marked in the page; their reasons and number are listed here."""
    reasons = Counter(block.reason for page in PAGES for block in blocks_of(page) if block.reason)
    assert dict(reasons) == NOT_RUN


def test_blocks_of_other_tests() -> None:
    """The tests that run further blocks exist, and no entry is left over."""
    blocks = [block.code for page in PAGES for block in blocks_of(page)]
    for part, test in RUN_BY.items():
        file, name = test.split("::")
        assert f"def {name}(" in (ROOT / file).read_text()
        assert any(part in code for code in blocks)


@pytest.mark.parametrize("page", MIGRATION)
def test_migration_pages_have_one_program(page: str) -> None:
    """Each migration page has one block, a program that the page's own test runs."""
    (block,) = blocks_of(page)
    assert block.language == "python"
    test = ROOT / "tests" / "migrate" / f"test_{Path(page).stem.replace('-', '_')}.py"
    assert "def test_the_program_of_the_page(" in test.read_text()


@pytest.mark.real
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "page", [page if page in _QUICK else pytest.param(page, marks=pytest.mark.deep) for page in PAGES]
)
def test_every_block_of_a_page_runs(make_world: Any, page: str) -> None:
    """The blocks of a page run in their order, in one folder, and print what the page shows.

    A scripted API takes the place of Google's. The tutorial has no API at all."""
    world = make_world("0.61.0")
    env = {name: value for name, value in os.environ.items() if not name.startswith(("GEMINI_", "GOOGLE_"))}
    env |= {"HOME": str(world.home), "TMPDIR": str(world.tmp), "LANG": "C.UTF-8"}
    if page != TUTORIAL:
        env |= world.gateway.env
        script_replies(world.gateway)
        make_files(world.cwd)
    run_page(_runnable(page), world.cwd, env)


def script_replies(gateway: Any) -> None:
    """What the model answers to the prompts of the pages."""
    bugs = '[{"file": "log.txt", "line": 2, "what": "The disk is full."}]'
    gateway.when("List the bugs", text=f"```json\n{bugs}\n```", times=None)
    gateway.when("true or false", text="false", times=None)
    gateway.when(".", text="Done.", times=None)


def make_files(folder: Path) -> None:
    """The files that the pages name."""
    repo = folder / "repo"
    repo.mkdir()
    (repo / "README.md").write_text("# Meteors\n\nThey fall in December.\n")
    subprocess.run(["git", "init", "--quiet", str(repo)], check=True)
    (folder / "log.txt").write_text("10:00 started\n10:01 no space left on device\n")
    (folder / "AGENT.md").write_text("Be brief.\n")
    (folder / "style.md").write_text("Be brief.\n")
    (folder / "review.md").write_text("You review for {{tenant.name}}. {{prompt}}\n")
    for name in ("cat.png", "screenshot.png"):
        (folder / name).write_bytes(_PICTURE)
    schema = '{"type": "array", "items": {"type": "object", "required": ["file", "line"]}}'
    (folder / "bugs.schema.json").write_text(schema)


_SVG_TEXT = re.compile(r"<text[^>]*>([^<]*)</text>")


def test_the_picture_needs_no_server() -> None:
    """docs/images/run.svg shows a run, and loads no font from a server."""
    svg = (ROOT / "docs" / "images" / "run.svg").read_text()
    assert set(re.findall(r"https?://[^\"'\s)]*", svg)) == {"http://www.w3.org/2000/svg"}
    assert "success" in svg


@pytest.mark.deep
@pytest.mark.real
@pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux")
def test_the_picture_is_made_by_a_run(make_world: Any, tmp_path: Path) -> None:
    """docs/images/run.svg has the words that docs/picture.py draws now, except for numbers and ids."""
    make_world("0.61.0")
    svg = tmp_path / "run.svg"
    subprocess.run([sys.executable, str(ROOT / "docs" / "picture.py"), str(svg)], check=True, timeout=170)

    def words(text: str) -> list[str]:
        return re.sub(
            r"[0-9a-f-]*\d[0-9a-f.,-]*( ms| s)?",
            "",
            "\n".join(_SVG_TEXT.findall(text.replace("&#160;", " "))),
        ).split()

    assert words(svg.read_text()) == words((ROOT / "docs" / "images" / "run.svg").read_text())
