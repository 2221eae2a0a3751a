"""The environment of the CLI: who wins, what is left out, and what an env file may hold."""

from __future__ import annotations

from typing import Any

import pytest

from geminids import OptionsError
from geminids.launch.environment import EnvFileProblem, base_environment, headless_environment, read_env_file
from geminids.options import Options, make_options

_HOST = {
    "PATH": "/bin",
    "HOME": "/home/me",
    "TZ": "UTC",
    "TOKEN": "t",
    "GEMINI_CLI_GEMINIDS_MARK": "m",
    "A": "host",
}


def test_the_caller_wins_over_the_file_over_the_host() -> None:
    """`env` over `env_file` over this process's own."""
    env = base_environment(_HOST, Options(env={"A": "caller"}), {"A": "file", "B": "file"})
    assert (env["A"], env["B"], env["TOKEN"]) == ("caller", "file", "t")


def test_env_only_names_what_passes() -> None:
    """Nothing else of the host's, but for what a program needs to start and the mark by which a run is ended."""
    env = base_environment(_HOST, Options(env_only=("A",), env={"C": "1"}), {"B": "file"})
    assert set(env) == {"PATH", "HOME", "TZ", "GEMINI_CLI_GEMINIDS_MARK", "A", "B", "C"}
    assert "TOKEN" not in base_environment(_HOST, Options(env_only=()), {})


def test_what_every_run_needs_is_set() -> None:
    """One process and no browser, whatever the host says."""
    env = headless_environment({"NO_BROWSER": "", "GEMINI_CLI_NO_RELAUNCH": "no"})
    assert env == {"NO_BROWSER": "true", "GEMINI_CLI_NO_RELAUNCH": "true"}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("\ufeffA=1\r\nB=2\rC=3", {"A": "1", "B": "2", "C": "3"}),
        ("A=x=y\nexport B='#1'\nC=#1\n", {"A": "x=y", "B": "#1", "C": "#1"}),
        ("A=\n\n  # note\nB= spaced  # note\n", {"A": "", "B": "spaced"}),
        ("A=one\u2028two\x85three\n", {"A": "one\u2028two\x85three"}),
    ],
)
def test_an_env_file(text: str, found: dict[str, str]) -> None:
    """Any ends of lines, quotes, comments, empty values; odd characters stay in their value."""
    assert read_env_file(text, ".env") == found


@pytest.mark.parametrize("line", ["secret-words", "=secret", "A B=secret", "A-B=secret", '"A"=secret'])
def test_a_line_that_is_none(line: str) -> None:
    """It is told by its number and never shown: it may hold a secret."""
    with pytest.raises(EnvFileProblem) as caught:
        read_env_file(f"A=1\n{line}\n", "my.env")
    assert str(caught.value) == "my.env, line 2: not NAME=value"


@pytest.mark.parametrize("name", ["", "A=B", "A\0B", "\ud800"])
def test_names_that_the_system_cannot_take(name: str) -> None:
    """No empty name, no `=`, no NUL, no half of a character; in `env_only` neither."""
    for fields in ({"env": {name: "x"}}, {"env_only": (name,)}):
        with pytest.raises(OptionsError):
            make_options(**fields)


@pytest.mark.parametrize("name", ["1A", "a.b", "a-b", "with blank", "größe", "(x)"])
def test_odd_names_that_it_takes(name: str) -> None:
    """A system has few rules for names, and neither have we."""
    assert make_options(env={name: "x"}).env == {name: "x"}


@pytest.mark.parametrize("value", ["", "two\nlines", "tab\t", "'\"$`\\", "ünï"])
def test_values_are_any_text(value: str) -> None:
    """New lines and quotes are fine in a value."""
    assert base_environment({}, make_options(env={"A": value}), {})["A"] == value


@pytest.mark.parametrize("value", ["a\0b", 1, None, b"x"])
def test_values_that_are_none(value: Any) -> None:
    """A NUL cannot be passed on, and what is no text is not guessed at; the value is not shown."""
    with pytest.raises(OptionsError) as caught:
        make_options(env={"TOKEN": value})
    assert "a\0b" not in str(caught.value)
