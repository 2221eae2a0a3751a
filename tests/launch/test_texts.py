"""A GEMINI.md brings in nothing from outside its folder."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from geminids.launch.prompt.context_files import ContextFileProblem, check_context_files, context_file_names


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder beside a secret, with a link to it."""
    (tmp_path / "secret.txt").write_text("secret")
    folder = tmp_path / "repo"
    folder.mkdir()
    (folder / "link.txt").symlink_to("../secret.txt")
    return folder


def _refused(folder: Path, *names: str) -> str:
    with pytest.raises(ContextFileProblem) as caught:
        check_context_files(str(folder), names or ("GEMINI.md",))
    return str(caught.value)


def test_plain_texts_are_fine(folder: Path) -> None:
    """Text, addresses, imports of what is there or not there, and links within the folder."""
    (folder / "sub").mkdir()
    (folder / "docs.md").write_text("@./GEMINI.md @./docs.md")  # in a circle
    (folder / "GEMINI.md").write_text(
        "mail a@b.example, @docs.md, @./nothing.md, @../secret.txt, @/etc/passwd"
    )
    (folder / "sub/GEMINI.md").symlink_to("../docs.md")
    check_context_files(str(folder), ("GEMINI.md",))


def test_a_link_to_elsewhere(folder: Path) -> None:
    """Told with the place that it leads to."""
    (folder / "GEMINI.md").symlink_to("../secret.txt")
    assert _refused(folder).endswith(f"outside the folder: {folder.parent / 'secret.txt'}")


@pytest.mark.parametrize("text", ["@./link.txt", "see\n@link.txt now", "\t@./x/../link.txt", "@./more.md"])
def test_an_import_of_a_link(folder: Path, text: str) -> None:
    """`@path` counts wherever the CLI takes it for one, and so does what the imported text names."""
    (folder / "GEMINI.md").write_text(text)
    (folder / "more.md").write_text("@link.txt")
    assert "link.txt is a link to a file outside" in _refused(folder)


def test_texts_above_belong_to_the_repository(folder: Path) -> None:
    """Up to `.git`: there the CLI reads them too. Without one, what is above is not looked at."""
    inner = folder / "a" / "b"
    inner.mkdir(parents=True)
    (folder / "GEMINI.md").symlink_to("../secret.txt")
    check_context_files(str(inner), ("GEMINI.md",))
    (folder / ".git").write_text("gitdir: elsewhere")
    assert "GEMINI.md is a link" in _refused(inner)
    (folder / "GEMINI.md").unlink()
    (folder / "a/GEMINI.md").symlink_to("../other.md")
    (folder / "other.md").write_text("fine")
    check_context_files(str(inner), ("GEMINI.md",))


def test_texts_below(folder: Path) -> None:
    """A text in a folder below is refused alike; links to folders are not followed."""
    (folder / "a/b").mkdir(parents=True)
    (folder / "up").symlink_to("..")
    (folder.parent / "GEMINI.md").symlink_to("/etc/hostname")
    check_context_files(str(folder), ("GEMINI.md",))
    (folder / "a/b/GEMINI.md").symlink_to("../../../secret.txt")
    assert "a/b/GEMINI.md" in _refused(folder)


def test_other_names(folder: Path) -> None:
    """The names are the user's; a file that is no text for the CLI is none for us."""
    (folder / "AGENTS.md").symlink_to("../secret.txt")
    check_context_files(str(folder), ("GEMINI.md",))
    assert "AGENTS.md" in _refused(folder, "GEMINI.md", "AGENTS.md")
    assert context_file_names({}) == context_file_names({"context": {"fileName": [1, ""]}}) == ("GEMINI.md",)
    assert context_file_names({"context": {"fileName": "AGENTS.md"}}) == ("AGENTS.md",)


def test_what_is_no_file(folder: Path) -> None:
    """A FIFO is refused without waiting; a circle of links, a folder and a link to nowhere are nothing to read."""
    os.mkfifo(folder / "GEMINI.md")
    assert "not a regular file" in _refused(folder)
    (folder / "GEMINI.md").unlink()
    for make in (lambda file: file.symlink_to(file.name), lambda file: file.symlink_to("gone"), Path.mkdir):
        make(folder / "GEMINI.md")
        check_context_files(str(folder), ("GEMINI.md",))
        (folder / "GEMINI.md").rmdir() if make is Path.mkdir else (folder / "GEMINI.md").unlink()


def test_a_big_tree_does_not_hold_up_a_start(folder: Path) -> None:
    """No more folders are looked at than the CLI looks at."""
    for n in range(600):
        (folder / f"d{n:03}").mkdir()
    begin = time.monotonic()
    check_context_files(str(folder), ("GEMINI.md",))
    assert time.monotonic() - begin < 1


def test_a_text_that_is_too_long_to_be_looked_at_is_refused(folder: Path) -> None:
    """Behind four megabytes of blanks an import counts all the same."""
    (folder / "GEMINI.md").write_text("@./link.txt" + " " * 5_000_000)
    assert "too large to check" in _refused(folder)


def test_folders_beside_it_are_looked_at_too(folder: Path, tmp_path: Path) -> None:
    """What `include_dirs` names has texts of its own."""
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "GEMINI.md").symlink_to("../secret.txt")
    check_context_files(str(folder), ("GEMINI.md",))
    with pytest.raises(ContextFileProblem, match="outside the folder"):
        check_context_files(str(folder), ("GEMINI.md",), further=[str(tmp_path / "more")])
