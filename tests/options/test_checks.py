"""Options that cannot be are told before anything is started."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from geminids.errors import OptionsError
from geminids.options import make_options

NOBODY = 65534


def _as_nobody(cwd: str) -> str:
    """What `make_options` says to somebody without rights: asked in a process of its own, which gives root up."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        said = "nothing"
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setresgid(NOBODY, NOBODY, NOBODY)
                os.setresuid(NOBODY, NOBODY, NOBODY)
            make_options(cwd=cwd)
        except OptionsError as error:
            said = dict(error.problems)["cwd"]
        finally:
            os.write(writing, said.encode())
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as told:
        said = told.read().decode()
    os.waitpid(child, 0)
    return said


@pytest.mark.parametrize("mode", [0o000, 0o400, 0o100])
def test_a_folder_that_cannot_be_read(tmp_path: Path, mode: int) -> None:
    """Neither its names nor what is in it: one clear problem, also for one that can only be listed or entered."""
    if os.geteuid() == 0:
        # The way there, as far as it is pytest's own.
        for folder in (tmp_path, *tmp_path.parents):
            if "pytest-of-" in str(folder):
                folder.chmod(folder.stat().st_mode | 0o055)
    closed = tmp_path / "closed"
    closed.mkdir()
    closed.chmod(mode)
    assert _as_nobody(str(closed)) == f"{closed} cannot be opened: permission denied"
    closed.chmod(0o755)
    assert _as_nobody(str(closed)) == "nothing"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("requests_per_minute", 1),
        ("record", "/repo/talk.jsonl"),
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
def test_what_only_the_gateway_can_do_is_refused_without_it(name: str, value: object) -> None:
    """The message names the option; with the gateway, which is the default, it is accepted."""
    with pytest.raises(OptionsError) as told:
        make_options(gateway="off", **{name: value})
    assert list(told.value.problems) == [(name, "needs the gateway; use gateway='on'")]
    assert getattr(make_options(**{name: value}), name) == value


def test_gateway_is_on_or_off() -> None:
    """There is no third way."""
    assert make_options().gateway == "on"
    with pytest.raises(OptionsError):
        make_options(gateway="auto")
