"""Which Node runs the CLI, and its command line arguments."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from geminids.errors import NodeMissing
from geminids.gemini import Node, find_node
from geminids.gemini.locate.node import NODE_IN_WHEEL, managed_nodes, node_arguments, write_preload

from .conftest import Machine


def managed_node(machine: Machine, version: str) -> Path:
    return machine.program(machine.places.node / version / NODE_IN_WHEEL, "#!/bin/sh\nexit 1\n")


def fake_node(machine: Machine, folder: str, version: str) -> Path:
    path = machine.root / folder / "node"
    return machine.program(path, f'#!/bin/sh\necho x >> "{path}.asked"\necho "v{version} $0"\n')


def test_managed_first(machine: Machine) -> None:
    """The newest managed Node is used before the one on PATH.

    Its version is the name of its folder.
    """
    managed_node(machine, "24.2.0")
    newest = managed_node(machine, "24.19.0")
    node = find_node(machine.places, environ=machine.environ)
    assert node == Node(newest, "24.19.0", "managed")
    assert find_node(machine.places, environ=machine.environ, managed=False).origin == "path"
    assert len(managed_nodes(machine.places)) == 2


def test_the_version_is_asked_for_once(machine: Machine) -> None:
    """A Node on PATH is asked for its version once, and again after its file has changed."""
    path = fake_node(machine, "a", "20.1.0")
    machine.environ["PATH"] = str(path.parent)
    asked = path.with_name("node.asked")
    for _ in range(3):
        assert find_node(machine.places, environ=machine.environ).version == "20.1.0"
    assert asked.read_text() == "x\n"
    path.write_text(path.read_text().replace("v20.1.0", "v22.10.0"))
    assert find_node(machine.places, environ=machine.environ).version == "22.10.0"
    assert asked.read_text() == "x\nx\n"


def test_too_old(machine: Machine) -> None:
    """A Node before version 20 is skipped. If there is no other, the error names it."""
    old, new = fake_node(machine, "old", "18.20.0"), fake_node(machine, "new", "20.0.0")
    machine.environ["PATH"] = os.pathsep.join([str(old.parent), str(new.parent)])
    assert find_node(machine.places, environ=machine.environ).path == new
    new.unlink()
    if any(Path(place).exists() for place in ("/usr/local/bin/node", "/opt/homebrew/bin/node")):
        pytest.skip("this machine has a node in a common place")
    with pytest.raises(NodeMissing) as caught:
        find_node(machine.places, environ=machine.environ)
    assert f"{old}: is 18.20.0, too old" in caught.value.looked


def test_behind_a_shim(machine: Machine) -> None:
    """The real node behind a version manager's shim is used, so that the work folder cannot change
    it.
    """
    real = machine.program(machine.root / "real/node", "#!/bin/sh\n")
    machine.program(machine.root / "shims/node", f'#!/bin/sh\necho "v22.9.0 {real}"\n')
    machine.environ["PATH"] = str(machine.root / "shims")
    assert find_node(machine.places, environ=machine.environ).path == real


def test_a_broken_cache_file(machine: Machine) -> None:
    """An unreadable cache file is written again."""
    machine.places.root.mkdir()
    (machine.places.root / "seen.json").write_text("{ not json")
    assert find_node(machine.places, environ=machine.environ).origin == "path"
    assert (machine.places.root / "seen.json").read_text().startswith('{"')


@pytest.mark.parametrize("version", ["20.20.2", "24.0.0"])
def test_arguments(machine: Machine, version: str) -> None:
    """Node gets the preloaded file and one limit for its heap."""
    arguments = node_arguments(Node(Path("node"), version, "path"), write_preload(machine.places))
    assert arguments[arguments.index("--require") + 1] == str(machine.places.root / "preload.cjs")
    heaps = [word for word in arguments if word.startswith("--max-old-space-size=")]
    assert len(heaps) == 1


def test_a_preloaded_file_of_another_release_is_replaced(machine: Machine) -> None:
    """The preloaded file is written again if its content differs."""
    machine.places.root.mkdir()
    preload = machine.places.root / "preload.cjs"
    preload.write_text("throw 'old'")
    assert write_preload(machine.places) == preload
    assert "setBlocking" in preload.read_text()


def test_environment_stays_clean(machine: Machine) -> None:
    """The arguments of Node do not appear in the environment of its children."""
    node = find_node(machine.places, environ=machine.environ)
    as_24 = Node(node.path, "24.0.0", "path")  # on an older Node the preloaded file does nothing
    script = "console.log(require('child_process').execSync('env').toString())"
    argv = [str(node.path), *node_arguments(as_24, write_preload(machine.places)), "-e", script]
    machine.environ["PATH"] += os.pathsep + "/usr/bin" + os.pathsep + "/bin"
    done = subprocess.run(argv, env=machine.environ, capture_output=True, text=True, check=True)
    assert "GEMINIDS_HOME" in done.stdout
    assert "NODE_" not in done.stdout
