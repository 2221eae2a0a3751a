"""`geminids run` with something on stdin: a pipe, a file, a terminal, or nothing."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from geminids import Options

ECHO = "out(INIT + say('got: ' + repr(sys.stdin.read())) + DONE)"


@pytest.fixture
def argv(fake_cli: Any) -> Callable[..., list[str]]:
    """A function that makes a command line of `geminids run` with a CLI that prints its prompt."""
    options: Options = fake_cli(ECHO)

    def make(*words: str) -> list[str]:
        flags = ["--gemini", str(options.gemini), "--home", options.home, "--cwd", options.cwd]
        return [sys.executable, "-m", "geminids", "run", *words, *flags]

    return make


def run(argv: list[str], data: bytes | None = None, **more: Any) -> subprocess.CompletedProcess[bytes]:
    if data is not None:
        more["input"] = data
    return subprocess.run(argv, capture_output=True, timeout=60, **more)


def answer(prompt: str) -> bytes:
    return f"got: {prompt!r}\n".encode()


@pytest.mark.parametrize(
    ("data", "words", "prompt"),
    [
        (b"a log\n", ("Explain",), "a log\n\n\nExplain"),
        (b"caf\xc3\xa9 \xf0\x9f\x8c\xa0\r\n", ("Explain",), "café 🌠\r\n\n\nExplain"),
        # What is piped in is data: it includes no file and calls no command.
        (b"/help a@b.c", ("Explain @x",), " /help a\\@b.c\n\nExplain @x"),
        (b"a@b.c", ("Explain", "--literal"), "a\\@b.c\n\nExplain"),
        (b"", ("Explain",), "Explain"),
        (b" \n", ("Explain",), "Explain"),
        (b"a log", ("Explain", "--template", "T {{prompt}} T"), "T a log\n\nExplain T"),
        (b"a log", ("--template", "T {{prompt}} T"), "T a log T"),
        (b"", ("--template", "T {{prompt}} T"), "T  T"),
        (b"a log", ("Explain", "--no-stdin"), "Explain"),
        (b"a log", ("--template", "T {{prompt}} T", "--no-stdin"), "T  T"),
        # Without a prompt, stdin is the prompt, with its commands and paths.
        (b"read @x", ("-",), "read @x"),
        (b"read @x", (), "read @x"),
    ],
)
def test_piped_input_is_in_front_of_the_prompt(
    argv: Any, data: bytes, words: tuple[str, ...], prompt: str
) -> None:
    """Text that is piped in is put in front of the prompt; `-` reads the prompt; `--no-stdin` reads
    nothing. Nothing is printed on stderr."""
    done = run(argv(*words), data)
    assert (done.returncode, done.stdout, done.stderr) == (0, answer(prompt), b"")


def test_a_file_as_stdin(argv: Any, tmp_path: Path) -> None:
    """`geminids run "…" < file` reads the file."""
    (tmp_path / "log").write_text("a log")
    with (tmp_path / "log").open() as file:
        assert run(argv("Explain"), stdin=file).stdout == answer("a log\n\nExplain")


def test_no_stdin_leaves_the_lines_of_a_loop(argv: Any, tmp_path: Path) -> None:
    """In a `while read` loop, `--no-stdin` runs once per line; without it, the first run reads the
    other lines."""
    words = " ".join(map(repr, argv("$name")[1:])).replace("'$name'", '"$name"')
    loop = f"while read name; do {sys.executable} {words} %s; done"
    done = run(["sh", "-c", loop % "--no-stdin"], b"one\ntwo\nthree\n")
    assert done.stdout == b"".join(map(answer, ("one", "two", "three")))
    assert run(["sh", "-c", loop % ""], b"one\ntwo\n").stdout == answer("two\n\n\none")


@pytest.mark.parametrize("kind", ["null", "closed", "write only"])
def test_stdin_without_input(argv: Any, kind: str, tmp_path: Path) -> None:
    """With /dev/null or a closed stdin the run starts and prints nothing on stderr. If stdin cannot
    be read, a message says so."""
    command = argv("Explain")
    words = " ".join(map(repr, command))
    redirect = {"null": "</dev/null", "closed": "<&-", "write only": "0>x"}[kind]
    done = run(["sh", "-c", f"{words} {redirect}"], cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, answer("Explain"))
    if kind in ("null", "closed"):
        assert done.stderr == b""
    else:
        assert done.stderr.startswith(b"geminids: ignored stdin: it cannot be read:")


def test_a_terminal_is_not_read(argv: Any) -> None:
    """A terminal as stdin is not read, although something was typed."""
    master, slave = pty.openpty()
    try:
        os.write(master, b"typed\n")
        done = run(argv("Explain"), stdin=slave)
    finally:
        os.close(master)
        os.close(slave)
    assert (done.returncode, done.stdout, done.stderr) == (0, answer("Explain"), b"")


def test_a_silent_pipe_is_ignored(argv: Any) -> None:
    """If no byte arrives in half a second, the run goes on, and stderr says that stdin was ignored.
    With `--no-stdin` there is no message."""
    read, write = os.pipe()
    try:
        done = run(argv("Explain"), stdin=read)
        quiet = run(argv("Explain", "--no-stdin"), stdin=read)
    finally:
        os.close(read)
        os.close(write)
    assert (done.returncode, done.stdout) == (0, answer("Explain"))
    assert done.stderr.count(b"\n") == 1
    assert b"ignored stdin" in done.stderr
    assert b"--no-stdin" in done.stderr
    assert (quiet.stdout, quiet.stderr) == (answer("Explain"), b"")


def test_the_rest_of_slow_input_is_awaited(argv: Any) -> None:
    """After its first byte, the whole input is awaited, however long the pauses are; so is a prompt
    that is read with `-`."""
    for words, prompt in ((("Explain",), "one two\n\nExplain"), (("-",), "one two")):
        read, write = os.pipe()
        os.write(write, b"one ")
        with subprocess.Popen(
            argv(*words), stdin=read, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            os.close(read)
            time.sleep(1.5)  # longer than the wait for the first byte
            os.write(write, b"two")
            os.close(write)
            assert process.communicate(timeout=30) == (answer(prompt), b"")


@pytest.mark.parametrize("word", ["Explain", "-"])
def test_input_that_never_ends(argv: Any, word: str) -> None:
    """A pipe that stays open after its input ends the command with 124: after `--idle-timeout`
    without a byte, or after `--timeout`."""
    for flag, reason in (
        ("--idle-timeout", b"nothing arrived for 1 s"),
        ("--timeout", b"timed out after 1 s"),
    ):
        read, write = os.pipe()
        try:
            os.write(write, b"one")
            done = run(argv(word, flag, "1"), stdin=read)
        finally:
            os.close(read)
            os.close(write)
        assert (done.returncode, done.stdout) == (124, b"")
        assert reason in done.stderr


@pytest.mark.parametrize("word", ["Explain", "-"])
def test_an_endless_pipe_is_refused(argv: Any, word: str) -> None:
    """More than 8 MB are refused with exit code 2 and a hint, also if the pipe never ends. The
    limit itself is the limit of Gemini CLI."""
    with subprocess.Popen(["yes"], stdout=subprocess.PIPE) as yes:
        done = run(argv(word), stdin=yes.stdout)
        assert yes.stdout is not None
        yes.stdout.close()
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"stdin has more than 8 MB" in done.stderr
    assert b"name the file in the prompt" in done.stderr


@pytest.mark.parametrize("word", ["Explain", "-"])
def test_other_encodings(argv: Any, word: str) -> None:
    """Input that is not UTF-8 is refused with the offset, and decoded with `--input-encoding`."""
    after = "\n\nExplain" if word == "Explain" else ""
    done = run(argv(word), b"caf\xe9")
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"stdin is not UTF-8: byte 0xe9 at offset 3" in done.stderr
    assert b"--input-encoding" in done.stderr
    done = run(argv(word, "--input-encoding", "latin-1"), b"caf\xe9")
    assert (done.returncode, done.stdout) == (0, answer("café" + after))
    assert run(argv(word, "--input-encoding", "utf-16"), "é".encode("utf-16")).stdout == answer("é" + after)
    done = run(argv(word, "--input-encoding", "ascii"), b"caf\xe9")
    assert b"stdin is not ascii: byte 0xe9 at offset 3" in done.stderr
    assert b"Traceback" not in done.stderr
    # A mark at the beginning of UTF-8 is no text.
    assert run(argv(word), b"\xef\xbb\xbfhi").stdout == answer("hi" + after)


@pytest.mark.parametrize("name", ["nope", "hex", "", "a\\b"])
def test_an_unknown_encoding_is_refused(argv: Any, name: str) -> None:
    """`--input-encoding` with a name that is no text encoding exits with 2, also without input."""
    done = run(argv("Explain", "--input-encoding", name), stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"--input-encoding" in done.stderr
    assert b"Traceback" not in done.stderr


def test_no_stdin_needs_a_prompt(argv: Any) -> None:
    """`--no-stdin` without a prompt, or with `-`, exits with 2."""
    for words in (("--no-stdin",), ("-", "--no-stdin")):
        done = run(argv(*words), b"a log")
        assert (done.returncode, done.stdout) == (2, b"")
        assert b"--no-stdin" in done.stderr
