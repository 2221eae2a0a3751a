"""`geminids run` as a command: formats, exit codes, bad usage, and readers that stop reading."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from geminids import Options, decode_event
from geminids.process.marker import MARKER
from geminids.process.tree import marked

# 4 MB of output: more than the pipes of the CLI and of geminids can hold.
_FLOOD = "for i in range(40): out(say('x' * 100_000))\n"


def _argv(options: Options, *words: str) -> list[str]:
    fixed_flags = [
        "--gemini",
        str(options.gemini),
        "--home",
        options.home,
        "--cwd",
        options.cwd,
        "--grace",
        "1",
    ]
    return [sys.executable, "-m", "geminids", "run", *words, *fixed_flags]


def _run(options: Options, *words: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        _argv(options, *words), input=stdin or "", capture_output=True, text=True, timeout=60
    )


def _wait_until(condition: Any, seconds: float = 20) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return False


def test_a_pipe_gets_only_the_answer(fake_cli: Any) -> None:
    """In a pipe, stdout has only the answer, stderr is empty, and the exit code is 0."""
    done = _run(fake_cli("out(INIT + say('forty-') + say('two') + DONE)"), "hello")
    assert (done.returncode, done.stdout, done.stderr) == (0, "forty-two\n", "")


def test_events_are_json_lines(fake_cli: Any, tmp_path: Path) -> None:
    """`-o events` prints every event as a JSON line.

    `--save-events` writes the same lines to a file with mode 0600.
    """
    options = fake_cli("out(INIT + say('hi') + DONE)")
    file = tmp_path / "events.jsonl"
    done = _run(options, "hello", "-o", "events", "--save-events", str(file))
    kinds = [type(decode_event(line)).__name__ for line in done.stdout.splitlines()]
    assert next(kind for kind in kinds if kind != "Notice") == "Started"
    assert kinds[-1] == "Finished"
    assert file.read_text() == done.stdout
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("body", "words", "code"),
    [
        ("out(INIT + DONE)", (), 0),
        (
            "out(INIT + line('result', status='error', error=dict(type='unknown', message='[API Error: x]')))",
            (),
            1,
        ),
        ("out(INIT); sys.exit(53)", (), 4),
        ("out(INIT); time.sleep(60)", ("--timeout", "0.5"), 124),
    ],
)
def test_exit_code_of_each_outcome(fake_cli: Any, body: str, words: tuple[str, ...], code: int) -> None:
    """The exit code is 0 for success, 1 for failed, 4 for max turns and 124 for a timeout.

    Only a run without success writes to stderr.
    """
    done = _run(fake_cli(body), "hello", *words)
    assert done.returncode == code
    assert bool(done.stderr) == (code != 0)
    assert "Traceback" not in done.stderr


def test_no_cli_is_127(tmp_path: Path) -> None:
    """A missing CLI exits with 127, as in a shell, and the message names `geminids install`."""
    env = {"PATH": str(tmp_path), "HOME": str(tmp_path), "GEMINIDS_HOME": str(tmp_path / "g")}
    argv = [sys.executable, "-m", "geminids", "run", "hi", "--cwd", str(tmp_path)]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 127
    assert "geminids install" in done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("hi", "--timeout", "-1", "--max-attempts", "99"), ("\n  --timeout: ", "\n  --max-attempts: ")),
        (("hi", "--no-such-flag"), ("--no-such-flag",)),
        (("hi", "--env", "novalue"), ("NAME=VALUE",)),
        (("hi", "--save-events", "/no/such/folder/x"), ("--save-events",)),
        (("hi", "--output", "yaml"), ("yaml",)),
    ],
)
def test_bad_usage_is_2_with_all_problems_at_once(
    words: tuple[str, ...], message: tuple[str, ...], fake_cli: Any
) -> None:
    """Bad usage exits with 2 and reports all problems at once.

    There is no traceback, and nothing is started.
    """
    options = fake_cli("open('ran', 'w')")
    done = _run(options, *words)
    assert done.returncode == 2
    assert done.stdout == ""
    assert all(word in done.stderr for word in message)
    assert "Traceback" not in done.stderr
    assert not (Path(options.cwd) / "ran").exists()


def test_the_prompt_can_come_from_stdin(fake_cli: Any) -> None:
    """With `-` or without a prompt, the prompt comes from stdin.

    After `--` a prompt may begin with a dash.
    """
    options = fake_cli("out(INIT + say('got: ' + sys.stdin.read()) + DONE)")
    assert _run(options, "-", stdin="from stdin").stdout == "got: from stdin\n"
    assert _run(options, stdin="from stdin").stdout == "got: from stdin\n"
    done = subprocess.run([*_argv(options), "--", "-h me"], capture_output=True, text=True, timeout=60)
    assert done.stdout == "got: -h me\n"


def test_a_closed_pipe_ends_the_run(fake_cli: Any) -> None:
    """`geminids run … | head -1` exits with 141, prints nothing on stderr and leaves no process."""
    options = fake_cli("out(INIT)\nwhile True: out(say('x' * 1000)); time.sleep(0.01)")
    host = subprocess.Popen(
        _argv(options, "hi", "-o", "events"), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert host.stdout and host.stderr
    host.stdout.readline()
    host.stdout.close()
    assert host.wait(timeout=20) == 141
    assert host.stderr.read() == b""
    host.stderr.close()
    assert [process for process in marked(os.environ[MARKER]) if process.pid != os.getpid()] == []


def test_a_timeout_works_although_nobody_reads(fake_cli: Any) -> None:
    """A timeout ends the agent although stdout is full.

    A reader that reads later still gets the whole output.
    """
    options = fake_cli(f"out(INIT)\n{_FLOOD}open('flooded', 'w')\ntime.sleep(60)")
    argv = _argv(options, "hi", "-o", "events", "--timeout", "2")
    host = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    def only_the_host() -> bool:
        return {process.pid for process in marked(os.environ[MARKER])} == {host.pid}

    assert _wait_until(lambda: len(marked(os.environ[MARKER])) >= 2)
    assert _wait_until(only_the_host)
    assert host.stdout
    lines = host.stdout.read().splitlines()
    host.stdout.close()
    assert host.wait(timeout=20) == 124
    assert type(decode_event(lines[-1])).__name__ == "Finished"


def test_a_signal_works_although_nobody_reads(fake_cli: Any) -> None:
    """SIGTERM ends a run although stdout is full. The exit code is 130, and no process is left."""
    options = fake_cli(f"out(INIT)\n{_FLOOD}time.sleep(60)")
    argv = _argv(options, "hi", "-o", "events")
    host = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert _wait_until(lambda: len(marked(os.environ[MARKER])) >= 2)
    host.send_signal(signal.SIGTERM)
    assert host.wait(timeout=20) == 130
    assert host.stdout
    host.stdout.close()
    assert marked(os.environ[MARKER]) == []


@pytest.mark.parametrize(
    ("shell", "code", "message"),
    [
        ('"$@" hello >&-', 0, ""),
        ('"$@" - <&-', 2, "stdin is closed"),
        ('"$@" hello >/dev/full', 1, "cannot write the output: stdout: No space left"),
        ('"$@" hello -o events >/dev/full', 1, "cannot write the output: stdout: No space left"),
        ('"$@" hello --save-events /dev/full', 1, "cannot write the output: --save-events: No space left"),
    ],
)
def test_closed_and_full_files_cause_no_traceback(fake_cli: Any, shell: str, code: int, message: str) -> None:
    """A closed or full stdin, stdout or event file gives its message and exit code, and no
    traceback.
    """
    argv = ["sh", "-c", shell, "sh", *_argv(fake_cli("out(INIT + say('hi') + DONE)"))]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert (done.returncode, message in done.stderr, "Traceback" in done.stderr) == (code, True, False), (
        done.stderr
    )


def test_an_ignored_signal_does_not_stop_the_run(fake_cli: Any) -> None:
    """A signal that the parent ignores does not stop the run."""
    options = fake_cli(
        "out(INIT)\nopen('up', 'w').close()\nsys.stdin.read()\n"
        "while not os.path.exists('go'): time.sleep(0.02)\nout(say('done') + DONE)"
    )
    argv = ["sh", "-c", 'trap "" HUP; exec "$@"', "sh", *_argv(options, "hello")]
    host = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    assert _wait_until((Path(options.cwd) / "up").exists)
    host.send_signal(signal.SIGHUP)
    (Path(options.cwd) / "go").touch()
    assert host.communicate(timeout=30)[0] == "done\n"
    assert host.returncode == 0


def test_exit_code_if_sigchld_is_ignored(fake_cli: Any) -> None:
    """The exit code is right even if the parent process ignores SIGCHLD."""
    argv = _argv(fake_cli("sys.exit(53)"), "hello")
    code = (
        f"import os, signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN); os.execv({argv[0]!r}, {argv!r})"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60).returncode == 4


def test_a_retry_is_reported_on_stderr(fake_cli: Any) -> None:
    """Before a retry, one line on stderr says why and when. stdout has only the answer."""
    body = (
        "if os.path.exists('tried'): out(INIT + say('well') + DONE)\n"
        "else: open('tried', 'w').close(); sys.exit(7)"
    )
    done = subprocess.run(
        _argv(fake_cli(body), "hello", "--retries", "1"), capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, "well\n")
    message = done.stderr.splitlines()
    assert (
        len(message) == 1
        and message[0].startswith("geminids: crashed: ")
        and "the next attempt starts over, in 1." in message[0]
    )
