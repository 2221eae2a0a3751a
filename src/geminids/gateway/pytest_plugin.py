"""Pytest fixtures: a scripted Gemini API, and cassettes that are recorded once and replayed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

if TYPE_CHECKING:
    from geminids.gateway.server.gateway import Gateway

__all__ = ["CassetteOfTest", "geminids_cassette", "geminids_gateway", "pytest_addoption"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("geminids").addoption(
        "--geminids-record",
        action="store_true",
        help="record the cassettes of the geminids_cassette fixture again, with your own key",
    )


@pytest.fixture
def geminids_gateway() -> Iterator[Gateway]:
    """A started gateway with an empty script. Add replies with `.reply(text=…)` and
    `.when("regex", text=…)`."""
    # Import late: pytest loads this plugin at every start, also for tests that never use it.
    from geminids.gateway.server.gateway import Gateway

    with Gateway() as gateway:
        yield gateway


class CassetteOfTest:
    """The cassette file of a test. Each cassette is for one run or one chat."""

    def __init__(self, path: Path, mode: Literal["record", "replay"], test: str) -> None:
        self.path = path
        self.mode = mode
        self._test = test

    @property
    def options(self) -> dict[str, str]:
        """The options for `ask` or `open_run`: `ask("…", **geminids_cassette.options)`."""
        if self.mode == "record":
            self.path.parent.mkdir(parents=True, exist_ok=True)
        elif not self.path.is_file():
            pytest.fail(
                f"the cassette {self.path} does not exist\n"
                f'Record it, with your own key: pytest --geminids-record "{self._test}"',
                pytrace=False,
            )
        return {self.mode: str(self.path)}

    def another(self, name: str) -> CassetteOfTest:
        """Another cassette, for another run of the same test."""
        path = self.path.with_name(f"{self.path.stem}.{_file_name(name)}.jsonl")
        return CassetteOfTest(path, self.mode, self._test)


@pytest.fixture
def geminids_cassette(request: pytest.FixtureRequest) -> CassetteOfTest:
    """The cassette of this test, `cassettes/<module>/<test>.jsonl` next to it. It is replayed;
    `pytest --geminids-record` records it again."""
    folder = request.path.parent / "cassettes" / request.path.stem
    path = folder / f"{_file_name(request.node.name)}.jsonl"
    mode: Literal["record", "replay"] = (
        "record" if request.config.getoption("--geminids-record") else "replay"
    )
    return CassetteOfTest(path, mode, request.node.nodeid)


def _file_name(name: str) -> str:
    """Turn the name of a test into a file name: test parameters can contain any character.

    >>> _file_name("test_it[a/b c]")
    'test_it[a-b-c]'
    """
    return re.sub(r"[^\w.\[\]-]+", "-", name)[:150]
