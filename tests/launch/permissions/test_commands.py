"""Tests of how permission rules match shell commands and build files."""

from __future__ import annotations

import json
import re

import pytest

from geminids.launch.permissions.commands import (
    allowed_begin,
    build_file_pattern,
    denied_begin,
    is_build_file,
)


@pytest.mark.parametrize(
    ("command", "allowed"),
    [
        ("git status", True),
        ("git status --short 'a b'", True),
        ("  git   status\t-s", True),
        ("git statusx", False),
        ("git", False),
        ("git stash", False),
        ("git status; rm x", False),
        ("git status && rm x", False),
        ("git status | tee x", False),
        ("git status > x", False),
        ("git status < x", False),
        ("git status $(rm x)", False),
        ("git status `rm x`", False),
        ("git status $HOME", False),
        ("git status & rm x", False),
        ("git status\nrm x", False),
        ("git status\rrm x", False),
        ("git status {a,b}", False),
        ("git status *", False),
        ("git status \\; rm", False),
        ("X=1 git status", False),
        ("/tmp/git status", False),
        ("", False),
    ],
)
def test_an_allowed_command_is_simple(command: str, allowed: bool) -> None:
    """An allowed command matches whole words at the beginning of a simple command, which has no
    shell syntax."""
    assert allowed_begin(command, ("ls", "git status")) == ("git status" if allowed else None)


@pytest.mark.parametrize(
    ("command", "denied"),
    [
        ("rm x", True),
        ("/bin/rm x", True),
        ("ls && rm x", True),
        ("ls;rm x", True),
        ("ls | rm", True),
        ("sh -c 'rm x'", True),
        ("echo $(rm x)", True),
        ("echo `rm x`", True),
        ("ls\nrm x", True),
        ("rmdir x", False),
        ("git rm x", False),
        ("ls farm", False),
        ("", False),
    ],
)
def test_a_denied_command_is_found_in_every_part(command: str, denied: bool) -> None:
    """A denied command is found at the beginning of each part of a command line, also by its path.

    A longer word such as `rmdir` is not `rm`.
    """
    assert denied_begin(command, ("mkfs", "rm")) == ("rm" if denied else None)


def test_a_denied_option_matches_combined_options() -> None:
    """A denied `rm -r` also matches `rm -rf`, as in the policy engine of the CLI."""
    assert denied_begin("rm -rf x", ("rm -r",)) == "rm -r"
    assert denied_begin("rm -f x", ("rm -r",)) is None
    assert denied_begin("rm", ("rm -r", " ")) is None


@pytest.mark.parametrize(
    ("path", "is_build"),
    [
        ("pyproject.toml", True),
        ("/a/b/package.json", True),
        ("Dockerfile.dev", True),
        ("a/rules.BZL", True),
        ("x.cmake", True),
        ("notes.txt", False),
        ("my-pyproject.toml", False),
        ("package.json.txt", False),
        ("Makefile/notes", False),
    ],
)
def test_build_files(path: str, is_build: bool) -> None:
    """Build files are recognised by name, like in the CLI.

    The rule's pattern finds the same files in the arguments of a call.
    """
    assert is_build_file(path) == is_build
    arguments = "{" + f'\0"content":"pyproject.toml"\0,\0"file_path":{json.dumps(path)}\0' + "}"
    assert (re.search(build_file_pattern(), arguments) is not None) == is_build
    assert len(build_file_pattern()) < 2048
