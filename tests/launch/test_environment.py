"""Tests of the CLI's environment: precedence, `env_only`, and the entries of an env file."""

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


def test_the_precedence_of_variables() -> None:
    """`env` overrides `env_file`, which overrides the environment of this process."""
    env = base_environment(_HOST, Options(env={"A": "caller"}), {"A": "file", "B": "file"})
    assert (env["A"], env["B"], env["TOKEN"]) == ("caller", "file", "t")


def test_env_only_limits_the_variables() -> None:
    """With `env_only`, only the named variables of the host pass, plus those that a program needs
    to start and the mark."""
    env = base_environment(_HOST, Options(env_only=("A",), env={"C": "1"}), {"B": "file"})
    assert set(env) == {"PATH", "HOME", "TZ", "GEMINI_CLI_GEMINIDS_MARK", "A", "B", "C"}
    assert "TOKEN" not in base_environment(_HOST, Options(env_only=()), {})


def test_headless_variables_are_set() -> None:
    """Each run disables the browser and the CLI's relaunch, and overrides the values of the
    host."""
    env = headless_environment({"NO_BROWSER": "", "GEMINI_CLI_NO_RELAUNCH": "no"})
    assert env == {"NO_BROWSER": "true", "GEMINI_CLI_NO_RELAUNCH": "true"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\ufeffA=1\r\nB=2\rC=3", {"A": "1", "B": "2", "C": "3"}),
        ("A=x=y\nexport B='#1'\nC=#1\n", {"A": "x=y", "B": "#1", "C": "#1"}),
        ("A=\n\n  # note\nB= spaced  # note\n", {"A": "", "B": "spaced"}),
        ("A=one\u2028two\x85three\n", {"A": "one\u2028two\x85three"}),
    ],
)
def test_an_env_file_is_read(text: str, expected: dict[str, str]) -> None:
    """An env file may have any line ends, quotes, comments and empty values.

    Unusual characters stay in the value.
    """
    assert read_env_file(text, ".env") == expected


@pytest.mark.parametrize("line", ["secret-words", "=secret", "A B=secret", "A-B=secret", '"A"=secret'])
def test_an_invalid_line_is_not_shown(line: str) -> None:
    """An invalid line is reported by its number and not shown, because it may contain a secret."""
    with pytest.raises(EnvFileProblem) as caught:
        read_env_file(f"A=1\n{line}\n", "my.env")
    assert str(caught.value) == "my.env, line 2 is not NAME=value"


@pytest.mark.parametrize("name", ["", "A=B", "A\0B", "\ud800"])
def test_invalid_names_are_refused(name: str) -> None:
    """A variable name that is empty, or contains `=`, NUL or a lone surrogate, is refused in `env`
    and `env_only`."""
    for fields in ({"env": {name: "x"}}, {"env_only": (name,)}):
        with pytest.raises(OptionsError):
            make_options(**fields)


@pytest.mark.parametrize("name", ["1A", "a.b", "a-b", "with blank", "größe", "(x)"])
def test_unusual_names_are_accepted(name: str) -> None:
    """Unusual variable names that the system accepts are accepted."""
    assert make_options(env={name: "x"}).env == {name: "x"}


@pytest.mark.parametrize("value", ["", "two\nlines", "tab\t", "'\"$`\\", "ünï"])
def test_a_value_may_be_any_text(value: str) -> None:
    """A value may contain new lines, quotes and any other text."""
    assert base_environment({}, make_options(env={"A": value}), {})["A"] == value


@pytest.mark.parametrize("value", ["a\0b", 1, None, b"x"])
def test_invalid_values_are_refused(value: Any) -> None:
    """A value with NUL, or that is not text, is refused, and the message does not show it."""
    with pytest.raises(OptionsError) as caught:
        make_options(env={"TOKEN": value})
    assert "a\0b" not in str(caught.value)
