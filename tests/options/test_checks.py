"""Tests of option checks that need the file system or the gateway setting."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from geminids.errors import OptionsError
from geminids.options import make_options

NOBODY = 65534


def _problem_as_nobody(cwd: str) -> str:
    """Return the problem that `make_options` reports to a user without rights.
    A child process gives up root for this."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        message = "nothing"
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setresgid(NOBODY, NOBODY, NOBODY)
                os.setresuid(NOBODY, NOBODY, NOBODY)
            make_options(cwd=cwd)
        except OptionsError as error:
            message = dict(error.problems)["cwd"]
        finally:
            os.write(writing, message.encode())
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        message = pipe.read().decode()
    os.waitpid(child, 0)
    return message


@pytest.mark.parametrize("mode", [0o000, 0o400, 0o100])
def test_unreadable_cwd(tmp_path: Path, mode: int) -> None:
    """A `cwd` that the user cannot both list and enter is reported as one problem."""
    if os.geteuid() == 0:
        # The other user must be able to reach the folder: open pytest's own parent folders.
        for folder in (tmp_path, *tmp_path.parents):
            if "pytest-of-" in str(folder):
                folder.chmod(folder.stat().st_mode | 0o055)
    closed = tmp_path / "closed"
    closed.mkdir()
    closed.chmod(mode)
    assert _problem_as_nobody(str(closed)) == f"{closed} cannot be opened: permission denied"
    closed.chmod(0o755)
    assert _problem_as_nobody(str(closed)) == "nothing"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("requests_per_minute", 1),
        ("record", "/repo/cassette.jsonl"),
        ("replay", __file__),
        ("only_models", ("gemini-2.5-pro",)),
        ("key_from", "file:/repo/key"),
        ("max_budget", 1.0),
        ("max_tokens", 1),
        ("max_requests", 1),
        ("day_budget", 1.0),
        ("day_tokens", 1),
        ("day_requests", 1),
    ],
)
def test_options_that_need_the_gateway(name: str, value: object) -> None:
    """With gateway="off", an option that needs the gateway is refused, with its name.
    With the gateway, which is the default, it is accepted."""
    with pytest.raises(OptionsError) as caught:
        make_options(gateway="off", **{name: value})
    assert list(caught.value.problems) == [(name, "needs the gateway; use `gateway='on'`")]
    assert getattr(make_options(**{name: value}), name) == value


def test_gateway_is_on_or_off() -> None:
    """The option `gateway` accepts only "on", the default, and "off"."""
    assert make_options().gateway == "on"
    with pytest.raises(OptionsError):
        make_options(gateway="auto")
