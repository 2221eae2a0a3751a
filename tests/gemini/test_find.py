"""Which Gemini CLI `find` returns, tested with real files."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from geminids.errors import CliMissing, NodeMissing
from geminids.gemini import Gemini, find, installed, is_available
from geminids.gemini.locate.candidates import COMMON
from geminids.gemini.locate.probe import run_command

from .conftest import Machine


def find_gemini(machine: Machine, wanted: str | None = None) -> Gemini:
    return find(wanted, environ=machine.environ, places=machine.places)


def find_error(machine: Machine, wanted: str | None = None) -> CliMissing:
    with pytest.raises(CliMissing) as caught:
        find_gemini(machine, wanted)
    return caught.value


def test_a_supported_release_is_chosen_before_an_older_one(machine: Machine) -> None:
    """The search prefers a supported release.

    An older one is returned only if there is no other.
    """
    (machine.bin / "gemini").symlink_to(machine.package(machine.home / "global", "0.53.0"))
    machine.managed("0.41.2")
    assert (find_gemini(machine).version, find_gemini(machine).origin) == ("0.53.0", "path")
    machine.managed("0.54.4")
    assert (find_gemini(machine).version, find_gemini(machine).origin) == ("0.54.4", "managed")


def test_a_named_release_is_not_replaced(machine: Machine) -> None:
    """A release named by version or by GEMINI_CLI_PATH is returned even if it is too old."""
    machine.managed("0.61.0")
    machine.managed("0.41.2")
    assert find_gemini(machine, "0.41.2").version == "0.41.2"
    machine.environ["GEMINI_CLI_PATH"] = str(machine.package(machine.home / "named", "0.40.0"))
    assert find_gemini(machine).version == "0.40.0"


def test_an_older_release_is_not_available(machine: Machine) -> None:
    """`is_available` is false for a release that is too old, with the reason, and starts nothing."""
    machine.managed("0.41.2").write_text("throw 1\n")
    ok, reason = is_available("0.41.2", environ=machine.environ, places=machine.places)
    assert not ok
    assert "0.41.2 is too old" in reason and "geminids install" in reason


def test_a_link_on_path(machine: Machine) -> None:
    """A link on PATH is followed.

    The version comes from package.json, and our Node runs the script.
    """
    script = machine.package(machine.home / "lib/node_modules/@google/gemini-cli", "0.55.0")
    (machine.bin / "gemini").symlink_to(script)
    gemini = find_gemini(machine)
    assert (gemini.entry, gemini.version, gemini.origin) == (script.resolve(), "0.55.0", "path")
    assert gemini.path == machine.bin / "gemini"
    assert gemini.node is not None
    assert gemini.release.is_tested
    assert gemini.command(machine.places)[0] == str(gemini.node.path)
    assert gemini.command(machine.places)[-1] == str(script.resolve())


def test_order(machine: Machine) -> None:
    """The search order is GEMINI_CLI_PATH, PATH, managed installs, common places."""
    machine.package(machine.home / "named", "0.55.0")
    on_path = machine.package(machine.home / "global", "0.56.0")
    (machine.bin / "gemini").symlink_to(on_path)
    machine.managed("0.57.1")
    common = machine.package(machine.home / "common", "0.58.0")
    (machine.home / ".npm-global/bin").mkdir(parents=True)
    (machine.home / ".npm-global/bin/gemini").symlink_to(common)

    machine.environ["GEMINI_CLI_PATH"] = str(machine.home / "named")
    assert (find_gemini(machine).version, find_gemini(machine).origin) == ("0.55.0", "GEMINI_CLI_PATH")
    del machine.environ["GEMINI_CLI_PATH"]
    assert (find_gemini(machine).version, find_gemini(machine).origin) == ("0.56.0", "path")
    (machine.bin / "gemini").unlink()
    assert (find_gemini(machine).version, find_gemini(machine).origin) == ("0.57.1", "managed")
    (machine.places.releases / "0.57.1").rename(machine.root / "gone")
    assert (find_gemini(machine).version, find_gemini(machine).origin) == ("0.58.0", "common")


def test_path_order(machine: Machine) -> None:
    """The first folder of PATH that contains gemini counts."""
    second = machine.root / "second"
    second.mkdir()
    (second / "gemini").symlink_to(machine.package(machine.home / "b", "0.60.0"))
    machine.environ["PATH"] += os.pathsep + str(second)
    assert find_gemini(machine).version == "0.60.0"
    (machine.bin / "gemini").symlink_to(machine.package(machine.home / "a", "0.59.1"))
    assert find_gemini(machine).version == "0.59.1"


def test_relative_path_entries_are_ignored(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative entries of PATH are ignored, so that a repository cannot provide its own gemini."""
    repository = machine.root / "repository"
    trap = machine.program(repository / "tools/gemini", "#!/bin/sh\ntouch trapped\necho 0.61.0\n")
    machine.program(repository / "gemini", trap.read_text())
    monkeypatch.chdir(repository)
    machine.environ["PATH"] = os.pathsep.join(["", ".", "tools", machine.environ["PATH"]])
    machine.managed("0.61.0")
    assert find_gemini(machine).origin == "managed"
    assert not (repository / "trapped").exists()


def test_unusable_files_are_skipped_and_named(machine: Machine) -> None:
    """A broken link, a file that is not executable and a foreign shim are skipped.

    The error lists them with reasons.
    """
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
    assert find_gemini(machine).entry == script.resolve()

    (machine.bin / "gemini").unlink()
    if any(Path(place).exists() for place in COMMON if place.startswith("/")):
        pytest.skip("this machine has its own gemini")
    error = find_error(machine)
    assert f"{folders[0] / 'gemini'}: broken link" in error.looked
    assert f"{folders[1] / 'gemini'}: not executable" in error.looked
    assert any("which is not Gemini CLI" in line for line in error.looked)
    assert f"{machine.places.releases}: nothing installed" in error.looked
    assert "~/.nvm/versions/node/*/bin/gemini: none" in error.looked
    assert "geminids install" in (error.hint or "")


def test_a_named_file_that_is_missing(machine: Machine) -> None:
    """If GEMINI_CLI_PATH names a missing file, that is an error; no other release is used."""
    machine.managed("0.61.0")
    machine.environ["GEMINI_CLI_PATH"] = str(machine.root / "nowhere")
    error = find_error(machine)
    assert error.message == (
        f"no Gemini CLI at {machine.root / 'nowhere'} (from GEMINI_CLI_PATH): does not exist"
    )


@pytest.mark.parametrize(
    "part", ["", "node_modules/@google/gemini-cli", "lib/node_modules/@google/gemini-cli"]
)
def test_folders(machine: Machine, part: str) -> None:
    """A folder is accepted: the package, a project that contains it, or an npm prefix."""
    script = machine.package(machine.root / "here" / part)
    gemini = find_gemini(machine, str(machine.root / "here"))
    assert (gemini.entry, gemini.origin) == (script, "option")


def test_folder_without_gemini(machine: Machine) -> None:
    """A folder without Gemini CLI is an error."""
    assert "a folder with no Gemini CLI in it" in find_error(machine, str(machine.home)).message


def test_a_script_of_another_package(machine: Machine) -> None:
    """A script of another package is run to get its version; the version in its package.json is
    ignored.
    """
    script = machine.package(machine.root / "other", "9.9.9")
    manifest = machine.root / "other/package.json"
    manifest.write_text(manifest.read_text().replace("@google/gemini-cli", "other"))
    script.write_text("#!/usr/bin/env node\nconsole.log('0.55.1')\n")
    gemini = find_gemini(machine, str(script))
    assert (gemini.version, gemini.release.is_tested) == ("0.55.1", True)


def test_shell_shim(machine: Machine) -> None:
    """The script behind a shell shim is run directly, without a shell."""
    script = machine.package(machine.home / "pnpm/global/node_modules/@google/gemini-cli", "0.60.0")
    shim = '#!/bin/sh\nexec node  "$basedir/global/node_modules/@google/gemini-cli/bundle/gemini.js" "$@"\n'
    machine.program(machine.home / "pnpm/gemini", shim)
    gemini = find_gemini(machine, str(machine.home / "pnpm/gemini"))
    assert (gemini.entry, gemini.version) == (script, "0.60.0")


def test_shim_of_a_version_manager(machine: Machine) -> None:
    """A version manager's shim is called by its own name, and its version is asked for only once."""
    asked = machine.root / "asked"
    body = f'#!/bin/sh\necho x >> {asked}\ncase "$0" in */gemini) echo 0.58.0 ;; *) exit 3 ;; esac\n'
    manager = machine.program(machine.root / "manager", body)
    (machine.bin / "gemini").symlink_to(manager)
    for _ in range(3):
        gemini = find_gemini(machine)
    assert (gemini.entry, gemini.version, gemini.node) == (machine.bin / "gemini", "0.58.0", None)
    assert gemini.command(machine.places) == (str(machine.bin / "gemini"),)
    assert asked.read_text() == "x\n"


def test_program_without_a_version(machine: Machine) -> None:
    """A program that prints no version has version None and counts as supported."""
    machine.program(machine.bin / "gemini", "#!/bin/sh\nexit 1\n")
    gemini = find_gemini(machine)
    assert (gemini.version, gemini.release.is_tested, gemini.release.is_supported) == (None, False, True)


def test_a_program_without_a_version_is_the_last_choice(machine: Machine) -> None:
    """The search prefers a CLI with a known version to a program that prints none."""
    machine.program(machine.bin / "gemini", "#!/bin/sh\necho hi\n")
    machine.managed("0.41.2")
    assert (find_gemini(machine).version, find_gemini(machine).origin) == (None, "path")
    machine.managed("0.61.0")
    assert (find_gemini(machine).version, find_gemini(machine).origin) == ("0.61.0", "managed")


def test_folders_of_a_version_manager(machine: Machine) -> None:
    """The folders of a version manager are searched, newest Node first (v22 before v9)."""
    for node, version in (("v9.0.0", "0.20.0"), ("v22.1.0", "0.60.0"), ("v20.9.0", "0.41.2")):
        script = machine.package(machine.home / "pkg" / version, version)
        link = machine.home / f".nvm/versions/node/{node}/bin/gemini"
        link.parent.mkdir(parents=True)
        link.symlink_to(script)
    assert (find_gemini(machine).version, find_gemini(machine).origin) == ("0.60.0", "common")


def test_managed_by_version_or_tag(machine: Machine) -> None:
    """A managed install is found by its version, the beginning of a version, or the tag that it was
    installed by.
    """
    machine.managed("0.41.2")
    machine.managed("0.41.0")
    machine.managed("0.61.0", "latest")
    machine.managed("0.62.0-nightly.20261101.abc", "nightly")
    names = ["0.41.0", "v0.41.0", "0.41", "latest", "nightly", "0.62.0-nightly.20261101.abc"]
    versions = [find_gemini(machine, name).version for name in names]
    nightly = "0.62.0-nightly.20261101.abc"
    assert versions == ["0.41.0", "0.41.0", "0.41.2", "0.61.0", nightly, nightly]
    error = find_error(machine, "0.30.0")
    assert "geminids install 0.30.0" in (error.hint or "")
    assert "0.61.0, 0.41.2, 0.41.0" in error.looked[0]


def test_managed_list_and_default(machine: Machine) -> None:
    """Managed installs are listed newest first.

    A nightly is not the default if there is a release.
    """
    for version in ("0.9.0", "0.61.0", "0.10.0", "0.62.0-nightly.1"):
        machine.managed(version)
    (machine.places.releases / "junk").mkdir()
    (machine.places.releases / "0.50.0").mkdir()
    listed = [gemini.version for gemini in installed(machine.places, environ=machine.environ)]
    assert listed == ["0.62.0-nightly.1", "0.61.0", "0.10.0", "0.9.0"]
    assert find_gemini(machine).version == "0.61.0"


def test_no_node(machine: Machine) -> None:
    """Without Node, `find` raises NodeMissing, and `installed` still lists the releases."""
    machine.managed("0.61.0")
    machine.environ["PATH"] = str(machine.bin)
    if any(Path(place).exists() for place in ("/usr/local/bin/node", "/opt/homebrew/bin/node")):
        pytest.skip("this machine has a node in a common place")
    with pytest.raises(NodeMissing):
        find_gemini(machine)
    assert [gemini.node for gemini in installed(machine.places, environ=machine.environ)] == [None]


def test_available(machine: Machine) -> None:
    """`is_available` starts the program and gives a reason for success and for failure."""
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
    """A program that hangs, with a child that keeps its output open, does not block the probe."""
    machine.program(machine.root / "slow", "#!/bin/sh\necho 0.61.0\nsleep 30 &\nsleep 30\n")
    machine.environ["PATH"] += os.pathsep + "/usr/bin" + os.pathsep + "/bin"
    late = run_command([str(machine.root / "slow")], environ=machine.environ, cwd=machine.root, timeout=0.5)
    assert late == (None, "0.61.0\n", "no answer within 0.5 s")


def _is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_another_program_is_not_available(machine: Machine) -> None:
    """A program that prints no version is not Gemini CLI, although it exits with 0."""
    path = machine.program(machine.bin / "other", "#!/bin/sh\necho hi\n")
    machine.environ["PATH"] += os.pathsep + "/usr/bin" + os.pathsep + "/bin"
    ok, reason = is_available(str(path), environ=machine.environ, places=machine.places, timeout=30.0)
    assert (ok, reason.endswith("prints no version: it is not Gemini CLI")) == (False, True)


def test_availability_of_a_program_that_hangs(machine: Machine) -> None:
    """`is_available` answers within its timeout, search included. It ends all processes of the
    program, even one in a session of its own, and leaves no file."""
    pids = machine.root / "pids"
    machine.program(
        machine.bin / "gemini",
        f"#!/bin/sh\n(setsid sh -c 'echo $$ >> {pids}; exec sleep 300' &)\necho $$ >> {pids}\n"
        'echo x > "$GEMINI_CLI_HOME/left"\nsleep 300\n',
    )
    machine.environ["PATH"] += os.pathsep + "/usr/bin" + os.pathsep + "/bin"
    for _ in range(2):
        began = time.monotonic()
        ok, reason = is_available(environ=machine.environ, places=machine.places, timeout=2.0)
        assert time.monotonic() - began < 2.0
        assert (ok, reason.endswith("did not finish: no answer within 2 s")) == (False, True)
    started = [int(pid) for pid in pids.read_text().split()]
    assert len(started) == 4
    assert not [pid for pid in started if _is_running(pid)]
    assert [path.name for path in machine.places.root.iterdir() if path.name.startswith(".probe-")] == []


def test_a_time_limit_is_not_cached_as_a_result(machine: Machine) -> None:
    """A program that was stopped by the timeout of `is_available` is run again by the next search,
    which gives it more time."""
    slow = machine.program(machine.bin / "gemini", "#!/bin/sh\nsleep 1\necho 0.60.0\n")
    machine.environ["PATH"] += os.pathsep + "/usr/bin" + os.pathsep + "/bin"
    assert not is_available(environ=machine.environ, places=machine.places, timeout=0.5).ok
    gemini = find_gemini(machine)
    assert (gemini.entry, gemini.version) == (slow, "0.60.0")


def test_usual_search_spawns_nothing(machine: Machine) -> None:
    """Once Node is known, `find` starts no process and does not import subprocess."""
    (machine.bin / "gemini").symlink_to(machine.package(machine.home / "x"))
    find_gemini(machine)
    code = (
        "import sys; from geminids.gemini import find; gemini = find();"
        "assert gemini.version == '0.61.0'; assert gemini.node;"
        "print([name for name in ('subprocess', 'asyncio', 'urllib.request') if name in sys.modules])"
    )
    environ = {**machine.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_a_tag_is_never_a_file(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tag such as `nightly` is never taken for a program of that name in the current folder."""
    program = machine.home / "nightly"
    program.write_text("#!/bin/sh\ntouch ran\n")
    program.chmod(0o755)
    monkeypatch.chdir(machine.home)
    assert "has not installed Gemini CLI nightly" in str(find_error(machine, "nightly"))
    assert not (machine.home / "ran").exists()
