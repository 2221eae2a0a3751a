"""`geminids run` as a command: formats, exit codes, bad usage, and readers that do not read."""

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

# More than two pipes hold.
_FLOOD = "for i in range(40): out(say('x' * 100_000))\n"


def _argv(options: Options, *words: str) -> list[str]:
    given = ["--gemini", str(options.gemini), "--home", options.home, "--cwd", options.cwd, "--grace", "1"]
    return [sys.executable, "-m", "geminids", "run", *words, *given]


def _run(options: Options, *words: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        _argv(options, *words), input=stdin or "", capture_output=True, text=True, timeout=60
    )


def _until(holds: Any, seconds: float = 20) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if holds():
            return True
        time.sleep(0.02)
    return False


def test_a_pipe_gets_the_answer_alone(stand_in: Any) -> None:
    """stdout has the answer and nothing else; exit 0."""
    done = _run(stand_in("out(INIT + say('forty-') + say('two') + DONE)"), "hello")
    assert (done.returncode, done.stdout, done.stderr) == (0, "forty-two\n", "")


def test_events_are_json_lines(stand_in: Any, tmp_path: Path) -> None:
    """`-o events` prints every event, `--save-events` writes the same, for its owner alone."""
    options = stand_in("out(INIT + say('hi') + DONE)")
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
def test_exit_codes_tell_the_outcome(stand_in: Any, body: str, words: tuple[str, ...], code: int) -> None:
    """0 success, 1 failed, 4 max turns, 124 timed out; a failure says why on stderr."""
    done = _run(stand_in(body), "hello", *words)
    assert done.returncode == code
    assert bool(done.stderr) == (code != 0)
    assert "Traceback" not in done.stderr


def test_no_cli_is_127(tmp_path: Path) -> None:
    """As a shell would say it, with what to do."""
    env = {"PATH": str(tmp_path), "HOME": str(tmp_path), "GEMINIDS_HOME": str(tmp_path / "g")}
    argv = [sys.executable, "-m", "geminids", "run", "hi", "--cwd", str(tmp_path)]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 127
    assert "geminids install" in done.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("hi", "--timeout", "-1", "--max-attempts", "99"), ("timeout", "max_attempts")),
        (("hi", "--no-such-flag"), ("--no-such-flag",)),
        (("hi", "--env", "novalue"), ("NAME=VALUE",)),
        (("hi", "--save-events", "/no/such/folder/x"), ("--save-events",)),
        (("hi", "--output", "yaml"), ("yaml",)),
    ],
)
def test_bad_usage_is_2_with_all_problems_at_once(
    words: tuple[str, ...], told: tuple[str, ...], stand_in: Any
) -> None:
    """One clear message, no traceback, nothing spawned."""
    options = stand_in("open('ran', 'w')")
    done = _run(options, *words)
    assert done.returncode == 2
    assert done.stdout == ""
    assert all(word in done.stderr for word in told)
    assert "Traceback" not in done.stderr
    assert not (Path(options.cwd) / "ran").exists()


def test_the_prompt_can_come_from_stdin(stand_in: Any) -> None:
    """`-`, or no prompt at all, reads it; a prompt that begins with a dash passes behind `--`."""
    options = stand_in("out(INIT + say('got: ' + sys.stdin.read()) + DONE)")
    assert _run(options, "-", stdin="from stdin").stdout == "got: from stdin\n"
    assert _run(options, stdin="from stdin").stdout == "got: from stdin\n"
    done = subprocess.run([*_argv(options), "--", "-h me"], capture_output=True, text=True, timeout=60)
    assert done.stdout == "got: -h me\n"


def test_a_reader_that_goes_away_ends_the_run_quietly(stand_in: Any) -> None:
    """`geminids run … | head -1`: no traceback, and the agent does not work on for nobody."""
    options = stand_in("out(INIT)\nwhile True: out(say('x' * 1000)); time.sleep(0.01)")
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


def test_a_reader_that_does_not_read_does_not_stop_the_deadlines(stand_in: Any) -> None:
    """The timeout ends the agent although our own stdout is full, and what was written is whole afterwards."""
    options = stand_in(f"out(INIT)\n{_FLOOD}open('said', 'w')\ntime.sleep(60)")
    argv = _argv(options, "hi", "-o", "events", "--timeout", "2")
    host = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    def only_the_host() -> bool:
        return {process.pid for process in marked(os.environ[MARKER])} == {host.pid}

    assert _until(lambda: len(marked(os.environ[MARKER])) >= 2)
    assert _until(only_the_host)
    assert host.stdout
    lines = host.stdout.read().splitlines()
    host.stdout.close()
    assert host.wait(timeout=20) == 124
    assert type(decode_event(lines[-1])).__name__ == "Finished"


def test_a_signal_ends_a_host_whose_reader_does_not_read(stand_in: Any) -> None:
    """Within grace + 1 s for the agent, and a moment more for a reader that may come back."""
    options = stand_in(f"out(INIT)\n{_FLOOD}time.sleep(60)")
    argv = _argv(options, "hi", "-o", "events")
    host = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert _until(lambda: len(marked(os.environ[MARKER])) >= 2)
    host.send_signal(signal.SIGTERM)
    assert host.wait(timeout=20) == 130
    assert host.stdout
    host.stdout.close()
    assert marked(os.environ[MARKER]) == []


@pytest.mark.parametrize(
    ("shell", "code", "told"),
    [
        ('"$@" hello >&-', 0, ""),
        ('"$@" - <&-', 2, "stdin is closed"),
        ('"$@" hello >/dev/full', 1, "cannot write the output: stdout: No space left"),
        ('"$@" hello -o events >/dev/full', 1, "cannot write the output: stdout: No space left"),
        ('"$@" hello --save-events /dev/full', 1, "cannot write the output: --save-events: No space left"),
    ],
)
def test_closed_and_full_files_get_one_line(stand_in: Any, shell: str, code: int, told: str) -> None:
    """No traceback, and the agent is ended in order."""
    argv = ["sh", "-c", shell, "sh", *_argv(stand_in("out(INIT + say('hi') + DONE)"))]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert (done.returncode, told in done.stderr, "Traceback" in done.stderr) == (code, True, False), (
        done.stderr
    )


def test_nohup_means_it(stand_in: Any) -> None:
    """A signal that we were told to ignore does not stop the run."""
    options = stand_in(
        "out(INIT)\nopen('up', 'w').close()\nsys.stdin.read()\n"
        "while not os.path.exists('go'): time.sleep(0.02)\nout(say('done') + DONE)"
    )
    argv = ["sh", "-c", 'trap "" HUP; exec "$@"', "sh", *_argv(options, "hello")]
    host = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    assert _until((Path(options.cwd) / "up").exists)
    host.send_signal(signal.SIGHUP)
    (Path(options.cwd) / "go").touch()
    assert host.communicate(timeout=30)[0] == "done\n"
    assert host.returncode == 0


def test_ignored_children_still_have_exit_codes(stand_in: Any) -> None:
    """A supervisor that ignores SIGCHLD must not turn every exit code into 0."""
    argv = _argv(stand_in("sys.exit(53)"), "hello")
    code = (
        f"import os, signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN); os.execv({argv[0]!r}, {argv!r})"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60).returncode == 4


def test_a_pipe_says_why_it_takes_long(stand_in: Any) -> None:
    """A run that nobody watches tells on stderr that it tries again, and when; stdout has the answer alone."""
    body = (
        "if os.path.exists('tried'): out(INIT + say('well') + DONE)\n"
        "else: open('tried', 'w').close(); sys.exit(7)"
    )
    done = subprocess.run(
        _argv(stand_in(body), "hello", "--retries", "1"), capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, "well\n")
    told = done.stderr.splitlines()
    assert (
        len(told) == 1
        and told[0].startswith("geminids: crashed: ")
        and "the next attempt starts over, in 1." in told[0]
    )
