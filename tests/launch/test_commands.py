"""Shell commands as permissions see them."""

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
def test_an_allowed_command_is_simple_and_begins_with_the_words(command: str, allowed: bool) -> None:
    """Whole words from the beginning, and nothing in it that a shell would take apart."""
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
    """At the beginning of a part, by its path too; another word is another command."""
    assert denied_begin(command, ("mkfs", "rm")) == ("rm" if denied else None)


def test_an_option_may_have_others_run_into_it() -> None:
    """As the rules of the CLI's engine take it."""
    assert denied_begin("rm -rf x", ("rm -r",)) == "rm -r"
    assert denied_begin("rm -f x", ("rm -r",)) is None
    assert denied_begin("rm", ("rm -r", " ")) is None


@pytest.mark.parametrize(
    ("path", "build"),
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
def test_build_files(path: str, build: bool) -> None:
    """As the CLI knows them, by name; and the rule for them finds the same in a call's arguments."""
    assert is_build_file(path) == build
    said = "{" + f'\0"content":"pyproject.toml"\0,\0"file_path":{json.dumps(path)}\0' + "}"
    assert (re.search(build_file_pattern(), said) is not None) == build
    assert len(build_file_pattern()) < 2048
