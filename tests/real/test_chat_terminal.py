"""`geminids chat` with the real CLI, in a real terminal (tmux) and in a pipe."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from geminids.process.marker import MARKER
from geminids.process.tree import marked

pytestmark = pytest.mark.real

_PATIENCE = 30.0
_ONCE = "touch once.txt"
# tmux does not always hear of a child's end: the shell, which Ctrl-C does not end, tells the exit code.
_SAYS_ITS_END = 'trap : INT; "$@"; echo "exit code $?"'
_needs_tmux = pytest.mark.skipif(
    shutil.which("tmux") is None, reason="there is no tmux here to be the terminal"
)


def _environment(world: Any) -> dict[str, str]:
    own = {"HOME": str(world.home), "TMPDIR": str(world.tmp), "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
    strange = ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "TMUX", "TMUX_PANE")
    left = {name: value for name, value in os.environ.items() if name not in strange}
    return {**left, **world.gateway.env, **own}


def _argv(world: Any, *flags: str) -> list[str]:
    fixed = ["--gemini", world.version, "--model", "flash", "--grace", "2"]
    return [sys.executable, "-m", "geminids", "chat", *fixed, *flags]


class Terminal:
    """A terminal of its own, with a chat in it."""

    def __init__(self, world: Any, socket: str) -> None:
        self._world = world
        self._socket = socket
        self._config = world.root / "tmux.conf"
        self._config.write_text("set -g remain-on-exit on\nset -g status off\nset -g history-limit 5000\n")

    def chat(self, *flags: str, size: str = "100x30") -> Terminal:
        columns, rows = size.split("x")
        words = ["new-session", "-d", "-x", columns, "-y", rows, "-c", str(self._world.cwd)]
        self._tmux(*words, "sh", "-c", _SAYS_ITS_END, "sh", *_argv(self._world, *flags))
        self.until(lambda text: text.rstrip().endswith(">") or flags)
        return self

    @property
    def text(self) -> str:
        """All that was shown, without colours."""
        shown = self._tmux("capture-pane", "-p", "-S", "-")
        return re.sub(r"\n+Pane is dead .*", "", shown).rstrip()

    def type(self, text: str, *keys: str) -> None:
        self._tmux("send-keys", "-l", text)
        self.press(*(keys or ("Enter",)))

    def press(self, *keys: str) -> None:
        self._tmux("send-keys", *keys)

    def until(self, seen: str | Callable[[str], object], times: int = 1) -> None:
        """Wait for something to be shown, so many times."""
        by = time.monotonic() + _PATIENCE
        while not (self.text.count(seen) >= times if isinstance(seen, str) else seen(self.text)):
            assert time.monotonic() < by, f"never seen: {seen}\n{self.text}"
            time.sleep(0.03)

    def ready(self) -> None:
        """Wait for the prompt."""
        self.until(lambda text: text.endswith("\n>"))

    def ended(self) -> int:
        """Wait for the end of the chat; its exit code."""
        self.until("exit code ")
        return int(self.text.rpartition("exit code ")[2])

    def close(self) -> None:
        """Close the terminal, whatever goes on in it, and wait until it is gone."""
        server = self._tmux("display-message", "-p", "#{pid}").strip()
        self._tmux("kill-server")
        by = time.monotonic() + _PATIENCE
        while server and os.path.exists(f"/proc/{server}") and time.monotonic() < by:
            time.sleep(0.01)

    def _tmux(self, *words: str) -> str:
        argv = ["tmux", "-L", self._socket, "-f", str(self._config), *words]
        return subprocess.run(
            argv, env=_environment(self._world), capture_output=True, text=True, timeout=30
        ).stdout


@pytest.fixture
def world(make_world: Any) -> Any:
    """The newest release alone: older ones have no warm lane."""
    return make_world("0.61.0")


@pytest.fixture
def terminal(world: Any) -> Iterator[Terminal]:
    made = Terminal(world, f"geminids-{os.getpid()}-{time.monotonic_ns()}")
    yield made
    made.close()


def _shell(world: Any, command: str, text: str, **more: Any) -> None:
    world.gateway.reply(calls=[("run_shell_command", {"command": command})], **more)
    world.gateway.reply(text=text, **more)


@_needs_tmux
def test_a_conversation_with_questions(world: Any, terminal: Terminal) -> None:
    """`y` does it once, `a` is not asked again, `n` does nothing; `/cost` adds up, Ctrl-D leaves with how to resume."""
    usage = {"input": 1000, "cached": 400, "output": 20, "thinking": 7}
    world.gateway.reply(
        thought="**Plan** I think",
        text="Let me see.",
        calls=[("run_shell_command", {"command": _ONCE})],
        usage=usage,
    )
    world.gateway.reply(text="Made it.", usage=usage)
    _shell(world, "pwd", "Always one.", usage=usage)
    _shell(world, "pwd", "Always two.", usage=usage)
    world.gateway.reply(calls=[("write_file", {"file_path": "no.txt", "content": "first\n"})], usage=usage)
    world.gateway.reply(text="Not made.", usage=usage)
    terminal.chat()
    terminal.type("make a file")
    terminal.until("allow?")
    assert "  thought for a moment: Plan\n\nLet me see.\n" in terminal.text
    assert f"  $ {_ONCE}\n" in terminal.text
    assert "always, in this chat: this very command" in terminal.text
    assert not (world.cwd / "once.txt").exists()
    terminal.press("y")
    terminal.until("Made it.")
    assert (world.cwd / "once.txt").exists()
    assert re.search(rf"allow\? yes\n\n  ✓ {_ONCE}  [\d.]+ m?s\n\nMade it\.", terminal.text)
    terminal.ready()
    terminal.type("where")
    terminal.until("allow?", 2)
    terminal.press("a")
    terminal.until("Always one.")
    terminal.ready()
    terminal.type("where again")
    terminal.until("Always two.")
    terminal.ready()
    terminal.type("write")
    terminal.until("allow?", 3)
    assert re.search(r"no\.txt\n  @@ .*\n  \+first\n", terminal.text)
    terminal.press("n")
    terminal.until("Not made.")
    terminal.ready()
    assert "⊘ Write no.txt  denied" in terminal.text
    assert not (world.cwd / "no.txt").exists()
    terminal.type("/cost")
    terminal.until(lambda text: re.search(r"8 requests\n.*\n.* 8,000 +3,200 +160 +56\n", text))
    terminal.ready()
    terminal.press("C-d")
    assert terminal.ended() == 0
    assert re.search(r"session (\S{36})\nresume: geminids chat --resume \1\n", terminal.text)


@_needs_tmux
def test_ctrl_c_ends_the_turn_and_not_the_chat(world: Any, terminal: Terminal) -> None:
    """Text is seen as it comes; Ctrl-C ends a tool with all of it, the next turn works, and Ctrl-C then leaves."""
    world.gateway.reply(text="I begin", stall=True)
    command = "sh -c 'echo $$ > tool.pid; exec sleep 300'"
    world.gateway.reply(text="And now.", calls=[("run_shell_command", {"command": command})])
    world.gateway.reply(text="I am still here.")
    terminal.chat("--approval", "yolo", "tell me")
    terminal.until("I begin")
    terminal.press("C-c")
    terminal.until("■ turn cancelled after")
    terminal.ready()
    terminal.type("sleep")
    terminal.until(lambda _: (world.cwd / "tool.pid").exists() and (world.cwd / "tool.pid").read_text())
    terminal.until("running sh -c")
    terminal.press("C-c")
    terminal.until("■ turn cancelled after", 2)
    terminal.ready()
    assert re.search(r"◌ sh -c .* cancelled", terminal.text)
    assert not os.path.exists(f"/proc/{(world.cwd / 'tool.pid').read_text().strip()}")
    terminal.type("and?")
    terminal.until("I am still here.")
    terminal.ready()
    terminal.press("C-c")
    assert terminal.ended() == 0


def test_a_chat_in_a_pipe(world: Any) -> None:
    """A prompt a line, commands too; answers alone on stdout, what nobody could be asked is denied; exit code 0."""
    world.gateway.reply(text="One.")
    _shell(world, _ONCE, "Two.")
    given = "hello\n\n/nonesuch\nmake a \\\nfile\n"
    done = _piped(world, given)
    assert done.stdout == "One.\nTwo.\n"
    assert not (world.cwd / "once.txt").exists()
    assert f"denied {_ONCE}: approval=default" in done.stderr
    assert "unknown command /nonesuch" in done.stderr
    assert re.search(r"session \S{36}; geminids chat --resume \S{36}\n", done.stderr)
    assert world.gateway.requests[1].last_user_text == "make a \nfile"
    assert done.returncode == 0


def _piped(world: Any, given: str, *flags: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        _argv(world, *flags),
        input=given,
        env=_environment(world),
        cwd=world.cwd,
        capture_output=True,
        text=True,
        timeout=_PATIENCE,
    )


@pytest.mark.deep
def test_json_is_one_object_a_turn(world: Any) -> None:
    """In one session; the exit code is the last turn's."""
    world.gateway.reply(text="One.")
    world.gateway.reply(status=400, error="API key not valid", times=None)
    done = _piped(world, "a\nb\n", "--json")
    one, two = (json.loads(line) for line in done.stdout.splitlines())
    assert (one["answer"], one["outcome"], one["failure"]) == ("One.", "success", None)
    assert one["usage"]["requests"] == 1
    assert (two["answer"], two["outcome"], two["failure"]["kind"]) == ("", "failed", "auth")
    assert one["session_id"] == two["session_id"]
    assert done.returncode == 1


@pytest.mark.deep
def test_nobody_reads_the_pipe(world: Any) -> None:
    """The chat ends quietly."""
    world.gateway.reply(text="One.", times=None)
    argv = _argv(world)
    pipe = subprocess.PIPE
    with subprocess.Popen(
        argv, env=_environment(world), cwd=world.cwd, stdin=pipe, stdout=pipe, stderr=pipe
    ) as chat:
        assert chat.stdout and chat.stdin and chat.stderr
        chat.stdout.close()
        chat.stdin.write(b"a\nb\n")
        chat.stdin.close()
        assert chat.wait(_PATIENCE) == 141
        assert b"Traceback" not in chat.stderr.read()


@pytest.mark.deep
def test_sigint_ends_a_chat_in_a_pipe(world: Any) -> None:
    """The turn is stopped, the other lines are not sent, the exit code is 130."""
    world.gateway.reply(stall=True)
    with subprocess.Popen(
        _argv(world), env=_environment(world), cwd=world.cwd, stdin=subprocess.PIPE, stderr=subprocess.PIPE
    ) as chat:
        assert chat.stdin and chat.stderr
        chat.stdin.write(b"a\nb\n")
        chat.stdin.flush()
        assert world.gateway.wait_until(lambda: len(world.gateway.requests) == 1, _PATIENCE)
        chat.send_signal(signal.SIGINT)
        assert chat.wait(_PATIENCE) == 130
        assert b"interrupted by SIGINT" in chat.stderr.read()
    assert len(world.gateway.requests) == 1


@_needs_tmux
@pytest.mark.deep
def test_a_second_ctrl_c_leaves(world: Any, terminal: Terminal) -> None:
    """While a stubborn tool is ended; nothing is left of it."""
    command = "trap '' TERM INT HUP; echo $$ > tool.pid; while :; do sleep 0.2; done"
    world.gateway.reply(calls=[("run_shell_command", {"command": command})])
    terminal.chat("--approval", "yolo", "go")
    terminal.until(lambda _: (world.cwd / "tool.pid").exists())
    terminal.press("C-c")
    terminal.until("stopping")
    terminal.press("C-c")
    assert terminal.ended() == 130
    assert not os.path.exists(f"/proc/{(world.cwd / 'tool.pid').read_text().strip()}")


@_needs_tmux
@pytest.mark.deep
@pytest.mark.parametrize("in_a_turn", [True, False])
def test_a_terminal_that_is_closed(world: Any, terminal: Terminal, soon: Any, in_a_turn: bool) -> None:
    """Everything ends with it."""
    world.gateway.reply(calls=[("run_shell_command", {"command": "sleep 300"})])
    terminal.chat(*(("--approval", "yolo", "go") if in_a_turn else ()))
    if in_a_turn:
        terminal.until("running sleep 300")
    terminal.close()
    assert soon(lambda: not marked(os.environ[MARKER]), _PATIENCE)


@_needs_tmux
@pytest.mark.deep
def test_other_answers(world: Any, terminal: Terminal) -> None:
    """Enter is a no, `r` asks for the reason, Ctrl-C ends the turn, and no other key is an answer."""
    for number in range(3):
        _shell(world, f"touch {number}.txt", f"Answer {number}.")
    terminal.chat()
    terminal.type("zero")
    terminal.until("allow?")
    terminal.press("Up", "x", "Space")
    while "allow? no" not in terminal.text:
        assert "allow? yes" not in terminal.text
        terminal.press("Enter")  # which does not count where it came in one piece with the others
    terminal.until("Answer 0.")
    terminal.ready()
    assert "allow? no\n\n  ⊘ touch 0.txt  denied" in terminal.text
    terminal.type("one")
    terminal.until("allow?", 2)
    terminal.press("r")
    terminal.until("because:")
    terminal.type("use another name")
    terminal.until("Answer 1.")
    terminal.ready()
    assert "⊘ touch 1.txt  denied\n    use another name\n" in terminal.text
    terminal.type("two")
    terminal.until("allow?", 3)
    terminal.press("C-c")
    terminal.until("■ turn cancelled")
    terminal.ready()
    assert list(world.cwd.iterdir()) == []
    terminal.press("C-d")
    assert terminal.ended() == 0


@_needs_tmux
@pytest.mark.deep
def test_lines_commands_and_history(world: Any, terminal: Terminal) -> None:
    """Several lines, a line thrown away, `//word`, `/save`, and the arrow keys in the next chat."""
    world.gateway.reply(text="One.")
    world.gateway.reply(text="Two.")
    terminal.chat()
    terminal.type("thrown away", "C-c")
    terminal.ready()
    terminal.type("first \\")
    terminal.until(lambda text: text.endswith("\n."))
    terminal.type("second")
    terminal.until("One.")
    terminal.ready()
    terminal.type("//etc is what?")
    terminal.until("Two.")
    terminal.ready()
    terminal.type("/nonesuch")
    terminal.until("send it with //nonesuch")
    terminal.ready()
    terminal.type("/save talk.md")
    terminal.until("saved:")
    terminal.ready()
    terminal.type("/exit")
    assert terminal.ended() == 0
    assert [one.last_user_text.lstrip("\u2060") for one in world.gateway.requests] == [
        "first \nsecond",
        "/etc is what?",
    ]
    saved = (world.cwd / "talk.md").read_text()
    assert "**You:**\n\n> first\n> second\n" in saved
    history = Path(os.environ["GEMINIDS_HOME"]) / "chat-history"
    assert stat.S_IMODE(history.stat().st_mode) == 0o600
    terminal.close()
    terminal.chat()
    terminal.press("Up", "Up", "Up")
    terminal.until("> /nonesuch")
    terminal.press("C-c")
    terminal.ready()
    terminal.press("C-d")
    assert terminal.ended() == 0


@_needs_tmux
@pytest.mark.deep
def test_a_conversation_is_taken_up_again(world: Any, terminal: Terminal) -> None:
    """The last exchange is shown, the notice says that it was handed over, and the model is told all of it."""
    world.gateway.reply(text="Blue, you say.")
    assert _piped(world, "My colour is blue.\n").returncode == 0
    world.gateway.reply(text="It was blue.")
    terminal.chat("--continue")
    terminal.ready()
    assert "  > My colour is blue.\n  Blue, you say.\n  continuing session" in terminal.text
    terminal.type("which?")
    terminal.until("It was blue.")
    terminal.ready()
    assert "was handed over to session" in " ".join(terminal.text.split())
    assert "My colour is blue." in str(world.gateway.requests[-1].user_texts)
    terminal.press("C-d")
    assert terminal.ended() == 0
