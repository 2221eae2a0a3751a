"""Record the session files in tests/recordings with real releases of the CLI.

A scripted model answers, and the paths of this machine are replaced.

    python tests/recorders/record.py [VERSION ...]
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from geminids.config.paths import Places
from geminids.gateway import Call, Gateway, Reply, ReplyUsage
from geminids.gemini.install.cli import install

VERSIONS = ("0.24.0", "0.32.1", "0.41.2", "0.61.0")
RECORDINGS = Path(__file__).parents[1] / "recordings"
_SETTINGS = {
    "security": {"auth": {"selectedType": "gemini-api-key"}},
    "general": {"maxAttempts": 1, "sessionRetention": {"enabled": False}},
    "privacy": {"usageStatisticsEnabled": False},
    "experimental": {"enableAgents": True},
}
_USAGE = ReplyUsage(input=100, output=7, cached=40, thinking=5)
_FAILING = "echo out; echo oops >&2; exit 3"


def main(versions: list[str]) -> None:
    for version in versions or VERSIONS:
        with tempfile.TemporaryDirectory(prefix="geminids-record-") as folder:
            cli = Cli(version, Path(folder).resolve())
            record_tools(cli)
            record_parallel_calls(cli)
            record_api_error(cli)
            if version not in ("0.24.0", "0.32.1"):
                record_subagent(cli)
                record_cancelled_shell(cli)
            save_recordings(cli)


class Cli:
    """Runs `gemini` directly, not through geminids, with a home folder made for the recording."""

    def __init__(self, version: str, root: Path) -> None:
        home = os.environ.get("GEMINIDS_HOME") or Path(__file__).parents[2] / ".geminids"
        places = Places(Path(home).absolute())
        self.version, self.root = version, root
        self.command = install(version, places=places).command(places)
        self.cwd, self.home = root / "repo", root / "home"
        self.cwd.mkdir()
        (self.cwd / "a.py").write_text("x = 1\n")
        (self.home / ".gemini").mkdir(parents=True)
        (self.home / ".gemini" / "settings.json").write_text(json.dumps(_SETTINGS))

    def env(self, gateway: Gateway) -> dict[str, str]:
        own = {"PATH": os.environ["PATH"], "HOME": str(self.home), "GEMINI_CLI_HOME": str(self.home)}
        return {**own, "NO_COLOR": "1", "GEMINI_CLI_NO_RELAUNCH": "true", **gateway.env}

    def run(self, gateway: Gateway, prompt: str, *flags: str) -> str:
        """Run the CLI headless with one prompt, and return the id of its session."""
        done = subprocess.run(
            [*self.command, "--output-format=stream-json", "--model=flash", "--approval-mode=yolo", *flags],
            input=prompt,
            text=True,
            capture_output=True,
            env=self.env(gateway),
            cwd=self.cwd,
            timeout=90,
        )
        first_line = done.stdout.partition("\n")[0]
        if not first_line:
            raise SystemExit(f"{self.version} printed nothing: {done.stderr}")
        return str(json.loads(first_line)["session_id"])

    def make_older(self, session: str) -> None:
        """Rename the session's file as if it had begun in an earlier minute: the name contains the
        minute."""
        for file in self.home.rglob(f"session-*-{session[:8]}.json*"):
            file.rename(file.with_name(f"session-2026-01-02T03-04-{session[:8]}{file.suffix}"))


def record_tools(cli: Cli) -> None:
    """Record thoughts, a file read, a file written, a failing shell command and a failing tool;
    then resume the session.

    The session is resumed within the same minute. Newer releases then rewrite the conversation and
    keep less of it.
    """
    replies = [
        Reply(
            thought="**Look first** I read the file.",
            text="Let me read.",
            calls=[Call("read_file", {"file_path": str(cli.cwd / "a.py")})],
            usage=_USAGE,
        ),
        Reply(
            calls=[Call("write_file", {"file_path": str(cli.cwd / "b.py"), "content": "y = 2\n"})],
            usage=_USAGE,
        ),
        Reply(
            calls=[Call("run_shell_command", {"command": _FAILING, "description": "Fails."})], usage=_USAGE
        ),
        Reply(calls=[Call("read_file", {"file_path": str(cli.cwd / "missing.py")})], usage=_USAGE),
        Reply(thought="**Sum up** Nearly done.", text="x is 1 — that's it.", usage=_USAGE),
        Reply(text="Still 1.", usage=_USAGE),
    ]
    with Gateway(replies) as gateway:
        session = cli.run(gateway, "What is x?")
        cli.run(gateway, "And now?", f"--resume={session}")


def record_parallel_calls(cli: Cli) -> None:
    """Record two tool calls in one turn; then resume the session in a later minute, which is the
    usual case."""
    calls = [
        Call("read_file", {"file_path": str(cli.cwd / "a.py")}),
        Call("list_directory", {"dir_path": str(cli.cwd)}),
    ]
    replies = [
        Reply(thought="**Both** At once.", calls=calls, usage=_USAGE),
        Reply(text="Two results.", usage=_USAGE),
        Reply(text="The same.", usage=_USAGE),
    ]
    with Gateway(replies) as gateway:
        session = cli.run(gateway, "Read and list.")
        cli.make_older(session)
        cli.run(gateway, "Again.", f"--resume={session}")


def record_api_error(cli: Cli) -> None:
    """Record an API error instead of an answer."""
    with Gateway([Reply(status=400, error="no such thing")]) as gateway:
        cli.run(gateway, "Fail.")


def record_subagent(cli: Cli) -> None:
    """Record a subagent that reads a file; the subagent has its own session file."""
    replies = [
        Reply(
            calls=[Call("invoke_agent", {"agent_name": "generalist", "prompt": "Read a.py."})], usage=_USAGE
        ),
        Reply(
            thought="**In the agent** Reading.",
            calls=[Call("read_file", {"file_path": str(cli.cwd / "a.py")})],
            usage=_USAGE,
        ),
        Reply(calls=[Call("complete_task", {"result": {"response": "x is 1"}})], usage=_USAGE),
        Reply(text="The agent says 1.", usage=_USAGE),
    ]
    with Gateway(replies) as gateway:
        cli.run(gateway, "Ask an agent.")


def record_cancelled_shell(cli: Cli) -> None:
    """Record a shell that is cancelled while it runs. Only ACP can do that without a terminal."""
    started_file = cli.cwd / "started"
    command = f"touch {started_file.name}; sleep 60"
    replies = [Reply(calls=[Call("run_shell_command", {"command": command})], usage=_USAGE)]
    with Gateway(replies) as gateway:
        agent = subprocess.Popen(
            [*cli.command, "--acp", "--model=flash", "--approval-mode=yolo"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=cli.env(gateway),
            cwd=cli.cwd,
        )
        try:
            _ask(agent, 1, "initialize", {"protocolVersion": 1, "clientCapabilities": {}})
            session = _ask(agent, 2, "session/new", {"cwd": str(cli.cwd), "mcpServers": []})["sessionId"]
            prompt = {"sessionId": session, "prompt": [{"type": "text", "text": "Sleep."}]}
            _send(agent, {"id": 3, "method": "session/prompt", "params": prompt})
            deadline = time.monotonic() + 60
            while not started_file.exists() and time.monotonic() < deadline:
                time.sleep(0.05)
            _send(agent, {"method": "session/cancel", "params": {"sessionId": session}})
            _wait_for_answer(agent, 3)
            started_file.unlink()
        finally:
            assert agent.stdin is not None
            agent.stdin.close()
            agent.wait(30)


def _send(agent: subprocess.Popen[bytes], message: dict[str, Any]) -> None:
    assert agent.stdin is not None
    agent.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    agent.stdin.flush()


def _wait_for_answer(agent: subprocess.Popen[bytes], number: int) -> Any:
    assert agent.stdout is not None
    for line in agent.stdout:
        if line.startswith(b"{") and (message := json.loads(line)).get("id") == number:
            return message.get("result") or message
    raise SystemExit("the ACP process ended without an answer")


def _ask(agent: subprocess.Popen[bytes], number: int, method: str, params: Any) -> Any:
    _send(agent, {"id": number, "method": method, "params": params})
    return _wait_for_answer(agent, number)


def save_recordings(cli: Cli) -> None:
    """Copy the session files to tests/recordings, with `/recorded` in place of this machine's
    path."""
    folder = RECORDINGS / cli.version
    shutil.rmtree(folder, ignore_errors=True)
    for chats in (cli.home / ".gemini" / "tmp").glob("*/chats"):
        for file in chats.rglob("*.json*"):
            recording = folder / file.relative_to(chats)
            recording.parent.mkdir(parents=True, exist_ok=True)
            data = file.read_bytes().replace(str(cli.root).encode(), b"/recorded")
            recording.write_bytes(data)
            print(recording.relative_to(RECORDINGS), len(data))


if __name__ == "__main__":
    main(sys.argv[1:])
