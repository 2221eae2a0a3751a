"""`install` with real releases from the real registry."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from geminids.config.paths import Places
from geminids.errors import InstallFailed
from geminids.gemini import find, installed, is_available
from geminids.gemini.install.cli import available_versions, install, uninstall
from geminids.gemini.install.node import install_node

pytestmark = pytest.mark.real

INSTALL_PROGRAM = "from geminids.gemini.install.cli import install; print(install('0.61.0').version)"


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory, installs: Places) -> Places:
    """A folder in which two processes at once have installed 0.61.0, with the Node that is already
    installed.
    """
    install_node(installs, print)
    root = tmp_path_factory.mktemp("geminids")
    (root / "node").symlink_to(installs.node)
    environ = {**os.environ, "GEMINIDS_HOME": str(root), "PYTHONPATH": os.pathsep.join(sys.path)}
    argv = [sys.executable, "-c", INSTALL_PROGRAM]
    pair = [subprocess.Popen(argv, env=environ, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [process.communicate()[0] for process in pair] == ["0.61.0\n", "0.61.0\n"]
    return Places(root)


def test_installed(places: Places) -> None:
    """Two installs at once gave one release that starts, and no other files."""
    assert sorted(os.listdir(places.releases)) == [".locks", "0.61.0"]
    (gemini,) = installed(places)
    assert gemini == find("0.61.0", places=places)
    answer = is_available("0.61.0", places=places)
    assert answer.ok, answer.reason


def test_second_install_is_instant(places: Places) -> None:
    """A second install takes less than a second."""
    start = time.monotonic()
    assert install("0.61.0", places=places).version == "0.61.0"
    assert time.monotonic() - start < 1


def test_pty_without_scripts(places: Places) -> None:
    """The prebuilt node-pty works although no install script was run."""
    (gemini,) = installed(places)
    assert gemini.node is not None
    module = places.releases / "0.61.0/node_modules/@lydell/node-pty"
    script = f"require({str(module)!r}).spawn('/bin/echo', ['it works'], {{}}).onData(d => console.log(d))"
    done = subprocess.run([gemini.node.path, "-e", script], capture_output=True, text=True, timeout=20)
    assert "it works" in done.stdout


def test_bad_version(places: Places) -> None:
    """A version that the registry does not have gives one error with a hint, and leaves no file."""
    with pytest.raises(InstallFailed, match=r"9\.9\.9") as caught:
        install("9.9.9", places=places)
    assert "versions --available" in (caught.value.hint or "")
    assert sorted(os.listdir(places.releases)) == [".locks", "0.61.0"]


def test_available(places: Places) -> None:
    """The list of the registry has the releases that we test with."""
    listed = available_versions(places=places)
    assert {"0.54.4", "0.61.0"} <= set(listed)


@pytest.mark.deep
@pytest.mark.timeout(600)
def test_managed_node(tmp_path: Path) -> None:
    """A managed Node with npm installs an older release, fills the compile cache and runs the
    release.
    """
    places = Places(tmp_path)
    gemini = install("0.54.4", places=places)
    assert gemini.node is not None
    assert (gemini.node.origin, gemini.node.has_compile_cache) == ("managed", True)
    assert sum(len(files) for _, _, files in os.walk(places.root / "compile-cache")) > 10
    assert is_available("0.54.4", places=places).ok
    assert {name for name in os.listdir(places.node) if name != ".lock"} == {gemini.node.version}
    uninstall("0.54.4", places=places)
    assert installed(places) == []
