"""Pytest fixtures for tests that run the CLI without the real API: a scripted Gemini API, and
cassettes (files with recorded requests and answers) that are replayed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

if TYPE_CHECKING:
    from geminids.gateway.server.gateway import Gateway

__all__ = ["CassetteOfTest", "geminids_cassette", "geminids_gateway", "pytest_addoption"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("geminids").addoption(
        "--geminids-record",
        action="store_true",
        help="record the cassettes of the `geminids_cassette` fixture again, with your own API key",
    )


@pytest.fixture
def geminids_gateway() -> Iterator[Gateway]:
    """A running gateway (a local Gemini API) with an empty script. Add answers with
    `.reply(text=…)`. For prompts that match a regular expression, use `.when("regex", text=…)`.
    """
    # Imported late, because pytest loads this plugin at every start, even if no test uses it.
    from geminids.gateway.server.gateway import Gateway

    with Gateway() as gateway:
        yield gateway


class CassetteOfTest:
    """The cassette of a test: a file with recorded requests and answers. One cassette can contain
    only one run or one chat.
    """

    def __init__(self, path: Path, mode: Literal["record", "replay"], test: str) -> None:
        self.path = path
        self.mode = mode
        self._test = test

    @property
    def options(self) -> dict[str, Any]:
        """The options with which a run records or replays this cassette. Use them as `ask("…",
        **geminids_cassette.options)`. An existing cassette is recorded again.
        """
        if self.mode == "record":
            self.path.parent.mkdir(parents=True, exist_ok=True)
            return {"record": str(self.path), "overwrite": True}
        if not self.path.is_file():
            pytest.fail(
                f"the cassette {self.path} does not exist\n"
                f'Record it with your own API key: pytest --geminids-record "{self._test}"',
                pytrace=False,
            )
        return {"replay": str(self.path)}

    def another(self, name: str) -> CassetteOfTest:
        """Return another cassette of the same test, for a second run in this test. `name` becomes
        part of the other cassette's file name.
        """
        path = self.path.with_name(f"{self.path.stem}.{_file_name(name)}.jsonl")
        return CassetteOfTest(path, self.mode, self._test)


@pytest.fixture
def geminids_cassette(request: pytest.FixtureRequest) -> CassetteOfTest:
    """The cassette of this test (a file with recorded requests and answers):
    `cassettes/<module>/<test>.jsonl` next to the test file. Its answers are replayed. With `pytest
    --geminids-record`, it is recorded again.
    """
    folder = request.path.parent / "cassettes" / request.path.stem
    path = folder / f"{_file_name(request.node.name)}.jsonl"
    mode: Literal["record", "replay"] = (
        "record" if request.config.getoption("--geminids-record") else "replay"
    )
    return CassetteOfTest(path, mode, request.node.nodeid)


def _file_name(name: str) -> str:
    """Convert the name of a test to a file name. The parameters in a test name can contain any
    character, for example a slash.

    >>> _file_name("test_it[a/b c]")
    'test_it[a-b-c]'
    """
    return re.sub(r"[^\w.\[\]-]+", "-", name)[:150]
