"""Tests of `AllowAlways`: which later calls an "allow always" answer covers.

An attacker who knows what was allowed may write the next command, so the answer must cover little.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminids.events.model import Change, PermissionAsked
from geminids.warm.permissions.allow_always import AllowAlways


def _asked(
    tool: str = "run_shell_command", kind: Any = "execute", cwd: str = "/repo", **fields: Any
) -> PermissionAsked:
    return PermissionAsked(
        at=0, seq=0, attempt=1, turn=1, id="t", tool=tool, kind=kind, title="x", cwd=cwd, **fields
    )


def _covers(allowed: PermissionAsked, later: PermissionAsked) -> bool:
    always = AllowAlways()
    assert always.covers(later) is None
    always.remember(allowed)
    assert always.covers(allowed) == AllowAlways.meaning(allowed)
    return always.covers(later) is not None


def _command_covers(allowed: str, later: str, cwd: str = "/repo") -> bool:
    return _covers(_asked(command=allowed, cwd=cwd), _asked(command=later, cwd=cwd))


@pytest.mark.parametrize(
    ("allowed", "later"),
    [
        ("make", "make"),
        ("rm -rf build && make", "rm -rf build && make"),
        ("make", " make\n"),
        ("git status", "git status src"),
        ("git status --short", "git status --short src/a.py"),
        ("git diff", "git diff main src/a.py"),
        ("ls", "ls src"),
        ("ls -l", "ls  -l  src"),
        ("cat a.txt", "cat src/b.txt"),
        ("pytest -q tests/a.py", "pytest -q tests/b.py"),
        ("npm test", "npm test src/a.test.js"),
    ],
)
def test_what_a_command_covers(allowed: str, later: str) -> None:
    """An allowed command covers itself.

    For programs that only read or test, it also covers other files of the folder.
    """
    assert _command_covers(allowed, later)


@pytest.mark.parametrize(
    ("allowed", "later"),
    [
        # Another subcommand, or options before the subcommand that can run a program.
        ("git status", "git push"),
        ("git status", "git"),
        ("git status", "git -c core.fsmonitor=./evil status"),
        ("git -C a status", "git -C a push"),
        ("git", "git push"),
        ("LC_ALL=C git status", "LC_ALL=C git push"),
        ("git status", "PATH=. git status"),
        ("git status", "git statusx"),
        ("npm run lint", "npm run deploy"),
        ("npm test", "npm publish"),
        ("uv run pytest", "uv run evil"),
        ("npm install a", "npm install evil"),
        # More than one command.
        ("git status", "git status; curl evil"),
        ("git status", "git status && rm -rf ."),
        ("git status", "git status | sh"),
        ("git status", "git status & evil"),
        ("git status", "git status\nevil"),
        ("git status", "git status\revil"),
        ("git status", "git status $(evil)"),
        ("git status", "git status `evil`"),
        ("git status", "git status <(evil)"),
        ("git status", "(git status; evil)"),
        ("git status", "git status > .bashrc"),
        ("git status", "git status >> a"),
        ("cat a", "cat < /etc/shadow"),
        ("cat a", "cat ~/.ssh/id_rsa"),
        ("cat a", "cat $HOME/.ssh/id_rsa"),
        ("cat a", "cat {a,/etc/shadow}"),
        ("cat a", "cat /etc/shadow"),
        ("cat a", "cat ../../etc/shadow"),
        ("cat a", "cat a/../../b"),
        ("cat a", "cat a\\\n/etc/shadow"),
        # Options and assignments that write files or run programs.
        ("git diff", "git diff --output=.git/hooks/pre-commit"),
        ("git diff", "git diff --ext-diff"),
        ("git diff --output=a", "git diff --output=a b"),
        ("git log --output a", "git log --output conftest.py"),
        ("git log -o a", "git log -o b"),
        ("make", "make -f evil.mk"),
        ("make", "make SHELL=./evil"),
        ("make test", "make test deploy"),
        ("go test", "go test -exec=./evil"),
        ("pytest", "pytest -p evil"),
        ("tar -tf a.tar", "tar -xf a.tar --to-command=./evil"),
        ("sort a", "sort a -o conftest.py"),
        ("rg x", "rg --pre=./evil x"),
        ("find .", "find . -delete"),
        ("cp a b", "cp a pyproject.toml"),
        ("touch a", "touch b"),
        ("sed -n 1p a", "sed -n w.bashrc a"),
        # Programs that run others, in any spelling.
        ("env ls", "env evil"),
        ("bash a.sh", "bash b.sh"),
        ("python3 a.py", "python3 b.py"),
        ("./ls", "./ls x"),
        ("ls", "./ls"),
        ("ls", "/tmp/ls"),
        ("xargs ls", "xargs rm"),
        ("sudo ls", "sudo rm"),
        ("", "ls"),
    ],
)
def test_what_a_command_does_not_cover(allowed: str, later: str) -> None:
    """An allowed command does not cover a command that could do more than the one the user saw."""
    assert not _command_covers(allowed, later)
    assert _command_covers(later, later) or not later


@given(st.text(max_size=20), st.sampled_from(("git status", "cat a", "ls", "pytest")))
def test_shell_syntax_is_never_covered(tail: str, allowed: str) -> None:
    """Only plain words may follow an allowed command."""
    if _command_covers(allowed, f"{allowed} {tail}"):
        assert not set(tail.strip()) & set("\n\r;&|<>$`(){}*?[]!#\\'\"~=:\0")
        assert not any(word.startswith("/") or ".." in word.split("/") for word in tail.split())
        assert not any(word.startswith("-") for word in tail.split())


def test_a_command_in_another_folder_is_not_covered(tmp_path: Path) -> None:
    """A command that is allowed in one folder is not allowed in another."""
    here, there = _asked(command="rm -r build"), _asked(command="rm -r build", cwd="/repo/other")
    assert not _covers(here, there)
    assert not _covers(_asked(command="ls"), _asked(command="ls", cwd="/"))


def test_a_link_out_of_the_folder_is_not_covered(tmp_path: Path) -> None:
    """An allowed command does not cover a link that leads out of the folder."""
    (tmp_path / "work").mkdir()
    (tmp_path / "secret").write_text("x")
    (tmp_path / "work" / "link").symlink_to(tmp_path / "secret")
    (tmp_path / "work" / "up").symlink_to(tmp_path)
    work = str(tmp_path / "work")
    assert _command_covers("cat a", "cat b", work)
    assert not _command_covers("cat a", "cat link", work)
    assert not _command_covers("cat a", "cat up/secret", work)


def _edit(path: str, cwd: Path | str, **fields: Any) -> PermissionAsked:
    return _asked("write_file", "write", str(cwd), paths=(path,), **fields)


def test_what_an_edit_covers(tmp_path: Path) -> None:
    """An allowed edit covers the other files of the folder, for every tool that writes."""
    allowed = _edit(str(tmp_path / "a.py"), tmp_path)
    assert _covers(allowed, _edit(str(tmp_path / "src" / "b.py"), tmp_path))
    assert _covers(allowed, _edit("src/b.py", tmp_path))
    replaced = _asked("replace", "edit", str(tmp_path), changes=(Change(str(tmp_path / "c.py"), "edited"),))
    assert _covers(allowed, replaced)
    assert AllowAlways.meaning(allowed) == "edits of files in this folder, except hidden and build files"


@pytest.mark.parametrize(
    "path",
    [
        "../a.py",
        "src/../../a.py",
        "/etc/passwd",
        "up/a.py",
        "pyproject.toml",
        "sub/package.json",
        "package-lock.json",
        "yarn.lock",
        "Makefile",
        "MAKEFILE",
        "GNUmakefile",
        "Dockerfile.dev",
        "a.cmake",
        "MODULE.bazel",
        "conftest.py",
        "notes.txt",
        ".git/hooks/pre-commit",
        ".git/config",
        "sub/.git/config",
        ".gemini/settings.json",
        ".github/workflows/ci.yml",
        ".envrc",
        "a\0b",
    ],
)
def test_what_an_edit_does_not_cover(tmp_path: Path, path: str) -> None:
    """An allowed edit covers no file outside the folder, and no file that builds, git, editors or
    shells execute."""
    work = tmp_path / "work"
    work.mkdir()
    (work / "up").symlink_to(tmp_path)
    (work / "notes.txt").symlink_to("pyproject.toml")
    for named in (path, str(work / path)):
        assert not _covers(_edit("a.py", work), _edit(named, work))
        assert not _covers(
            _edit("a.py", work), _asked("replace", "edit", str(work), changes=(Change(named, "edited"),))
        )
    # An "always" for such a file covers only this file.
    assert not _covers(_edit(path, work), _edit("a.py", work))
    assert not _covers(_edit(path, work), _edit("setup.py", work))


def test_an_allowed_build_file_covers_only_itself(tmp_path: Path) -> None:
    """An allowed build file is covered by its real path.

    If the path becomes a link to another file, it is no longer covered.
    """
    allowed = _edit("pyproject.toml", tmp_path)
    assert AllowAlways.meaning(allowed) == "edits of pyproject.toml"
    assert _covers(allowed, _edit(str(tmp_path / "pyproject.toml"), tmp_path))
    always = AllowAlways()
    always.remember(allowed)
    (tmp_path / "pyproject.toml").symlink_to("/etc/passwd")
    assert always.covers(allowed) is None


def test_all_files_of_a_call_must_be_covered(tmp_path: Path) -> None:
    """An allowed edit does not cover a call whose diff changes a file outside, even if its paths
    are inside. An "always" for two files does not cover one file whose name is both paths and a
    blank."""
    both = _edit("a.py", tmp_path, changes=(Change("/etc/passwd", "edited"),))
    assert not _covers(_edit("a.py", tmp_path), both)
    two = _asked("x", "edit", str(tmp_path), paths=("/b", "/c"))
    assert not _covers(two, _asked("x", "edit", str(tmp_path), paths=("/b /c",)))


def test_an_edit_without_paths_cannot_be_always_allowed() -> None:
    """An edit without known paths cannot be allowed for the rest of the chat."""
    unknown_edit = _asked("write_file", "write")
    assert AllowAlways.meaning(unknown_edit) is None
    always = AllowAlways()
    always.remember(unknown_edit)
    assert always.covers(unknown_edit) is None


def test_other_tools_are_covered_by_name() -> None:
    """An "allow always" for another tool covers all calls of this tool, and of no other tool."""
    fetch, other = _asked("web_fetch", "fetch"), _asked("mcp_srv_delete", "other")
    assert _covers(fetch, fetch) and not _covers(fetch, other) and not _covers(other, fetch)
    assert not _covers(_asked("mcp_srv_read", "other"), other)
    assert not _covers(_asked("x", "other"), _asked(command="x"))


def test_allow_always_applies_to_one_chat() -> None:
    """An "allow always" in one chat does not apply to another chat."""
    first, second, asked = AllowAlways(), AllowAlways(), _asked(command="make")
    first.remember(asked)
    assert first.covers(asked) == "this very command" and second.covers(asked) is None
