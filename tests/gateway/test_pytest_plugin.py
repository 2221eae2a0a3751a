"""The fixture, as the tests of a user's project see it."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

TEST = """
import json
import urllib.request


def test_it(geminids_gateway):
    geminids_gateway.reply(text="hi")
    url = geminids_gateway.env["GOOGLE_GEMINI_BASE_URL"] + "/v1beta/models/m:streamGenerateContent?alt=sse"
    with urllib.request.urlopen(url, data=json.dumps({}).encode()) as response:
        assert b'"hi"' in response.read()
    assert geminids_gateway.requests[0].method == "stream"


def test_each_test_has_its_own(geminids_gateway):
    assert geminids_gateway.requests == []
    assert geminids_gateway.env["GEMINI_API_KEY"]
"""


def test_fixture(tmp_path: Path) -> None:
    """A test that names `geminids_gateway` has a started gateway of its own, and nothing leaks."""
    (tmp_path / "test_theirs.py").write_text(TEST)
    installed = any(point.name == "geminids" for point in entry_points(group="pytest11"))
    plugin = [] if installed else ["-p", "geminids.gateway.pytest_plugin"]
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", *plugin]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


CASSETTE = """
import pytest


@pytest.mark.parametrize("word", ["a/b"])
def test_it(geminids_cassette, word):
    print(geminids_cassette.mode, geminids_cassette.path)
    print(geminids_cassette.options)


def test_two_runs(geminids_cassette):
    print(geminids_cassette.another("second run").path)
"""


def run_theirs(folder: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_theirs.py").write_text(CASSETTE)
    installed = any(point.name == "geminids" for point in entry_points(group="pytest11"))
    plugin = [] if installed else ["-p", "geminids.gateway.pytest_plugin"]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-s",
        "-W",
        "error",
        "-p",
        "no:cacheprovider",
        *plugin,
        *flags,
    ]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)


def test_a_cassette_for_each_test(tmp_path: Path) -> None:
    """It lies beside the test; `--geminids-record` records it, and makes the folder; without, it is replayed."""
    path = tmp_path / "cassettes" / "test_theirs" / "test_it[a-b].jsonl"
    done = run_theirs(tmp_path, "--geminids-record")
    assert done.returncode == 0, done.stdout
    assert f"record {path}\n{{'record': {str(path)!r}}}" in done.stdout
    assert str(path.with_name("test_two_runs.second-run.jsonl")) in done.stdout
    assert path.parent.is_dir()
    path.touch()
    done = run_theirs(tmp_path)
    assert done.returncode == 0, done.stdout
    assert f"replay {path}\n{{'replay': {str(path)!r}}}" in done.stdout


def test_a_cassette_that_is_not_there(tmp_path: Path) -> None:
    """The test fails with the command that records it."""
    done = run_theirs(tmp_path)
    assert done.returncode == 1
    assert "does not exist" in done.stdout
    assert 'pytest --geminids-record "test_theirs.py::test_it[a/b]"' in done.stdout
    assert "1 failed, 1 passed" in done.stdout


def test_importing_the_plugin_is_cheap() -> None:
    """pytest loads the plugin at every start: it must bring neither the server nor msgspec."""
    code = "import sys, geminids.gateway.pytest_plugin; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert not {"anyio", "h11", "msgspec", "geminids.gateway.server.gateway"} & set(done.stdout.split())


def test_importing_the_gateway_leaves_the_server_for_later() -> None:
    """anyio and h11 are imported by the gateway's thread alone."""
    code = "import sys; from geminids.gateway import Gateway; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert not {"anyio", "h11", "asyncio"} & set(done.stdout.split())
