"""Record conversations over ACP in tests/recordings/*/acp. Run it after record.py, which clears the
folders.

    python tests/recorders/record_acp.py [VERSION ...]
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

VERSIONS = ("0.41.2", "0.61.0")
RECORDINGS = Path(__file__).parents[1] / "recordings"
_SETTINGS = {
    "security": {"auth": {"selectedType": "gemini-api-key"}},
    "general": {"maxAttempts": 1, "sessionRetention": {"enabled": False}},
    "privacy": {"usageStatisticsEnabled": False},
}
_USAGE = ReplyUsage(input=100, output=7, cached=40, thinking=5)
_READ = Call("read_file", {"file_path": "a.py"})
_SLEEP = Call("run_shell_command", {"command": "touch started; sleep 60"})


def main(versions: list[str]) -> None:
    for version in versions or VERSIONS:
        shutil.rmtree(RECORDINGS / version / "acp", ignore_errors=True)
        for scene in (record_conversation, record_api_error, record_resumed):
            with tempfile.TemporaryDirectory(prefix="geminids-record-") as folder:
                cli = Cli(version, Path(folder).resolve())
                _save(cli, scene(cli))


def record_conversation(cli: Cli) -> str:
    """Record two calls at once, a denied call, a call of an unknown tool, a cancelled turn, and two
    calls in a row."""
    replies = [
        _reply(
            "Let me see.", _READ, Call("run_shell_command", {"command": "touch b; echo hi"}), thought=True
        ),
        _reply("Try.", Call("write_file", {"file_path": "c.txt", "content": "x\n"}), Call("nonesuch", {})),
        _reply("Done."),
        _reply("Sleep.", _SLEEP),
        _reply("Once more.", _READ),
        _reply("", _READ),
        _reply("Third."),
    ]
    with Gateway(replies) as gateway, _Agent(cli, gateway) as agent:
        agent.ask("Look around.")
        agent.ask_and_cancel("Rest.", cli.cwd / "started")
        agent.ask("Again.")
        return agent.session


def record_api_error(cli: Cli) -> str:
    """Record an API error in the second turn. The CLI then rewrites the conversation in the file,
    except for the calls that come later."""
    replies = [
        _reply("One.", _READ),
        _reply("Two."),
        Reply(status=400, error="no such thing"),
        _reply("Three.", _READ),
        _reply("Four."),
    ]
    with Gateway(replies) as gateway, _Agent(cli, gateway) as agent:
        for prompt in ("Read, then fail.", "Fail.", "Go on."):
            agent.ask(prompt)
        return agent.session


def record_resumed(cli: Cli) -> str:
    """Record a session that headless runs resume, first within the same minute and then in a later
    one."""
    replies = [
        _reply("One.", _READ),
        _reply("Two."),
        _reply("Three.", Call("list_directory", {"dir_path": "."})),
        *map(_reply, ("Four.", "Five.", "Six.")),
    ]
    with Gateway(replies) as gateway:
        with _Agent(cli, gateway) as agent:
            agent.ask("Read, then resume.")
            agent.ask("And list.")
        cli.resume(gateway, "Headless.", agent.session)
        cli.make_older(agent.session)
        cli.resume(gateway, "Later.", agent.session)
    return agent.session


def _reply(text: str, *calls: Call, thought: bool = False) -> Reply:
    return Reply(
        text=text, calls=list(calls), usage=_USAGE, thought="**Look first** I read." if thought else None
    )


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
        trusted = {"NO_COLOR": "1", "GEMINI_CLI_NO_RELAUNCH": "true", "GEMINI_CLI_TRUST_WORKSPACE": "true"}
        return {**own, **trusted, **gateway.env}

    def resume(self, gateway: Gateway, prompt: str, session: str) -> None:
        argv = [*self.command, "--output-format=stream-json", "--model=flash", f"--resume={session}"]
        subprocess.run(
            argv, input=prompt.encode(), env=self.env(gateway), cwd=self.cwd, timeout=90, check=True
        )

    def make_older(self, session: str) -> None:
        """Rename the session's file as if it had begun in an earlier minute: the name contains the
        minute."""
        for file in self.home.rglob(f"session-*-{session[:8]}.jsonl"):
            file.rename(file.with_name(f"session-2026-01-02T03-04-{session[:8]}.jsonl"))


class _Agent:
    """One ACP process with one session. It allows shell calls and denies other calls that need
    permission."""

    def __init__(self, cli: Cli, gateway: Gateway) -> None:
        self._process = subprocess.Popen(
            [*cli.command, "--acp", "--model=flash"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=cli.env(gateway),
            cwd=cli.root,
        )
        self._number = 0
        self._call("initialize", {"protocolVersion": 1, "clientCapabilities": {}})
        self.session: str = self._call("session/new", {"cwd": str(cli.cwd), "mcpServers": []})["sessionId"]

    def __enter__(self) -> _Agent:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)

    def ask(self, prompt: str) -> None:
        self._wait_for_answer(self._prompt(prompt))

    def ask_and_cancel(self, prompt: str, started_file: Path) -> None:
        """Send a prompt, and cancel the turn when its shell has made this file."""
        number = self._prompt(prompt)
        self._wait_for_answer(None)
        deadline = time.monotonic() + 60
        while not started_file.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        self._send({"method": "session/cancel", "params": {"sessionId": self.session}})
        self._wait_for_answer(number)

    def _prompt(self, prompt: str) -> int:
        blocks = [{"type": "text", "text": prompt}]
        return self._begin("session/prompt", {"sessionId": self.session, "prompt": blocks})

    def _call(self, method: str, params: Any) -> Any:
        return self._wait_for_answer(self._begin(method, params))

    def _begin(self, method: str, params: Any) -> int:
        self._number += 1
        self._send({"id": self._number, "method": method, "params": params})
        return self._number

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self._process.stdin.flush()

    def _wait_for_answer(self, number: int | None) -> Any:
        """Return the answer to the call with this number. With None, answer the next permission
        request and return."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            message = json.loads(line) if line.startswith(b"{") else {}
            if message.get("method") == "session/request_permission":
                self._answer_permission_request(message)
                if number is None:
                    return None
            elif message.get("id") == number is not None:
                return message.get("result") or message
        raise SystemExit("the ACP process ended without an answer")

    def _answer_permission_request(self, message: dict[str, Any]) -> None:
        kind = message["params"]["toolCall"]["kind"]
        option = "proceed_once" if kind == "execute" else "cancel"
        outcome = {"outcome": "selected", "optionId": option}
        self._send({"id": message["id"], "result": {"outcome": outcome}})


def _save(cli: Cli, session: str) -> None:
    for file in (cli.home / ".gemini" / "tmp").glob(f"*/chats/session-*-{session[:8]}.jsonl"):
        if len(file.read_bytes().splitlines()) < 3:
            continue  # a second file of a resumed session, which has only its context
        recording = RECORDINGS / cli.version / "acp" / "chats" / file.name
        recording.parent.mkdir(parents=True, exist_ok=True)
        recording.write_bytes(file.read_bytes().replace(str(cli.root).encode(), b"/recorded"))
        print(recording.relative_to(RECORDINGS), recording.stat().st_size)


if __name__ == "__main__":
    main(sys.argv[1:])
