"""Tests of the pytest fixtures, as the tests of a user's project see them."""

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
    """Each test that uses `geminids_gateway` gets its own started gateway,
    and no resource leaks."""
    (tmp_path / "test_theirs.py").write_text(TEST)
    installed = any(point.name == "geminids" for point in entry_points(group="pytest11"))
    plugin = [] if installed else ["-p", "geminids.gateway.pytest_plugin"]
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", *plugin]
    completed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    assert "2 passed" in completed.stdout


CASSETTE = """
import pytest


@pytest.mark.parametrize("word", ["a/b"])
def test_it(geminids_cassette, word):
    print(geminids_cassette.mode, geminids_cassette.path)
    print(geminids_cassette.options)


def test_two_runs(geminids_cassette):
    print(geminids_cassette.another("second run").path)
"""


def run_user_tests(folder: Path, *flags: str) -> subprocess.CompletedProcess[str]:
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


def test_cassette_of_each_test(tmp_path: Path) -> None:
    """Each test has its own cassette in the folder `cassettes` beside it.
    `--geminids-record` records it; without that flag it is replayed."""
    path = tmp_path / "cassettes" / "test_theirs" / "test_it[a-b].jsonl"
    completed = run_user_tests(tmp_path, "--geminids-record")
    assert completed.returncode == 0, completed.stdout
    assert f"record {path}\n{{'record': {str(path)!r}, 'overwrite': True}}" in completed.stdout
    assert str(path.with_name("test_two_runs.second-run.jsonl")) in completed.stdout
    assert path.parent.is_dir()
    path.touch()
    completed = run_user_tests(tmp_path)
    assert completed.returncode == 0, completed.stdout
    assert f"replay {path}\n{{'replay': {str(path)!r}}}" in completed.stdout


def test_missing_cassette(tmp_path: Path) -> None:
    """A test without a cassette fails, and the message has the command that records it."""
    completed = run_user_tests(tmp_path)
    assert completed.returncode == 1
    assert "does not exist" in completed.stdout
    assert 'pytest --geminids-record "test_theirs.py::test_it[a/b]"' in completed.stdout
    assert "1 failed, 1 passed" in completed.stdout


def test_plugin_import_is_light() -> None:
    """Importing the plugin imports neither the server nor msgspec, as
    pytest loads it at every start."""
    code = "import sys, geminids.gateway.pytest_plugin; print(*sys.modules)"
    completed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert not {"anyio", "h11", "msgspec", "geminids.gateway.server.gateway"} & set(completed.stdout.split())


def test_gateway_import_does_not_import_the_server() -> None:
    """Importing `Gateway` imports neither anyio, h11 nor asyncio."""
    code = "import sys; from geminids.gateway import Gateway; print(*sys.modules)"
    completed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert not {"anyio", "h11", "asyncio"} & set(completed.stdout.split())
