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

_TIMEOUT = 30.0
_TOUCH_COMMAND = "touch once.txt"
# tmux does not always notice that a child has ended. A shell, which ignores Ctrl-C, prints the exit
# code.
_PRINT_EXIT_CODE = 'trap : INT; "$@"; echo "exit code $?"'
_needs_tmux = pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux as the terminal")


def _environment(world: Any) -> dict[str, str]:
    own = {"HOME": str(world.home), "TMPDIR": str(world.tmp), "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
    unwanted = ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "TMUX", "TMUX_PANE")
    inherited = {name: value for name, value in os.environ.items() if name not in unwanted}
    return {**inherited, **world.gateway.env, **own}


def _argv(world: Any, *flags: str) -> list[str]:
    fixed = ["--gemini", world.version, "--model", "flash", "--grace", "2"]
    return [sys.executable, "-m", "geminids", "chat", *fixed, *flags]


class Terminal:
    """A tmux terminal that runs one chat."""

    def __init__(self, world: Any, socket: str) -> None:
        self._world = world
        self._socket = socket
        self._config = world.root / "tmux.conf"
        self._config.write_text("set -g remain-on-exit on\nset -g status off\nset -g history-limit 5000\n")

    def chat(self, *flags: str, size: str = "100x30") -> Terminal:
        columns, rows = size.split("x")
        tmux_args = ["new-session", "-d", "-x", columns, "-y", rows, "-c", str(self._world.cwd)]
        self._tmux(*tmux_args, "sh", "-c", _PRINT_EXIT_CODE, "sh", *_argv(self._world, *flags))
        self.wait_for(lambda text: text.rstrip().endswith(">") or flags)
        return self

    @property
    def text(self) -> str:
        """Everything that the terminal has shown, without colours."""
        shown = self._tmux("capture-pane", "-p", "-S", "-")
        return re.sub(r"\n+Pane is dead .*", "", shown).rstrip()

    def type(self, text: str, *keys: str) -> None:
        self._tmux("send-keys", "-l", text)
        self.press(*(keys or ("Enter",)))

    def press(self, *keys: str) -> None:
        self._tmux("send-keys", *keys)

    def press_until(self, key: str, expected: str) -> None:
        """Press a key until a text is shown. The prompt ignores Tab while it searches completions."""
        for _ in range(10):
            self.press(key)
            deadline = time.monotonic() + 1
            while time.monotonic() < deadline:
                if expected in self.text:
                    return
                time.sleep(0.03)
        self.wait_for(expected)

    def paste(self, text: str) -> None:
        """Paste a text as a terminal does, as bracketed paste."""
        self._tmux("set-buffer", text)
        self._tmux("paste-buffer", "-p")

    @property
    def pid(self) -> int:
        """The pid of the chat."""
        shell = self._tmux("display-message", "-p", "#{pane_pid}").strip()
        return int(Path(f"/proc/{shell}/task/{shell}/children").read_text())

    def wait_for(self, expected: str | Callable[[str], object], times: int = 1) -> None:
        """Wait until a text has been shown `times` times, or until a function of all shown text is
        true."""
        deadline = time.monotonic() + _TIMEOUT
        while not (self.text.count(expected) >= times if isinstance(expected, str) else expected(self.text)):
            assert time.monotonic() < deadline, f"never shown: {expected}\n{self.text}"
            time.sleep(0.03)

    def wait_for_prompt(self) -> None:
        """Wait for the chat's prompt."""
        self.wait_for(lambda text: text.endswith("\n>"))

    def wait_for_exit(self) -> int:
        """Wait until the chat has ended, and return its exit code."""
        self.wait_for("exit code ")
        return int(self.text.rpartition("exit code ")[2])

    def close(self) -> None:
        """Kill the terminal, even during a turn, and wait until its process has ended."""
        server = self._tmux("display-message", "-p", "#{pid}").strip()
        self._tmux("kill-server")
        deadline = time.monotonic() + _TIMEOUT
        while server and os.path.exists(f"/proc/{server}") and time.monotonic() < deadline:
            time.sleep(0.01)

    def _tmux(self, *words: str) -> str:
        argv = ["tmux", "-L", self._socket, "-f", str(self._config), *words]
        return subprocess.run(
            argv, env=_environment(self._world), capture_output=True, text=True, timeout=30
        ).stdout


@pytest.fixture
def world(make_world: Any) -> Any:
    """A world with the newest release only."""
    return make_world("0.61.0")


@pytest.fixture
def terminal(world: Any) -> Iterator[Terminal]:
    opened = Terminal(world, f"geminids-{os.getpid()}-{time.monotonic_ns()}")
    yield opened
    opened.close()


@_needs_tmux
def test_the_first_screen_and_the_prompt(world: Any, terminal: Terminal) -> None:
    """The first screen shows folder, model, permissions and how to leave, also in a narrow terminal.

    Tab completes commands and paths, a prompt can have several lines, and a pasted text is one
    prompt.
    """
    (world.cwd / "my notes.txt").write_text("the content of the notes\n")
    for number in range(3):
        world.gateway.reply(text=f"Answer {number}.")
    terminal.chat("--approval", "auto_edit", "--deny", "mcp", size="50x30")
    terminal.wait_for_prompt()
    assert re.sub(r"folder .*(\n {15}.*)*", "folder", terminal.text) == (
        "  folder\n"
        "  model        flash\n"
        "  permissions  auto_edit: reads and edits files,\n"
        "               asks before anything else;\n"
        "               denied: mcp\n"
        "  /help lists the commands · Ctrl-D leaves\n"
        "\n"
        ">"
    )
    assert str(world.cwd) in re.sub(r"\n {15}", "", terminal.text)
    terminal.type("/mo", "d")
    terminal.wait_for("show or set the approval")
    terminal.press_until("Tab", "> /mode\n")
    terminal.press("Enter")  # takes the completion
    terminal.wait_for(lambda text: text.endswith("> /mode"))
    terminal.press("Enter")
    terminal.wait_for("mode: auto_edit")
    terminal.wait_for_prompt()
    terminal.type("read @m", "y")
    terminal.wait_for(" my notes.txt")
    terminal.press_until("Tab", r"> read @my\ notes.txt")
    terminal.press("Enter")
    terminal.type(" now", "M-Enter")
    terminal.type("and more")
    terminal.wait_for("Answer 0.")
    terminal.wait_for_prompt()
    terminal.paste("pasted\n\tlines \\\nend")
    terminal.wait_for(lambda text: text.endswith(".     lines \\\n. end"))
    terminal.press("Enter")
    terminal.wait_for("Answer 1.")
    terminal.wait_for_prompt()
    terminal.press("Up")
    terminal.wait_for(lambda text: text.endswith(". end"))
    terminal.type("!")
    terminal.wait_for("Answer 2.")
    terminal.wait_for_prompt()
    sent = [request.last_user_text for request in world.gateway.requests]
    assert "the content of the notes" in str(world.gateway.requests[0].contents)
    assert any("now\nand more" in text for text in world.gateway.requests[0].user_texts)
    assert sent[1:] == ["pasted\n\tlines \\\nend", "pasted\n\tlines \\\nend!"]
    terminal.press("C-d")
    assert terminal.wait_for_exit() == 0


@_needs_tmux
def test_keys_typed_in_a_turn_and_signals_at_the_prompt(world: Any, terminal: Terminal) -> None:
    """Text that is typed while a turn runs is the next prompt, and is not shown in the answer.

    SIGINT at the prompt discards the typed text. SIGTERM leaves the chat with exit code 130.
    """
    world.gateway.reply(text=["I begin", " and end."], pause=1.0)
    world.gateway.reply(text="Second.")
    terminal.chat()
    terminal.type("one")
    terminal.wait_for("I begin")
    terminal.type("two")
    terminal.wait_for("Second.")
    terminal.wait_for_prompt()
    assert "I begin and end.\n" in terminal.text
    assert [request.last_user_text for request in world.gateway.requests] == ["one", "two"]
    terminal.type("unsent", "Space")
    terminal.wait_for("> unsent")
    os.kill(terminal.pid, signal.SIGINT)
    terminal.wait_for_prompt()
    os.kill(terminal.pid, signal.SIGTERM)
    assert terminal.wait_for_exit() == 130
    assert "resume: geminids chat" in terminal.text


def _reply_with_shell(world: Any, command: str, text: str, **more: Any) -> None:
    world.gateway.reply(calls=[("run_shell_command", {"command": command})], **more)
    world.gateway.reply(text=text, **more)


@_needs_tmux
def test_permission_prompts_in_a_conversation(world: Any, terminal: Terminal) -> None:
    """At a permission prompt `y` allows one call, `a` allows the command for the whole chat, and
    `n` denies the call. `/cost` shows the sum of all turns. Ctrl-D leaves the chat and prints how
    to resume it."""
    usage = {"input": 1000, "cached": 400, "output": 20, "thinking": 7}
    world.gateway.reply(
        thought="**Plan** I think",
        text="Let me see.",
        calls=[("run_shell_command", {"command": _TOUCH_COMMAND})],
        usage=usage,
    )
    world.gateway.reply(text="Made it.", usage=usage)
    _reply_with_shell(world, "pwd", "Always one.", usage=usage)
    _reply_with_shell(world, "pwd", "Always two.", usage=usage)
    world.gateway.reply(calls=[("write_file", {"file_path": "no.txt", "content": "first\n"})], usage=usage)
    world.gateway.reply(text="Not made.", usage=usage)
    terminal.chat()
    terminal.type("make a file")
    terminal.wait_for("allow?")
    assert "  thought for a moment: Plan\n\nLet me see.\n" in terminal.text
    assert f"  $ {_TOUCH_COMMAND}\n" in terminal.text
    assert "always, in this chat: this very command" in terminal.text
    assert not (world.cwd / "once.txt").exists()
    terminal.press("y")
    terminal.wait_for("\nMade it.")
    assert (world.cwd / "once.txt").exists()
    assert re.search(rf"allow\? yes\n\n  ✓ {_TOUCH_COMMAND}  [\d.]+ m?s\n\nMade it\.", terminal.text)
    terminal.wait_for_prompt()
    terminal.type("where")
    terminal.wait_for("allow?", 2)
    terminal.press("a")
    terminal.wait_for("Always one.")
    terminal.wait_for_prompt()
    terminal.type("where again")
    terminal.wait_for("Always two.")
    terminal.wait_for_prompt()
    terminal.type("write")
    terminal.wait_for("allow?", 3)
    assert re.search(r"no\.txt\n  @@ .*\n  \+first\n", terminal.text)
    terminal.press("n")
    terminal.wait_for("Not made.")
    terminal.wait_for_prompt()
    assert "⊘ Write no.txt  denied" in terminal.text
    assert not (world.cwd / "no.txt").exists()
    terminal.type("/cost")
    terminal.wait_for(lambda text: re.search(r"8 requests\n.*\n.* 8,000 +3,200 +160 +56\n", text))
    terminal.wait_for_prompt()
    terminal.press("C-d")
    assert terminal.wait_for_exit() == 0
    assert re.search(r"session (\S{8})\S{28}\nresume: geminids chat --resume \1\n", terminal.text)


@_needs_tmux
def test_ctrl_c_ends_the_turn_and_not_the_chat(world: Any, terminal: Terminal) -> None:
    """Text is shown as it arrives. Ctrl-C ends a turn and its tool, the next turn works, and Ctrl-C
    at the prompt leaves the chat."""
    world.gateway.reply(text="I begin", stall=True)
    command = "sh -c 'echo $$ > tool.pid; exec sleep 300'"
    world.gateway.reply(text="And now.", calls=[("run_shell_command", {"command": command})])
    world.gateway.reply(text="I am still here.")
    terminal.chat("--approval", "yolo", "tell me")
    terminal.wait_for("I begin")
    terminal.press("C-c")
    terminal.wait_for("■ turn cancelled after")
    terminal.wait_for_prompt()
    terminal.type("sleep")
    terminal.wait_for(lambda _: (world.cwd / "tool.pid").exists() and (world.cwd / "tool.pid").read_text())
    terminal.wait_for("running sh -c")
    terminal.press("C-c")
    terminal.wait_for("■ turn cancelled after", 2)
    terminal.wait_for_prompt()
    assert re.search(r"◌ sh -c .* cancelled", terminal.text)
    assert not os.path.exists(f"/proc/{(world.cwd / 'tool.pid').read_text().strip()}")
    terminal.type("and?")
    terminal.wait_for("I am still here.")
    terminal.wait_for_prompt()
    terminal.press("C-c")
    assert terminal.wait_for_exit() == 0


def test_a_chat_in_a_pipe(world: Any) -> None:
    """In a pipe, each line is a prompt or a command. Stdout has only the answers, a call that needs
    permission is denied, and the exit code is 0."""
    world.gateway.reply(text="One.")
    _reply_with_shell(world, _TOUCH_COMMAND, "Two.")
    stdin = "hello\r\n\n/nonesuch\nmake a \\\nfile\\"
    done = _run_in_pipe(world, stdin)
    assert done.stdout == "One.\nTwo.\n"
    assert not (world.cwd / "once.txt").exists()
    assert f"denied {_TOUCH_COMMAND}: `--approval default`" in done.stderr
    assert "unknown command /nonesuch" in done.stderr
    assert re.search(r"session (\S{8})\S{28}; geminids chat --resume \1\n", done.stderr)
    assert world.gateway.requests[1].last_user_text == "make a \nfile"
    assert done.returncode == 0


def _run_in_pipe(world: Any, stdin: str, *flags: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        _argv(world, *flags),
        input=stdin,
        env=_environment(world),
        cwd=world.cwd,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT,
    )


def test_a_run_and_a_chat_in_a_pipe_do_not_load_the_line_editor(world: Any) -> None:
    """Only a chat in a terminal imports `prompt_toolkit`, which takes time."""
    world.gateway.reply(text="One.", times=None)
    for command, own in (("chat", "geminids.cli.chat.slash_commands"), ("run", "geminids.cli.shared.follow")):
        argv = [sys.executable, "-X", "importtime", "-m", "geminids", command, "--gemini", world.version]
        done = subprocess.run(
            [*argv, "--model", "flash", "hello"],
            stdin=subprocess.DEVNULL,
            env=_environment(world),
            cwd=world.cwd,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT,
        )
        assert done.stdout == "One.\n"
        assert own in done.stderr
        assert "prompt_toolkit" not in done.stderr


@pytest.mark.deep
def test_json_is_one_object_a_turn(world: Any) -> None:
    """`--json` prints one object for each turn, with the session's id. The exit code is that of the
    last turn."""
    world.gateway.reply(text="One.")
    world.gateway.reply(status=400, error="API key not valid", times=None)
    done = _run_in_pipe(world, "a\nb\n", "--json")
    first, second = (json.loads(line) for line in done.stdout.splitlines())
    assert (first["answer"], first["outcome"], first["failure"]) == ("One.", "success", None)
    assert first["usage"]["requests"] == 1
    assert (second["answer"], second["outcome"], second["failure"]["kind"]) == ("", "failed", "auth")
    assert first["session_id"] == second["session_id"]
    assert done.returncode == 1


@pytest.mark.deep
def test_a_line_that_is_not_utf8_is_refused(world: Any) -> None:
    """A line of a pipe that is not UTF-8 ends the chat with exit code 2 and the offset of the wrong
    byte. It is not sent; the answers before it are printed."""
    world.gateway.reply(text="one")
    done = subprocess.run(
        _argv(world),
        env=_environment(world),
        cwd=world.cwd,
        input="größe\n".encode() + b"caf\xe9\nmore\n",
        capture_output=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (2, b"one\n")
    assert b"stdin is not UTF-8: byte 0xe9 at offset 11" in done.stderr
    assert [request.last_user_text for request in world.gateway.requests] == ["größe"]


def test_a_closed_output_pipe_ends_the_chat(world: Any) -> None:
    """A chat whose output pipe is closed ends without an error message."""
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
        assert chat.wait(_TIMEOUT) == 141
        assert b"Traceback" not in chat.stderr.read()


@pytest.mark.deep
def test_sigint_ends_a_chat_in_a_pipe(world: Any) -> None:
    """SIGINT stops the turn of a chat in a pipe. The remaining lines are not sent, and the exit
    code is 130."""
    world.gateway.reply(stall=True)
    with subprocess.Popen(
        _argv(world), env=_environment(world), cwd=world.cwd, stdin=subprocess.PIPE, stderr=subprocess.PIPE
    ) as chat:
        assert chat.stdin and chat.stderr
        chat.stdin.write(b"a\nb\n")
        chat.stdin.flush()
        assert world.gateway.wait_until(lambda: len(world.gateway.requests) == 1, _TIMEOUT)
        chat.send_signal(signal.SIGINT)
        assert chat.wait(_TIMEOUT) == 130
        assert b"interrupted by SIGINT" in chat.stderr.read()
    assert len(world.gateway.requests) == 1


@_needs_tmux
@pytest.mark.deep
def test_a_second_ctrl_c_leaves(world: Any, terminal: Terminal) -> None:
    """A second Ctrl-C leaves the chat while it still ends a tool that ignores signals. No process
    is left."""
    command = "trap '' TERM INT HUP; echo $$ > tool.pid; while :; do sleep 0.2; done"
    world.gateway.reply(calls=[("run_shell_command", {"command": command})])
    terminal.chat("--approval", "yolo", "go")
    terminal.wait_for(lambda _: (world.cwd / "tool.pid").exists())
    terminal.press("C-c")
    terminal.wait_for("stopping")
    terminal.press("C-c")
    assert terminal.wait_for_exit() == 130
    assert not os.path.exists(f"/proc/{(world.cwd / 'tool.pid').read_text().strip()}")


@_needs_tmux
@pytest.mark.deep
@pytest.mark.parametrize("in_a_turn", [True, False])
def test_closing_the_terminal_ends_the_chat(
    world: Any, terminal: Terminal, wait_until: Any, in_a_turn: bool
) -> None:
    """Closing the terminal ends the chat and all its processes."""
    world.gateway.reply(calls=[("run_shell_command", {"command": "sleep 300"})])
    terminal.chat(*(("--approval", "yolo", "go") if in_a_turn else ()))
    if in_a_turn:
        terminal.wait_for("running sleep 300")
    terminal.close()
    assert wait_until(lambda: not marked(os.environ[MARKER]), _TIMEOUT)


@_needs_tmux
@pytest.mark.deep
def test_other_keys_at_a_permission_prompt(world: Any, terminal: Terminal) -> None:
    """At a permission prompt, Enter means no, `r` asks for a reason, Ctrl-C ends the turn, and
    other keys are ignored. `/save` shows a denied command with its reason."""
    for number in range(3):
        _reply_with_shell(world, f"touch {number}.txt", f"Answer {number}.")
    terminal.chat()
    terminal.type("zero")
    terminal.wait_for("allow?")
    terminal.press("Up", "x", "Space")
    while "allow? no" not in terminal.text:
        assert "allow? yes" not in terminal.text
        terminal.press("Enter")  # the chat ignores an Enter that arrives together with other keys
    terminal.wait_for("Answer 0.")
    terminal.wait_for_prompt()
    assert "allow? no\n\n  ⊘ touch 0.txt  denied" in terminal.text
    terminal.type("one")
    terminal.wait_for("allow?", 2)
    terminal.press("r")
    terminal.wait_for("because:")
    terminal.type("use another name")
    terminal.wait_for("Answer 1.")
    terminal.wait_for_prompt()
    assert "⊘ touch 1.txt  denied\n    use another name\n" in terminal.text
    terminal.type("/save talk.md")
    terminal.wait_for("saved:")
    terminal.wait_for_prompt()
    saved = (world.cwd / "talk.md").read_text()
    for number, reason in enumerate(("the user answered no", "use another name")):
        head = f"<details><summary>⊘ touch {number}.txt (denied)</summary>"
        assert f"{head}\n\n```\n{reason}\n```\n" in saved
    terminal.type("two")
    terminal.wait_for("allow?", 3)
    terminal.press("C-c")
    terminal.wait_for("■ turn cancelled")
    terminal.wait_for_prompt()
    assert [file.name for file in world.cwd.iterdir()] == ["talk.md"]
    terminal.press("C-d")
    assert terminal.wait_for_exit() == 0


@_needs_tmux
@pytest.mark.deep
def test_lines_commands_and_history(world: Any, terminal: Terminal) -> None:
    """A prompt can have several lines, Ctrl-C discards a line, `//word` sends a leading slash,
    `/save` writes the chat to a file, and the arrow keys show the history in the next chat."""
    world.gateway.reply(text="One.")
    world.gateway.reply(text="Two.")
    terminal.chat()
    terminal.type("thrown away", "C-c")
    terminal.wait_for_prompt()
    terminal.type("first \\")
    terminal.wait_for(lambda text: text.endswith("\n."))
    terminal.type("second")
    terminal.wait_for("One.")
    terminal.wait_for_prompt()
    terminal.type("//etc is what?")
    terminal.wait_for("Two.")
    terminal.wait_for_prompt()
    terminal.type("/nonesuch")
    terminal.wait_for("type //nonesuch to send /nonesuch")
    terminal.wait_for_prompt()
    terminal.type("/save talk.md")
    terminal.wait_for("saved:")
    terminal.wait_for_prompt()
    terminal.type("/exit")
    assert terminal.wait_for_exit() == 0
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
    terminal.wait_for("> /nonesuch")
    terminal.press("C-c")
    terminal.wait_for_prompt()
    terminal.press("C-d")
    assert terminal.wait_for_exit() == 0


@_needs_tmux
@pytest.mark.deep
def test_a_chat_is_resumed(world: Any, terminal: Terminal) -> None:
    """A resumed chat shows the last exchange and a notice about the new session. The model receives
    the whole conversation."""
    world.gateway.reply(text="Blue, you say.")
    assert _run_in_pipe(world, "My colour is blue.\n").returncode == 0
    world.gateway.reply(text="It was blue.")
    terminal.chat("--continue")
    terminal.wait_for_prompt()
    assert "  > My colour is blue.\n  Blue, you say.\n  continuing session" in terminal.text
    terminal.type("which?")
    terminal.wait_for("It was blue.")
    terminal.wait_for_prompt()
    assert "was handed over to session" in " ".join(terminal.text.split())
    assert "My colour is blue." in str(world.gateway.requests[-1].user_texts)
    terminal.press("C-d")
    assert terminal.wait_for_exit() == 0
