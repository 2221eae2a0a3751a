"""What "always" covers, and what it must not: the next command is written by somebody who knows what was allowed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminids.events.model import Change, PermissionAsked
from geminids.warm.allow_always import AllowAlways


def _asked(
    tool: str = "run_shell_command", kind: Any = "execute", cwd: str = "/repo", **fields: Any
) -> PermissionAsked:
    return PermissionAsked(
        at=0, seq=0, attempt=1, turn=1, id="t", tool=tool, kind=kind, title="x", cwd=cwd, **fields
    )


def _covers(allowed: PermissionAsked, then: PermissionAsked) -> bool:
    always = AllowAlways()
    assert always.covers(then) is None
    always.remember(allowed)
    assert always.covers(allowed) == AllowAlways.meaning(allowed)
    return always.covers(then) is not None


def _lets(allowed: str, then: str, cwd: str = "/repo") -> bool:
    return _covers(_asked(command=allowed, cwd=cwd), _asked(command=then, cwd=cwd))


@pytest.mark.parametrize(
    ("allowed", "then"),
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
def test_what_a_command_covers(allowed: str, then: str) -> None:
    """Itself; and for programs that read or test, the same with other files of the folder."""
    assert _lets(allowed, then)


@pytest.mark.parametrize(
    ("allowed", "then"),
    [
        # Another subcommand, or one behind options that run things.
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
        # Options and assignments that write or run.
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
def test_what_a_command_does_not_cover(allowed: str, then: str) -> None:
    """Whatever could do more than what was seen."""
    assert not _lets(allowed, then)
    assert _lets(then, then) or not then


@given(st.text(max_size=20), st.sampled_from(("git status", "cat a", "ls", "pytest")))
def test_nothing_that_a_shell_would_act_on_is_covered(tail: str, allowed: str) -> None:
    """Whatever is written behind an allowed command: only plain words pass."""
    if _lets(allowed, f"{allowed} {tail}"):
        assert not set(tail.strip()) & set("\n\r;&|<>$`(){}*?[]!#\\'\"~=:\0")
        assert not any(word.startswith("/") or ".." in word.split("/") for word in tail.split())
        assert not any(word.startswith("-") for word in tail.split())


def test_a_command_in_another_folder_is_another_command(tmp_path: Path) -> None:
    """`rm -r build` was allowed here, and not wherever the model says."""
    here, there = _asked(command="rm -r build"), _asked(command="rm -r build", cwd="/repo/other")
    assert not _covers(here, there)
    assert not _covers(_asked(command="ls"), _asked(command="ls", cwd="/"))


def test_a_link_out_of_the_folder_is_no_file_of_it(tmp_path: Path) -> None:
    """A repository may hold links to whatever its author wants to be read."""
    (tmp_path / "work").mkdir()
    (tmp_path / "secret").write_text("x")
    (tmp_path / "work" / "link").symlink_to(tmp_path / "secret")
    (tmp_path / "work" / "up").symlink_to(tmp_path)
    work = str(tmp_path / "work")
    assert _lets("cat a", "cat b", work)
    assert not _lets("cat a", "cat link", work)
    assert not _lets("cat a", "cat up/secret", work)


def _edit(path: str, cwd: Path | str, **fields: Any) -> PermissionAsked:
    return _asked("write_file", "write", str(cwd), paths=(path,), **fields)


def test_what_an_edit_covers(tmp_path: Path) -> None:
    """Files of the folder, whichever tool writes them."""
    allowed = _edit(str(tmp_path / "a.py"), tmp_path)
    assert _covers(allowed, _edit(str(tmp_path / "src" / "b.py"), tmp_path))
    assert _covers(allowed, _edit("src/b.py", tmp_path))
    replaced = _asked("replace", "edit", str(tmp_path), changes=(Change(str(tmp_path / "c.py"), "edited"),))
    assert _covers(allowed, replaced)
    assert AllowAlways.meaning(allowed) == "edits of files in this folder, hidden and build files aside"


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
    """Neither what lies outside, by `..` or by a link, nor what is run by builds, git, editors or shells."""
    work = tmp_path / "work"
    work.mkdir()
    (work / "up").symlink_to(tmp_path)
    (work / "notes.txt").symlink_to("pyproject.toml")
    for named in (path, str(work / path)):
        assert not _covers(_edit("a.py", work), _edit(named, work))
        assert not _covers(
            _edit("a.py", work), _asked("replace", "edit", str(work), changes=(Change(named, "edited"),))
        )
    # And a yes to such a file is a yes to this one alone.
    assert not _covers(_edit(path, work), _edit("a.py", work))
    assert not _covers(_edit(path, work), _edit("setup.py", work))


def test_a_build_file_that_was_allowed_is_covered_by_itself(tmp_path: Path) -> None:
    """By the file that it is, and not by a name that may lead elsewhere later."""
    allowed = _edit("pyproject.toml", tmp_path)
    assert AllowAlways.meaning(allowed) == "edits of pyproject.toml"
    assert _covers(allowed, _edit(str(tmp_path / "pyproject.toml"), tmp_path))
    always = AllowAlways()
    always.remember(allowed)
    (tmp_path / "pyproject.toml").symlink_to("/etc/passwd")
    assert always.covers(allowed) is None


def test_several_files_are_as_safe_as_the_least_of_them(tmp_path: Path) -> None:
    """What a call says of its paths does not hide what its diff changes; and names are not run together."""
    both = _edit("a.py", tmp_path, changes=(Change("/etc/passwd", "edited"),))
    assert not _covers(_edit("a.py", tmp_path), both)
    two = _asked("x", "edit", str(tmp_path), paths=("/b", "/c"))
    assert not _covers(two, _asked("x", "edit", str(tmp_path), paths=("/b /c",)))


def test_an_edit_of_nothing_that_is_known_has_no_always() -> None:
    """Nobody could say what was allowed."""
    nothing = _asked("write_file", "write")
    assert AllowAlways.meaning(nothing) is None
    always = AllowAlways()
    always.remember(nothing)
    assert always.covers(nothing) is None


def test_any_other_tool_is_covered_by_its_name() -> None:
    """And by no other's."""
    fetch, other = _asked("web_fetch", "fetch"), _asked("mcp_srv_delete", "other")
    assert _covers(fetch, fetch) and not _covers(fetch, other) and not _covers(other, fetch)
    assert not _covers(_asked("mcp_srv_read", "other"), other)
    assert not _covers(_asked("x", "other"), _asked(command="x"))


def test_always_is_a_chats_own() -> None:
    """What one has allowed is nothing to the next."""
    one, two, asked = AllowAlways(), AllowAlways(), _asked(command="make")
    one.remember(asked)
    assert one.covers(asked) == "this very command" and two.covers(asked) is None
