"""`geminids sessions`, as a user calls it."""

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

TALK = "2442f7e8"
AGENT = "0e8b0bd4"


class Here:
    """A home with the recorded sessions of a folder, and that folder."""

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

    def told(self, *words: str, **how: Any) -> str:
        ran = self.call(*words, **how)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    def refused(self, code: int, *words: str, **how: Any) -> str:
        ran = self.call(*words, **how)
        assert ran.returncode == code, ran.stdout + ran.stderr
        assert "Traceback" not in ran.stderr
        assert ran.stdout == ""
        return ran.stderr

    def in_terminal(self, *words: str, **env: str) -> bytes:
        """What a terminal of 80 columns gets."""
        ours, theirs = pty.openpty()
        env = {**self.environ, "COLUMNS": "80", **env}
        argv = [sys.executable, "-m", "geminids", "sessions", *words]
        child = subprocess.Popen(argv, cwd=self.cwd, env=env, stdout=theirs, stdin=subprocess.DEVNULL)
        os.close(theirs)
        seen = b""
        try:
            while piece := os.read(ours, 65536):
                seen += piece
        except OSError:
            pass  # Linux says EIO where others say that it is over
        os.close(ours)
        assert child.wait() == 0
        return seen


@pytest.fixture
def here(tmp_path: Path) -> Here:
    return Here(tmp_path)


def test_list(here: Here) -> None:
    """The one that was changed last first; what cannot be resumed says why."""
    (here.chats / "session-2026-01-01T00-00-dddddddd.jsonl").write_text('{"id":"m","type":"user"}\n')
    lines = here.told("list").splitlines()
    assert lines[0].split() == ["ID", "CHANGED", "MSGS", "RELEASE", "TITLE"]
    rows = {line.split()[0]: line for line in lines[1:]}
    assert rows[AGENT].endswith(" 5  0.39+    Ask an agent.")
    assert rows["ecdcc287"].endswith("[nothing to resume]")
    assert rows["dddddddd"].endswith("[damaged: rescue it]")


def test_list_as_json(here: Here) -> None:
    """Full ids and times; `--limit` counts from the newest."""
    rows = json.loads(here.told("list", "--json"))
    times = [row["updated"] for row in rows]
    assert times == sorted(times, reverse=True)
    row = next(row for row in rows if row["short"] == AGENT)
    assert row["id"].startswith(f"{AGENT}-")
    assert row["project"] == str(here.cwd)
    assert (row["generation"], row["resumable"], row["why_not"]) == ("slug_journal", True, None)
    assert len(json.loads(here.told("list", "--json", "--limit", "2"))) == 2
    assert here.told("list", "--limit", "2").splitlines()[-1].startswith("and ")


def test_list_of_other_folders(here: Here) -> None:
    """None of this one are none; `--all` shows them, with their folder."""
    other = here.root / "other"
    other.mkdir()
    assert here.told("list", cwd=other).startswith("No sessions in ")
    assert here.told("list", "--json", cwd=other) == "[]\n"
    assert "FOLDER" in here.told("list", "--all", cwd=other)
    assert "Ask an agent." in here.told("list", "--cwd", str(here.cwd), cwd=other)


def test_lines_fit_a_terminal(here: Here) -> None:
    """80 columns, with titles of any width."""
    from rich.cells import cell_len
    from rich.text import Text

    hostile_session.write(here.chats / "session-2026-01-01T00-00-badbad00.jsonl")
    wide = {"sessionId": "widewide-1", "projectHash": "h", "summary": "漢字" * 80}
    (here.chats / "session-2026-01-01T00-00-widewide.jsonl").write_text(json.dumps(wide) + "\n")
    for row in here.in_terminal("list", "--limit", "0").decode().splitlines():
        assert cell_len(Text.from_ansi(row).plain) <= 80


def test_show(here: Here) -> None:
    """A transcript without colours in a pipe, and how to go on."""
    seen = here.told("show", TALK)
    assert seen.startswith("What is x?\n2442f7e8-")
    assert "> What is x?\n  2a7e89bd\n" in seen
    assert "  ✓ echo out; echo oops >&2; exit 3  exit code 3\n" in seen
    assert "\n\nx is 1 — that's it.\n\n" in seen
    assert "\x1b" not in seen
    assert seen.endswith('resume: geminids run --resume 2442f7e8-b90d-47e8-b4da-961cefd33e79 "…"\n')


def test_show_as_json(here: Here) -> None:
    """One entry a line, subagents with their depth."""
    rows = [json.loads(line) for line in here.told("show", AGENT, "--json").splitlines()]
    assert {row["type"] for row in rows} == {"prompt", "thought", "text", "tool", "turn"}
    assert {row.get("depth", 0) for row in rows} == {0, 1}


def test_a_session_is_found_from_elsewhere(here: Here) -> None:
    """By its id in any folder, unless a folder is named; the command to resume it names its folder then."""
    assert f"--cwd {here.cwd} --resume" in here.told("show", AGENT, cwd=here.root)
    assert "no session" in here.refused(1, "show", AGENT, "--cwd", ".", cwd=here.root)
    assert "no session" in here.refused(1, "show", "latest", cwd=here.root)
    assert here.told("show", "latest").startswith("Sleep.")


def test_a_file_is_shown(here: Here, tmp_path: Path) -> None:
    """Of any release, wherever it lies."""
    for file in sorted(RECORDINGS.glob("0.24.0/*.json")):
        copy = shutil.copy(file, tmp_path / "copy.json")
        assert "> " in here.told("show", str(copy))


@pytest.mark.skipif(not FIXTURES.is_dir(), reason="the recordings of 0.11 are not here")
def test_a_file_of_0_11_is_shown(here: Here) -> None:
    """The longest of them, with all its turns."""
    file = FIXTURES / "full" / "session-2025-10-27T19-55-981c87cb.json"
    assert here.told("show", str(file)).count("tokens in") >= 3


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
def test_a_session_does_not_steer_the_terminal(here: Here, words: tuple[str, ...]) -> None:
    """In any command and format: no title is set, no bell rung, no writing direction turned."""
    hostile_session.write(here.chats / "session-2026-01-01T00-00-badbad00.jsonl")
    seen = here.in_terminal(*words)
    assert b"alert(1)" in seen
    assert b"\x1b]" not in seen
    assert b"\x07" not in seen
    assert "\u202e".encode() not in seen


def test_a_terminal_gets_colours(here: Here) -> None:
    """Unless NO_COLOR is set, which leaves bold and dim."""
    assert b"\x1b[32m" in here.in_terminal("show", AGENT)
    assert b"\x1b[32m" not in here.in_terminal("show", AGENT, NO_COLOR="1")


def test_exports(here: Here) -> None:
    """Each format is what it is called."""
    claude = [json.loads(line) for line in here.told("export", TALK, "--format", "claude").splitlines()]
    assert claude[0]["content"] == [{"type": "text", "text": "What is x?"}]
    stored = here.told("export", TALK, "--format", "claude-jsonl").splitlines()
    assert json.loads(stored[0])["cwd"] == str(here.cwd)
    assert here.told("export", TALK, "--format", "markdown").startswith("# What is x?\n")
    assert here.told("export", TALK, "--format", "html").startswith("<!doctype html>")
    document = json.loads(here.told("export", AGENT, "--format", "atif"))
    check(document)
    assert len(document["subagent_trajectories"]) == 1


def test_the_folded_conversation_can_be_read_again(here: Here) -> None:
    """`json` is a session file of the older kind: shown, it reads the same."""
    here.told("export", TALK, "--format", "json", "--out", "talk.json")
    folded = json.loads((here.cwd / "talk.json").read_text())
    assert folded["sessionId"].startswith(TALK)
    assert len(folded["messages"]) == 17
    first = here.told("show", TALK, "--json").splitlines()
    assert here.told("show", "./talk.json", "--json").splitlines() == first
    agents = json.loads(here.told("export", AGENT, "--format", "json"))["subagents"]
    assert [len(agent["messages"]) for agent in agents] == [4]


def test_a_file_is_private_whole_and_never_written_over(here: Here) -> None:
    """Unless it is asked for; and nothing else is left in the folder."""
    words = ("export", TALK, "--format", "html", "--out", "talk.html")
    here.told(*words)
    file = here.cwd / "talk.html"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.write_text("mine")
    assert "--force" in here.refused(1, *words)
    assert file.read_text() == "mine"
    here.told(*words, "--force")
    assert file.read_text().endswith("</html>\n")
    assert os.listdir(here.cwd) == ["talk.html"]


def test_a_file_that_cannot_be_written(here: Here) -> None:
    """A folder, a device, a place that is not there: one clear error, and nothing is made."""
    words = ("export", TALK, "--format", "html", "--force", "--out")
    assert "is not a file" in here.refused(1, *words, ".")
    assert "is not a file" in here.refused(1, *words, "/dev/null")
    assert "cannot write" in here.refused(1, *words, "no/such/talk.html")
    assert os.listdir(here.cwd) == []


def test_an_export_that_fails_leaves_no_file(here: Here) -> None:
    """A session without a message is no ATIF document."""
    (here.chats / "session-2026-01-01T00-00-eeeeeeee.jsonl").write_text(
        '{"sessionId":"eeeeeeee-1","projectHash":"h"}\n'
    )
    assert "no messages" in here.refused(1, "export", "eeeeeeee", "--format", "atif", "--out", "x.json")
    assert os.listdir(here.cwd) == []


def test_fork(here: Here) -> None:
    """Up to a message, which its first letters name; the original is not touched."""
    source = next(here.chats.glob(f"*{TALK}*"))
    before = source.read_bytes()
    made = json.loads(here.told("fork", TALK, "--at", "dec68f54", "--json"))
    assert made["of"].startswith(TALK)
    assert made["resume"] == f'geminids run --resume {made["id"]} "…"'
    shown = here.told("show", made["id"])
    assert "x is 1" in shown
    assert "And now?" not in shown
    assert source.read_bytes() == before
    assert "new session: " in here.told("fork", TALK)
    assert "has no message zz" in here.refused(1, "fork", TALK, "--at", "zz")
    assert "begin with" in here.refused(1, "fork", TALK, "--at", "6")


def test_rescue(here: Here) -> None:
    """What the CLI refuses: shown as damaged, with the way out; rescued, it says what was found and lost."""
    source = next(here.chats.glob(f"*{TALK}*"))
    lines = source.read_bytes().splitlines(keepends=True)
    # Without its headers, and torn within the last message.
    source.write_bytes(b"".join(line for line in lines if not line.startswith(b'{"sessionId"'))[:-200])
    said = here.refused(1, "show", TALK)
    assert f"geminids sessions rescue {TALK}" in said
    told = here.told("rescue", TALK)
    assert "rescued " in told
    assert "lost: " in told
    assert "resume: geminids run --resume " in told
    made = json.loads(here.told("rescue", str(source), "--json"))
    assert made["recovered"] > 0
    assert "What is x?" in here.told("show", made["session_id"])


def test_a_file_from_elsewhere_is_rescued_into_a_folder(here: Here) -> None:
    """This one, if no other is named."""
    (file,) = RECORDINGS.glob(f"0.41.2/*{'bfab4580'}*.jsonl")
    made = json.loads(here.told("rescue", str(file), "--json"))
    assert Path(made["file"]).parent == here.chats
    assert "Ask an agent." in here.told("show", made["session_id"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("show", "deadbeef"), "Looked in "),
        (("show", "0e8b0bd5"), "Did you mean 0e8b0bd4-"),
        (("show", "./none.jsonl"), "there is no file"),
        (("show", "./some.txt"), "would find no session in this file"),
        pytest.param(("show", "."), None, marks=pytest.mark.deep),
        pytest.param(("export", "/dev/null", "--format", "html"), "cannot be read", marks=pytest.mark.deep),
        (("rescue", "./some.txt"), "contains no message that can be resumed"),
    ],
)
def test_what_is_not_there(here: Here, words: tuple[str, ...], said: str | None) -> None:
    """Where it was looked for, what is alike, what to do."""
    (here.cwd / "some.txt").write_text("not a session\n")
    told = here.refused(2 if said is None else 1, *words)
    assert (said or "name a session by") in told


def test_an_ambiguous_beginning(here: Here) -> None:
    """Which ones begin so."""
    for end in "12":
        shutil.copy(
            next(here.chats.glob(f"*{AGENT}*.jsonl")), file := here.chats / f"session-1-samesam{end}.jsonl"
        )
        file.write_text(file.read_text().replace(AGENT, f"samesam{end}"))
    told = here.refused(1, "show", "samesam")
    assert "samesam1-" in told
    assert "samesam2-" in told
    assert "Use more characters of the id" in told


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
                ("export", TALK),
                ("export", TALK, "--format", "pdf"),
                ("list", "--limit", "-1"),
                ("list", "--home", "no/such/folder"),
            )
        ),
    ],
)
def test_bad_usage(here: Here, words: tuple[str, ...]) -> None:
    """Exit code 2, and what is wrong."""
    assert "Error" in here.refused(2, *words)


def test_a_reader_that_goes_is_no_error(here: Here) -> None:
    """`| head -1` ends it quietly."""
    command = f"{sys.executable} -m geminids sessions show {TALK} --full | head -1"
    ran = subprocess.run(
        ["sh", "-c", command], cwd=here.cwd, env=here.environ, capture_output=True, text=True
    )
    assert (ran.stdout, ran.stderr) == ("What is x?\n", "")


def test_a_folder_whose_name_is_no_text(here: Here) -> None:
    """A path that is no UTF-8 is told all the same, in JSON too, and on a terminal of another encoding."""
    folder = os.fsdecode(os.fsencode(here.root) + b"/w\xff")
    os.mkdir(folder)
    (here.chats.parent / ".project_root").write_bytes(os.fsencode(folder))
    how: dict[str, Any] = {"cwd": Path(folder), "PYTHONUTF8": "0", "PYTHONIOENCODING": "latin-1"}
    assert json.loads(here.told("list", "--json", "--limit", "1", **how))[0]["project"] == folder
    assert "Ask an agent." in here.told("show", AGENT, **how)
    assert "new session: " in here.told("fork", AGENT, **how)


@pytest.mark.deep
@pytest.mark.parametrize(
    "words",
    [("show",), ("show", "--full"), *(("export", "--format", form) for form in ("html", "atif", "json"))],
)
def test_a_big_session_does_not_need_its_size(here: Here, words: tuple[str, ...]) -> None:
    """80 MB are read with less than 70 MB, the interpreter included."""
    answer = {"functionResponse": {"id": "t", "name": "x", "response": {"output": "line of output\n" * 5000}}}
    call = {"id": "t", "name": "x", "status": "success", "result": [answer]}
    file = here.root / "big.jsonl"
    with file.open("w") as out:
        out.write('{"sessionId":"big","projectHash":"h"}\n')
        for number in range(1000):
            message = {"id": f"g{number}", "type": "gemini", "content": "x", "toolCalls": [call]}
            out.write(json.dumps(message) + "\n")
    measure = (
        "import re, sys; from geminids.cli import app; sys.argv[0] = 'geminids'\n"
        "app.main(standalone_mode=False)\n"
        # Not ru_maxrss: that begins with what our own process has, which a worker of pytest has much of.
        "print(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1], file=sys.stderr)"
    )
    argv = [sys.executable, "-c", measure, "sessions", words[0], str(file), *words[1:]]
    ran = subprocess.run(
        argv, env=here.environ, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=True
    )
    assert file.stat().st_size > 75_000_000
    assert int(ran.stderr) < 70_000


@pytest.mark.real
def test_a_session_of_the_real_cli(make_world: Any) -> None:
    """Listed, shown with its tool and diff, and its copy goes on where the original was."""
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
    seen = call("show", "latest")
    assert "pear.txt  new, +1 -0\n" in seen
    assert "      +pear\n" in seen
    assert "It is **written**." in seen
    assert "2 requests" in seen
    made = json.loads(call("fork", first.session_id[:8], "--json"))
    world.gateway.reply(text="Still there.")
    again = world.ask("and now?", resume=made["id"])
    assert again.ok, again.failure
    assert "write the word pear" in json.dumps(world.gateway.requests[-1].body)
    assert "and now?" in call("show", made["id"])
    assert "and now?" not in call("show", first.session_id)
