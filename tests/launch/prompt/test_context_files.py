"""Tests of `check_context_files`: a GEMINI.md must not bring files from outside its folder into the
prompt."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from geminids.launch.prompt.context_files import ContextFileProblem, check_context_files, context_file_names


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a link to a secret file outside it."""
    (tmp_path / "secret.txt").write_text("secret")
    folder = tmp_path / "repo"
    folder.mkdir()
    (folder / "link.txt").symlink_to("../secret.txt")
    return folder


def _refusal(folder: Path, *names: str) -> str:
    with pytest.raises(ContextFileProblem) as caught:
        check_context_files(str(folder), names or ("GEMINI.md",))
    return str(caught.value)


def test_plain_context_files_are_accepted(folder: Path) -> None:
    """Text, mail addresses, imports of plain paths and links within the folder are accepted."""
    (folder / "sub").mkdir()
    (folder / "docs.md").write_text("@./GEMINI.md @./docs.md")  # in a circle
    (folder / "GEMINI.md").write_text(
        "mail a@b.example, @docs.md, @./nothing.md, @../secret.txt, @/etc/passwd"
    )
    (folder / "sub/GEMINI.md").symlink_to("../docs.md")
    check_context_files(str(folder), ("GEMINI.md",))


def test_a_link_to_a_file_outside_is_refused(folder: Path) -> None:
    """A GEMINI.md that is a link to a file outside is refused, and the message names the target."""
    (folder / "GEMINI.md").symlink_to("../secret.txt")
    assert _refusal(folder).endswith(f"outside the folder: {folder.parent / 'secret.txt'}")


@pytest.mark.parametrize("text", ["@./link.txt", "see\n@link.txt now", "\t@./x/../link.txt", "@./more.md"])
def test_an_import_of_a_link_is_refused(folder: Path, text: str) -> None:
    """An import of a link to a file outside is refused, wherever the CLI recognises `@path`, also
    in an imported file."""
    (folder / "GEMINI.md").write_text(text)
    (folder / "more.md").write_text("@link.txt")
    assert "link.txt is a link to a file outside" in _refusal(folder)


def test_parent_folders_are_checked_up_to_git(folder: Path) -> None:
    """Context files of parent folders are checked up to the folder with `.git`, as far as the CLI
    reads them. Without `.git`, parents are not checked."""
    inner = folder / "a" / "b"
    inner.mkdir(parents=True)
    (folder / "GEMINI.md").symlink_to("../secret.txt")
    check_context_files(str(inner), ("GEMINI.md",))
    (folder / ".git").write_text("gitdir: elsewhere")
    assert "GEMINI.md is a link" in _refusal(inner)
    (folder / "GEMINI.md").unlink()
    (folder / "a/GEMINI.md").symlink_to("../other.md")
    (folder / "other.md").write_text("fine")
    check_context_files(str(inner), ("GEMINI.md",))


def test_subfolders_are_checked(folder: Path) -> None:
    """A context file in a subfolder is checked too; links to folders are not followed."""
    (folder / "a/b").mkdir(parents=True)
    (folder / "up").symlink_to("..")
    (folder.parent / "GEMINI.md").symlink_to("/etc/hostname")
    check_context_files(str(folder), ("GEMINI.md",))
    (folder / "a/b/GEMINI.md").symlink_to("../../../secret.txt")
    assert "a/b/GEMINI.md" in _refusal(folder)


def test_the_settings_name_the_files(folder: Path) -> None:
    """The file names come from the user's `context.fileName` setting; the default is GEMINI.md."""
    (folder / "AGENTS.md").symlink_to("../secret.txt")
    check_context_files(str(folder), ("GEMINI.md",))
    assert "AGENTS.md" in _refusal(folder, "GEMINI.md", "AGENTS.md")
    assert context_file_names({}) == context_file_names({"context": {"fileName": [1, ""]}}) == ("GEMINI.md",)
    assert context_file_names({"context": {"fileName": "AGENTS.md"}}) == ("AGENTS.md",)


def test_context_files_that_are_no_files(folder: Path) -> None:
    """A FIFO is refused without waiting.

    A circular link, a link to nothing and a folder are ignored.
    """
    os.mkfifo(folder / "GEMINI.md")
    assert "not a regular file" in _refusal(folder)
    (folder / "GEMINI.md").unlink()
    for create in (lambda file: file.symlink_to(file.name), lambda file: file.symlink_to("gone"), Path.mkdir):
        create(folder / "GEMINI.md")
        check_context_files(str(folder), ("GEMINI.md",))
        (folder / "GEMINI.md").rmdir() if create is Path.mkdir else (folder / "GEMINI.md").unlink()


def test_a_big_tree_is_checked_quickly(folder: Path) -> None:
    """A tree of 600 folders is checked in less than a second."""
    for n in range(600):
        (folder / f"d{n:03}").mkdir()
    start = time.monotonic()
    check_context_files(str(folder), ("GEMINI.md",))
    assert time.monotonic() - start < 1


def test_a_context_file_that_is_too_large_is_refused(folder: Path) -> None:
    """A context file that is too large to check is refused."""
    (folder / "GEMINI.md").write_text("@./link.txt" + " " * 5_000_000)
    assert "too large to check" in _refusal(folder)


def test_further_folders_are_checked(folder: Path, tmp_path: Path) -> None:
    """Context files in further folders (`include_dirs`) are checked too."""
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "GEMINI.md").symlink_to("../secret.txt")
    check_context_files(str(folder), ("GEMINI.md",))
    with pytest.raises(ContextFileProblem, match="outside the folder"):
        check_context_files(str(folder), ("GEMINI.md",), further=[str(tmp_path / "more")])
