"""Which Gemini CLI is found, on a machine made of real files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from geminids.errors import CliMissing, NodeMissing
from geminids.gemini import Gemini, find, installed, is_available
from geminids.gemini.locate.probe import run_command
from geminids.gemini.locate.search import COMMON

from .conftest import Machine


def found(machine: Machine, wanted: str | None = None) -> Gemini:
    return find(wanted, environ=machine.environ, places=machine.places)


def missing(machine: Machine, wanted: str | None = None) -> CliMissing:
    with pytest.raises(CliMissing) as caught:
        found(machine, wanted)
    return caught.value


def test_a_supported_release_is_chosen_before_an_older_one(machine: Machine) -> None:
    """The search passes over releases that geminids does not run; the first of them is found if there is no other."""
    (machine.bin / "gemini").symlink_to(machine.package(machine.home / "global", "0.53.0"))
    machine.managed("0.41.2")
    assert (found(machine).version, found(machine).origin) == ("0.53.0", "path")
    machine.managed("0.54.4")
    assert (found(machine).version, found(machine).origin) == ("0.54.4", "managed")


def test_one_that_is_named_is_not_replaced(machine: Machine) -> None:
    """`GEMINI_CLI_PATH` and a version that was asked for are taken, whatever they are: a run refuses them."""
    machine.managed("0.61.0")
    machine.managed("0.41.2")
    assert found(machine, "0.41.2").version == "0.41.2"
    machine.environ["GEMINI_CLI_PATH"] = str(machine.package(machine.home / "named", "0.40.0"))
    assert found(machine).version == "0.40.0"


def test_an_older_release_is_not_available(machine: Machine) -> None:
    """With the reason of a refused run; nothing is started to find it out."""
    machine.managed("0.41.2").write_text("throw 1\n")
    ok, reason = is_available("0.41.2", environ=machine.environ, places=machine.places)
    assert not ok
    assert "0.41.2 is too old" in reason and "geminids install" in reason


def test_a_link_on_path(machine: Machine) -> None:
    """npm's link on PATH is followed: the version comes from package.json, and our Node runs the script."""
    script = machine.package(machine.home / "lib/node_modules/@google/gemini-cli", "0.55.0")
    (machine.bin / "gemini").symlink_to(script)
    gemini = found(machine)
    assert (gemini.entry, gemini.version, gemini.origin) == (script.resolve(), "0.55.0", "path")
    assert gemini.node is not None
    assert gemini.release.is_tested
    assert gemini.command(machine.places)[0] == str(gemini.node.path)
    assert gemini.command(machine.places)[-1] == str(script.resolve())


def test_order(machine: Machine) -> None:
    """GEMINI_CLI_PATH before PATH, PATH before managed installs, those before common places."""
    machine.package(machine.home / "named", "0.55.0")
    on_path = machine.package(machine.home / "global", "0.56.0")
    (machine.bin / "gemini").symlink_to(on_path)
    machine.managed("0.57.1")
    common = machine.package(machine.home / "common", "0.58.0")
    (machine.home / ".npm-global/bin").mkdir(parents=True)
    (machine.home / ".npm-global/bin/gemini").symlink_to(common)

    machine.environ["GEMINI_CLI_PATH"] = str(machine.home / "named")
    assert (found(machine).version, found(machine).origin) == ("0.55.0", "GEMINI_CLI_PATH")
    del machine.environ["GEMINI_CLI_PATH"]
    assert (found(machine).version, found(machine).origin) == ("0.56.0", "path")
    (machine.bin / "gemini").unlink()
    assert (found(machine).version, found(machine).origin) == ("0.57.1", "managed")
    (machine.places.releases / "0.57.1").rename(machine.root / "gone")
    assert (found(machine).version, found(machine).origin) == ("0.58.0", "common")


def test_path_order(machine: Machine) -> None:
    """The first folder of PATH that has one wins."""
    second = machine.root / "second"
    second.mkdir()
    (second / "gemini").symlink_to(machine.package(machine.home / "b", "0.60.0"))
    machine.environ["PATH"] += os.pathsep + str(second)
    assert found(machine).version == "0.60.0"
    (machine.bin / "gemini").symlink_to(machine.package(machine.home / "a", "0.59.1"))
    assert found(machine).version == "0.59.1"


def test_relative_path_entries_are_ignored(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A repository that we stand in cannot bring its own gemini."""
    repository = machine.root / "repository"
    trap = machine.program(repository / "tools/gemini", "#!/bin/sh\ntouch trapped\necho 0.61.0\n")
    machine.program(repository / "gemini", trap.read_text())
    monkeypatch.chdir(repository)
    machine.environ["PATH"] = os.pathsep.join(["", ".", "tools", machine.environ["PATH"]])
    machine.managed("0.61.0")
    assert found(machine).origin == "managed"
    assert not (repository / "trapped").exists()


def test_what_cannot_run_is_skipped_and_named(machine: Machine) -> None:
    """A broken link, a file without its bit and a foreign shim are passed over; `looked` says why."""
    folders = [machine.root / name for name in ("one", "two", "three")]
    for folder in folders:
        folder.mkdir()
    (folders[0] / "gemini").symlink_to(machine.root / "nowhere")
    (folders[1] / "gemini").write_text("#!/usr/bin/env node\n")
    shim = '#!/bin/sh\nexec node "$basedir/other/tool.js" "$@"\n'
    machine.program(folders[2] / "gemini", shim)
    machine.environ["PATH"] = os.pathsep.join([*map(str, folders), machine.environ["PATH"]])
    script = machine.package(machine.home / "x")
    (machine.bin / "gemini").symlink_to(script)
    assert found(machine).entry == script.resolve()

    (machine.bin / "gemini").unlink()
    if any(Path(place).exists() for place in COMMON if place.startswith("/")):
        pytest.skip("this machine has a gemini of its own")
    error = missing(machine)
    assert f"{folders[0] / 'gemini'}: broken link" in error.looked
    assert f"{folders[1] / 'gemini'}: not executable" in error.looked
    assert any("which is not Gemini CLI" in line for line in error.looked)
    assert f"{machine.places.releases}: nothing installed" in error.looked
    assert "~/.nvm/versions/node/*/bin/gemini: none" in error.looked
    assert "geminids install" in (error.hint or "")


def test_named_file_that_is_not_there(machine: Machine) -> None:
    """A GEMINI_CLI_PATH that names nothing is an error that says so, not a reason to take another one."""
    machine.managed("0.61.0")
    machine.environ["GEMINI_CLI_PATH"] = str(machine.root / "nowhere")
    error = missing(machine)
    assert error.message == f"GEMINI_CLI_PATH names {machine.root / 'nowhere'}: does not exist"


@pytest.mark.parametrize(
    "part", ["", "node_modules/@google/gemini-cli", "lib/node_modules/@google/gemini-cli"]
)
def test_folders(machine: Machine, part: str) -> None:
    """A folder will do: the package itself, a project that has it, a prefix of npm."""
    script = machine.package(machine.root / "here" / part)
    gemini = found(machine, str(machine.root / "here"))
    assert (gemini.entry, gemini.origin) == (script, "option")


def test_folder_without(machine: Machine) -> None:
    """A folder with no Gemini CLI in it says so."""
    assert "a folder with no Gemini CLI in it" in missing(machine, str(machine.home)).message


def test_another_package_is_not_taken_for_it(machine: Machine) -> None:
    """A script of another package is run as the program that it is; its package's version is not its own."""
    script = machine.package(machine.root / "other", "9.9.9")
    manifest = machine.root / "other/package.json"
    manifest.write_text(manifest.read_text().replace("@google/gemini-cli", "other"))
    script.write_text("#!/usr/bin/env node\nconsole.log('0.55.1')\n")
    gemini = found(machine, str(script))
    assert (gemini.version, gemini.release.is_tested) == ("0.55.1", True)


def test_shell_shim(machine: Machine) -> None:
    """The script behind a shell shim is run directly, with no shell between."""
    script = machine.package(machine.home / "pnpm/global/node_modules/@google/gemini-cli", "0.60.0")
    shim = '#!/bin/sh\nexec node  "$basedir/global/node_modules/@google/gemini-cli/bundle/gemini.js" "$@"\n'
    machine.program(machine.home / "pnpm/gemini", shim)
    gemini = found(machine, str(machine.home / "pnpm/gemini"))
    assert (gemini.entry, gemini.version) == (script, "0.60.0")


def test_version_managers_shim(machine: Machine) -> None:
    """A shim that finds out by its name what to run is called by that name, and asked once."""
    asked = machine.root / "asked"
    body = f'#!/bin/sh\necho x >> {asked}\ncase "$0" in */gemini) echo 0.58.0 ;; *) exit 3 ;; esac\n'
    manager = machine.program(machine.root / "manager", body)
    (machine.bin / "gemini").symlink_to(manager)
    for _ in range(3):
        gemini = found(machine)
    assert (gemini.entry, gemini.version, gemini.node) == (machine.bin / "gemini", "0.58.0", None)
    assert gemini.command(machine.places) == (str(machine.bin / "gemini"),)
    assert asked.read_text() == "x\n"


def test_program_that_answers_nothing(machine: Machine) -> None:
    """A program that gives no version is found with version None and what the newest release can do."""
    machine.program(machine.bin / "gemini", "#!/bin/sh\nexit 1\n")
    gemini = found(machine)
    assert (gemini.version, gemini.release.is_tested, gemini.release.is_supported) == (None, False, True)


def test_globs(machine: Machine) -> None:
    """A version manager's folders are searched, its newest Node first (v22 before v9)."""
    for node, version in (("v9.0.0", "0.20.0"), ("v22.1.0", "0.60.0"), ("v20.9.0", "0.41.2")):
        script = machine.package(machine.home / "pkg" / version, version)
        link = machine.home / f".nvm/versions/node/{node}/bin/gemini"
        link.parent.mkdir(parents=True)
        link.symlink_to(script)
    assert (found(machine).version, found(machine).origin) == ("0.60.0", "common")


def test_managed_by_version_or_tag(machine: Machine) -> None:
    """A version, the first part of one, and the tag that it was installed by all name a managed install."""
    machine.managed("0.41.2")
    machine.managed("0.41.0")
    machine.managed("0.61.0", "latest")
    machine.managed("0.62.0-nightly.20261101.abc", "nightly")
    names = ["0.41.0", "v0.41.0", "0.41", "latest", "nightly", "0.62.0-nightly.20261101.abc"]
    versions = [found(machine, name).version for name in names]
    nightly = "0.62.0-nightly.20261101.abc"
    assert versions == ["0.41.0", "0.41.0", "0.41.2", "0.61.0", nightly, nightly]
    error = missing(machine, "0.30.0")
    assert "geminids install 0.30.0" in (error.hint or "")
    assert "0.61.0, 0.41.2, 0.41.0" in error.looked[0]


def test_managed_list_and_default(machine: Machine) -> None:
    """Installs are listed newest first; a nightly does not become the default beside a release."""
    for version in ("0.9.0", "0.61.0", "0.10.0", "0.62.0-nightly.1"):
        machine.managed(version)
    (machine.places.releases / "junk").mkdir()
    (machine.places.releases / "0.50.0").mkdir()
    listed = [gemini.version for gemini in installed(machine.places, environ=machine.environ)]
    assert listed == ["0.62.0-nightly.1", "0.61.0", "0.10.0", "0.9.0"]
    assert found(machine).version == "0.61.0"


def test_no_node(machine: Machine) -> None:
    """Without any Node the error is about Node, and a list of installs is still a list."""
    machine.managed("0.61.0")
    machine.environ["PATH"] = str(machine.bin)
    if any(Path(place).exists() for place in ("/usr/local/bin/node", "/opt/homebrew/bin/node")):
        pytest.skip("this machine has a node in a common place")
    with pytest.raises(NodeMissing):
        found(machine)
    assert [gemini.node for gemini in installed(machine.places, environ=machine.environ)] == [None]


def test_available(machine: Machine) -> None:
    """The probe starts the program, and its answer has a reason either way."""
    machine.managed("0.61.0")
    ok = is_available(environ=machine.environ, places=machine.places)
    assert ok.ok
    assert "Gemini CLI 0.61.0" in ok.reason
    broken = machine.managed("0.60.0")
    broken.write_text("console.error('out of cheese'); process.exit(7)\n")
    bad = is_available("0.60.0", environ=machine.environ, places=machine.places)
    assert not bad.ok
    assert bad.reason.endswith("exit code 7: out of cheese")
    assert not is_available("0.1.1", environ=machine.environ, places=machine.places).ok


def test_probe_is_bounded(machine: Machine) -> None:
    """A program that hangs, with a child that holds its output, does not hold the probe."""
    machine.program(machine.root / "slow", "#!/bin/sh\necho 0.61.0\nsleep 30 &\nsleep 30\n")
    machine.environ["PATH"] += os.pathsep + "/usr/bin" + os.pathsep + "/bin"
    late = run_command([str(machine.root / "slow")], environ=machine.environ, cwd=machine.root, timeout=0.5)
    assert late == (None, "0.61.0\n", "no answer within 0.5 s")


def test_usual_search_spawns_nothing(machine: Machine) -> None:
    """Once a Node is known, finding starts no process and does not even load what could."""
    (machine.bin / "gemini").symlink_to(machine.package(machine.home / "x"))
    found(machine)
    code = (
        "import sys; from geminids.gemini import find; gemini = find();"
        "assert gemini.version == '0.61.0'; assert gemini.node;"
        "print([name for name in ('subprocess', 'asyncio', 'urllib.request') if name in sys.modules])"
    )
    environ = {**machine.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_a_tag_is_never_a_file_of_the_folder(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--gemini nightly` in a repository that has a program of that name."""
    program = machine.home / "nightly"
    program.write_text("#!/bin/sh\ntouch ran\n")
    program.chmod(0o755)
    monkeypatch.chdir(machine.home)
    assert "nightly is not installed" in str(missing(machine, "nightly"))
    assert not (machine.home / "ran").exists()
