"""`geminids sessions` as a command."""

from __future__ import annotations

import json
import os
import pty
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import hostile_session
from atif_check import check
from recordings import FIXTURES, RECORDINGS

PLAIN_SESSION = "2442f7e8"
AGENT_SESSION = "0e8b0bd4"


class User:
    """A user with a home, a work folder, and recorded sessions of that folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.cwd = root / "work"
        self.home = root / "home"
        self.chats = self.home / ".gemini" / "tmp" / "work" / "chats"
        self.cwd.mkdir()
        shutil.copytree(RECORDINGS / "0.61.0", self.chats)
        (self.chats.parent / ".project_root").write_text(str(self.cwd))

    @property
    def environ(self) -> dict[str, str]:
        places = {"HOME": str(self.home), "GEMINIDS_HOME": str(self.root / "geminids")}
        return {"PATH": os.environ["PATH"], "PYTHONUTF8": "1", "TERM": "xterm-256color", **places}

    def call(self, *words: str, cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "geminids", "sessions", *words],
            cwd=cwd or self.cwd,
            env={**self.environ, **env},
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
        )

    def output(self, *words: str, **kwargs: Any) -> str:
        done = self.call(*words, **kwargs)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def expect_error(self, code: int, *words: str, **kwargs: Any) -> str:
        done = self.call(*words, **kwargs)
        assert done.returncode == code, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        assert done.stdout == ""
        return done.stderr

    def run_in_terminal(self, *words: str, **env: str) -> bytes:
        """Run the command in a terminal of 80 columns and return its output."""
        master, slave = pty.openpty()
        env = {**self.environ, "COLUMNS": "80", **env}
        argv = [sys.executable, "-m", "geminids", "sessions", *words]
        child = subprocess.Popen(argv, cwd=self.cwd, env=env, stdout=slave, stdin=subprocess.DEVNULL)
        os.close(slave)
        shown = b""
        try:
            while chunk := os.read(master, 65536):
                shown += chunk
        except OSError:
            pass  # Linux reports the end of the output as EIO
        os.close(master)
        assert child.wait() == 0
        return shown


@pytest.fixture
def user(tmp_path: Path) -> User:
    return User(tmp_path)


def test_list(user: User) -> None:
    """`list` prints a row for each session, and why a session cannot be resumed."""
    (user.chats / "session-2026-01-01T00-00-dddddddd.jsonl").write_text('{"id":"m","type":"user"}\n')
    lines = user.output("list").splitlines()
    assert lines[0].split() == ["ID", "CHANGED", "MSGS", "RELEASE", "TITLE"]
    rows = {line.split()[0]: line for line in lines[1:]}
    assert rows[AGENT_SESSION].endswith(" 5  0.39+    Ask an agent.")
    assert rows["ecdcc287"].endswith("[nothing to resume]")
    assert rows["dddddddd"].endswith("[damaged: rescue it]")


def test_list_as_json(user: User) -> None:
    """`list --json` has full ids and times, newest first.

    `--limit` limits the number of sessions.
    """
    rows = json.loads(user.output("list", "--json"))
    times = [row["updated"] for row in rows]
    assert times == sorted(times, reverse=True)
    row = next(row for row in rows if row["short"] == AGENT_SESSION)
    assert row["id"].startswith(f"{AGENT_SESSION}-")
    assert row["project"] == str(user.cwd)
    assert (row["generation"], row["resumable"], row["why_not"]) == ("slug_journal", True, None)
    assert len(json.loads(user.output("list", "--json", "--limit", "2"))) == 2
    assert user.output("list", "--limit", "2").splitlines()[-1].startswith("and ")


def test_list_of_other_folders(user: User) -> None:
    """`list` shows only the sessions of the current folder.

    `--all` and `--cwd` show those of other folders.
    """
    other = user.root / "other"
    other.mkdir()
    assert user.output("list", cwd=other).startswith("No sessions in ")
    assert user.output("list", "--json", cwd=other) == "[]\n"
    assert "FOLDER" in user.output("list", "--all", cwd=other)
    assert "Ask an agent." in user.output("list", "--cwd", str(user.cwd), cwd=other)


def test_lines_fit_a_terminal(user: User) -> None:
    """The rows of `list` fit into 80 columns, also with very wide titles."""
    from rich.cells import cell_len
    from rich.text import Text

    hostile_session.write(user.chats / "session-2026-01-01T00-00-badbad00.jsonl")
    wide = {"sessionId": "widewide-1", "projectHash": "h", "summary": "漢字" * 80}
    (user.chats / "session-2026-01-01T00-00-widewide.jsonl").write_text(json.dumps(wide) + "\n")
    for row in user.run_in_terminal("list", "--limit", "0").decode().splitlines():
        assert cell_len(Text.from_ansi(row).plain) <= 80


def test_show(user: User) -> None:
    """In a pipe, `show` prints the transcript without colours, and then the command that resumes
    the session.
    """
    shown = user.output("show", PLAIN_SESSION)
    assert shown.startswith("What is x?\n2442f7e8-")
    assert "> What is x?\n  2a7e89bd\n" in shown
    assert "  ✗ echo out; echo oops >&2; exit 3  exit code 3\n" in shown
    assert "\n\nx is 1 — that's it.\n\n" in shown
    assert "\x1b" not in shown
    assert shown.endswith('resume: geminids run --resume 2442f7e8 "…"\n')


def test_show_as_json(user: User) -> None:
    """`show --json` prints one entry per line; entries of a subagent have a depth."""
    rows = [json.loads(line) for line in user.output("show", AGENT_SESSION, "--json").splitlines()]
    assert {row["type"] for row in rows} == {"prompt", "thought", "text", "tool", "turn"}
    assert {row.get("depth", 0) for row in rows} == {0, 1}


def test_a_session_is_found_from_another_folder(user: User) -> None:
    """A session is found by its id from any folder, unless `--cwd` names a folder.

    The resume command then names the folder of the session.
    """
    assert f"--cwd {user.cwd} --resume" in user.output("show", AGENT_SESSION, cwd=user.root)
    assert "no session" in user.expect_error(1, "show", AGENT_SESSION, "--cwd", ".", cwd=user.root)
    assert "no session" in user.expect_error(1, "show", "latest", cwd=user.root)
    assert user.output("show", "latest").startswith("Sleep.")


def test_a_file_is_shown(user: User, tmp_path: Path) -> None:
    """`show` reads a session file of an older release, given by its path."""
    for file in sorted(RECORDINGS.glob("0.24.0/*.json")):
        copy = shutil.copy(file, tmp_path / "copy.json")
        assert "> " in user.output("show", str(copy))


@pytest.mark.skipif(not FIXTURES.is_dir(), reason="the recordings of 0.11 are not here")
def test_a_file_of_0_11_is_shown(user: User) -> None:
    """`show` reads a session file of release 0.11 with several turns."""
    file = FIXTURES / "full" / "session-2025-10-27T19-55-981c87cb.json"
    assert user.output("show", str(file)).count("tokens in") >= 3


@pytest.mark.parametrize(
    "words",
    [
        ("show", "badbad00", "--full"),
        ("list", "--json"),
        ("export", "badbad00", "--format", "markdown"),
        *(
            pytest.param(words, marks=pytest.mark.deep)
            for words in (
                ("show", "badbad00"),
                ("show", "badbad00", "--json"),
                ("list",),
                ("export", "badbad00", "--format", "html"),
                ("export", "badbad00", "--format", "claude"),
            )
        ),
    ],
)
def test_a_session_does_not_steer_the_terminal(user: User, words: tuple[str, ...]) -> None:
    """In every command and format, a session cannot set the title, ring the bell or change the
    writing direction of the terminal.
    """
    hostile_session.write(user.chats / "session-2026-01-01T00-00-badbad00.jsonl")
    shown = user.run_in_terminal(*words)
    assert b"alert(1)" in shown
    assert b"\x1b]" not in shown
    assert b"\x07" not in shown
    assert "\u202e".encode() not in shown


def test_a_terminal_gets_colours(user: User) -> None:
    """`show` uses colours in a terminal, but not with NO_COLOR."""
    assert b"\x1b[32m" in user.run_in_terminal("show", AGENT_SESSION)
    assert b"\x1b[32m" not in user.run_in_terminal("show", AGENT_SESSION, NO_COLOR="1")


def test_exports(user: User) -> None:
    """`export` writes Claude messages, a Claude session file, Markdown, HTML and ATIF."""
    claude = [
        json.loads(line) for line in user.output("export", PLAIN_SESSION, "--format", "claude").splitlines()
    ]
    assert claude[0]["content"] == [{"type": "text", "text": "What is x?"}]
    stored = user.output("export", PLAIN_SESSION, "--format", "claude-jsonl").splitlines()
    assert json.loads(stored[0])["cwd"] == str(user.cwd)
    assert user.output("export", PLAIN_SESSION, "--format", "markdown").startswith("# What is x?\n")
    assert user.output("export", PLAIN_SESSION, "--format", "html").startswith("<!doctype html>")
    document = json.loads(user.output("export", AGENT_SESSION, "--format", "atif"))
    check(document)
    assert len(document["subagent_trajectories"]) == 1


def test_an_exported_json_file_can_be_read_again(user: User) -> None:
    """`export --format json` writes a session file of the legacy format.

    `show` prints the same transcript for it.
    """
    user.output("export", PLAIN_SESSION, "--format", "json", "--out", "talk.json")
    exported = json.loads((user.cwd / "talk.json").read_text())
    assert exported["sessionId"].startswith(PLAIN_SESSION)
    # Without the four messages in which the CLI repeats tool results when it resumes the session.
    assert len(exported["messages"]) == 13
    first = user.output("show", PLAIN_SESSION, "--json").splitlines()
    assert user.output("show", "./talk.json", "--json").splitlines() == first
    agents = json.loads(user.output("export", AGENT_SESSION, "--format", "json"))["subagents"]
    assert [len(agent["messages"]) for agent in agents] == [4]


def test_an_exported_file_is_private_and_not_overwritten(user: User) -> None:
    """An exported file has mode 0600.

    It is overwritten only with `--force`, and no other file is left.
    """
    words = ("export", PLAIN_SESSION, "--format", "html", "--out", "talk.html")
    user.output(*words)
    file = user.cwd / "talk.html"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.write_text("mine")
    assert "--force" in user.expect_error(1, *words)
    assert file.read_text() == "mine"
    user.output(*words, "--force")
    assert file.read_text().endswith("</html>\n")
    assert os.listdir(user.cwd) == ["talk.html"]


def test_a_file_that_cannot_be_written(user: User) -> None:
    """An export to a folder, to a device or into a missing folder gives one clear error and creates
    nothing.
    """
    words = ("export", PLAIN_SESSION, "--format", "html", "--force", "--out")
    assert "is not a regular file" in user.expect_error(1, *words, ".")
    assert "is not a regular file" in user.expect_error(1, *words, "/dev/null")
    assert "cannot write" in user.expect_error(1, *words, "no/such/talk.html")
    assert os.listdir(user.cwd) == []


def test_an_export_that_fails_leaves_no_file(user: User) -> None:
    """A session without messages cannot become ATIF, and the failed export leaves no file."""
    (user.chats / "session-2026-01-01T00-00-eeeeeeee.jsonl").write_text(
        '{"sessionId":"eeeeeeee-1","projectHash":"h"}\n'
    )
    assert "no messages" in user.expect_error(1, "export", "eeeeeeee", "--format", "atif", "--out", "x.json")
    assert os.listdir(user.cwd) == []


def test_fork(user: User) -> None:
    """`fork --at` copies a session up to a message, named by the beginning of its id.

    The original does not change.
    """
    source = next(user.chats.glob(f"*{PLAIN_SESSION}*"))
    before = source.read_bytes()
    forked = json.loads(user.output("fork", PLAIN_SESSION, "--at", "dec68f54", "--json"))
    assert forked["of"].startswith(PLAIN_SESSION)
    assert forked["resume"] == f'geminids run --resume {forked["id"][:8]} "…"'
    shown = user.output("show", forked["id"])
    assert "x is 1" in shown
    assert "And now?" not in shown
    assert source.read_bytes() == before
    assert "new session: " in user.output("fork", PLAIN_SESSION)
    assert "has no message zz" in user.expect_error(1, "fork", PLAIN_SESSION, "--at", "zz")
    assert "begin with" in user.expect_error(1, "fork", PLAIN_SESSION, "--at", "6")


def test_rescue(user: User) -> None:
    """`show` reports a damaged session and names the `rescue` command.

    `rescue` reports what it recovered and what is lost.
    """
    source = next(user.chats.glob(f"*{PLAIN_SESSION}*"))
    lines = source.read_bytes().splitlines(keepends=True)
    # Remove the headers and cut the file inside the last message.
    source.write_bytes(b"".join(line for line in lines if not line.startswith(b'{"sessionId"'))[:-200])
    refusal = user.expect_error(1, "show", PLAIN_SESSION)
    assert f"geminids sessions rescue {PLAIN_SESSION}" in refusal
    rescued = user.output("rescue", PLAIN_SESSION)
    assert "rescued " in rescued
    assert "lost: " in rescued
    assert "resume: geminids run --resume " in rescued
    report = json.loads(user.output("rescue", str(source), "--json"))
    assert report["recovered"] > 0
    assert "What is x?" in user.output("show", report["session_id"])


def test_a_file_from_elsewhere_is_rescued_into_a_folder(user: User) -> None:
    """`rescue` of a file outside of the home writes the new session for the current folder."""
    (file,) = RECORDINGS.glob(f"0.41.2/*{'bfab4580'}*.jsonl")
    report = json.loads(user.output("rescue", str(file), "--json"))
    assert Path(report["file"]).parent == user.chats
    assert "Ask an agent." in user.output("show", report["session_id"])


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("show", "deadbeef"), "Looked in "),
        (("show", "0e8b0bd5"), "Did you mean 0e8b0bd4-"),
        (("show", "./none.jsonl"), "there is no file"),
        (("show", "./some.txt"), "would find no session in this file"),
        pytest.param(("show", "."), None, marks=pytest.mark.deep),
        pytest.param(("export", "/dev/null", "--format", "html"), "cannot be read", marks=pytest.mark.deep),
        (("rescue", "./some.txt"), "contains no prompt to the model and no answer"),
    ],
)
def test_a_missing_session(user: User, words: tuple[str, ...], expected: str | None) -> None:
    """The error says where geminids looked, names similar ids, or explains what is wrong."""
    (user.cwd / "some.txt").write_text("not a session\n")
    error = user.expect_error(2 if expected is None else 1, *words)
    assert (expected or "is not a session: use a session id") in error


def test_an_ambiguous_id(user: User) -> None:
    """The error for an ambiguous id lists the sessions that match."""
    for end in "12":
        shutil.copy(
            next(user.chats.glob(f"*{AGENT_SESSION}*.jsonl")),
            file := user.chats / f"session-1-samesam{end}.jsonl",
        )
        file.write_text(file.read_text().replace(AGENT_SESSION, f"samesam{end}"))
    message = user.expect_error(1, "show", "samesam")
    assert "samesam1-" in message
    assert "samesam2-" in message
    assert "Use more characters of the id" in message


@pytest.mark.parametrize(
    "words",
    [
        ("show", "a..b"),
        ("list", "--all", "--cwd", "."),
        ("list", "--cwd", "no/such/folder"),
        *(
            pytest.param(words, marks=pytest.mark.deep)
            for words in (
                ("show",),
                ("show", "x" * 10_000),
                ("show", ""),
                ("export", PLAIN_SESSION),
                ("export", PLAIN_SESSION, "--format", "pdf"),
                ("list", "--limit", "-1"),
                ("list", "--home", "no/such/folder"),
            )
        ),
    ],
)
def test_bad_usage(user: User, words: tuple[str, ...]) -> None:
    """Bad usage exits with 2 and an error message."""
    assert "Error" in user.expect_error(2, *words)


def test_a_closed_pipe_is_no_error(user: User) -> None:
    """`geminids sessions show … | head -1` prints no error."""
    command = f"{sys.executable} -m geminids sessions show {PLAIN_SESSION} --full | head -1"
    done = subprocess.run(
        ["sh", "-c", command], cwd=user.cwd, env=user.environ, capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("What is x?\n", "")


def test_a_folder_whose_name_is_not_utf8(user: User) -> None:
    """A path that is not UTF-8 is printed, also as JSON and if stdout has another encoding."""
    folder = os.fsdecode(os.fsencode(user.root) + b"/w\xff")
    os.mkdir(folder)
    (user.chats.parent / ".project_root").write_bytes(os.fsencode(folder))
    environment: dict[str, Any] = {"cwd": Path(folder), "PYTHONUTF8": "0", "PYTHONIOENCODING": "latin-1"}
    assert json.loads(user.output("list", "--json", "--limit", "1", **environment))[0]["project"] == folder
    assert "Ask an agent." in user.output("show", AGENT_SESSION, **environment)
    assert "new session: " in user.output("fork", AGENT_SESSION, **environment)


@pytest.mark.deep
@pytest.mark.parametrize(
    "words",
    [("show",), ("show", "--full"), *(("export", "--format", form) for form in ("html", "atif", "json"))],
)
def test_a_big_session_needs_little_memory(user: User, words: tuple[str, ...]) -> None:
    """`show` and `export` process a session of 80 MB with less than 70 MB of memory."""
    answer = {"functionResponse": {"id": "t", "name": "x", "response": {"output": "line of output\n" * 5000}}}
    call = {"id": "t", "name": "x", "status": "success", "result": [answer]}
    file = user.root / "big.jsonl"
    with file.open("w") as out:
        out.write('{"sessionId":"big","projectHash":"h"}\n')
        for number in range(1000):
            message = {"id": f"g{number}", "type": "gemini", "content": "x", "toolCalls": [call]}
            out.write(json.dumps(message) + "\n")
    measure = (
        "import re, sys; from geminids.cli import app; sys.argv[0] = 'geminids'\n"
        "app.main(standalone_mode=False)\n"
        # Not ru_maxrss: it starts with the memory of the parent, and a pytest worker is big.
        "print(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1], file=sys.stderr)"
    )
    argv = [sys.executable, "-c", measure, "sessions", words[0], str(file), *words[1:]]
    done = subprocess.run(
        argv, env=user.environ, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=True
    )
    assert file.stat().st_size > 75_000_000
    assert int(done.stderr) < 70_000


@pytest.mark.real
def test_a_session_of_the_real_cli(make_world: Any) -> None:
    """A session of the real CLI is listed, and shown with its tool and diff.

    A run can resume its fork.
    """
    world = make_world("0.61.0")
    world.gateway.reply(
        calls=[("write_file", {"file_path": str(world.cwd / "pear.txt"), "content": "pear\n"})]
    )
    world.gateway.reply(text="It is **written**.")
    first = world.ask("write the word pear", approval="yolo")
    assert first.ok, first.failure
    env = {**os.environ, "HOME": str(world.home), "GEMINIDS_HOME": str(world.places.root)}

    def call(*words: str) -> str:
        argv = [sys.executable, "-m", "geminids", "sessions", *words]
        return subprocess.run(argv, cwd=world.cwd, env=env, capture_output=True, text=True, check=True).stdout

    (row,) = json.loads(call("list", "--json"))
    assert (row["id"], row["title"]) == (first.session_id, "write the word pear")
    shown = call("show", "latest")
    assert "pear.txt  new, +1 -0\n" in shown
    assert "      +pear\n" in shown
    assert "It is **written**." in shown
    assert "2 requests" in shown
    forked = json.loads(call("fork", first.session_id[:8], "--json"))
    world.gateway.reply(text="Still there.")
    second = world.ask("and now?", resume=forked["id"])
    assert second.ok, second.failure
    assert "write the word pear" in json.dumps(world.gateway.requests[-1].body)
    assert "and now?" in call("show", forked["id"])
    assert "and now?" not in call("show", first.session_id)
