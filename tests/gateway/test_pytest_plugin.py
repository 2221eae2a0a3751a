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


def test_importing_the_plugin_is_cheap() -> None:
    """pytest loads the plugin at every start: it must bring neither the server nor msgspec."""
    code = "import sys, geminids.gateway.pytest_plugin; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert not {"anyio", "h11", "msgspec", "geminids.gateway.server"} & set(done.stdout.split())


def test_importing_the_gateway_leaves_the_server_for_later() -> None:
    """anyio and h11 are imported by the gateway's thread alone."""
    code = "import sys; from geminids.gateway import Gateway; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert not {"anyio", "h11", "asyncio"} & set(done.stdout.split())
