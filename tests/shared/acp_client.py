"""A bare ACP client: one `gemini --acp` process, spoken to line by line, and whatever it asks is answered and noted."""

from __future__ import annotations

import json
import re
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

__all__ = ["AcpClient", "AcpError", "always", "never"]

_MADE_UP = re.compile(r"__|-\d+-\d+$")

Message = dict[str, Any]
Decide = Callable[[Message], str]


class AcpError(Exception):
    """An error that the CLI answered with; `error` is the JSON-RPC one."""

    def __init__(self, error: Message) -> None:
        super().__init__(json.dumps(error))
        self.error = error


def always(_: Message) -> str:
    """Says yes, once."""
    return "proceed_once"


def never(_: Message) -> str:
    """Says no."""
    return "cancel"


@dataclass
class AcpClient:
    """Speaks to a process that it starts itself: `with AcpClient(argv, env, cwd) as client:`.

    No thread reads: what comes while an answer is awaited is noted in `updates` and `asked`, and each question is
    answered by `decide` with the id of an option.
    """

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: Path
    decide: Decide = never
    seconds: float = 60
    updates: list[Message] = field(default_factory=list)
    asked: list[Message] = field(default_factory=list)
    process: subprocess.Popen[bytes] = field(init=False)
    _last: int = 0

    def __enter__(self) -> AcpClient:
        self.process = subprocess.Popen(
            self.argv,
            cwd=self.cwd,
            env=dict(self.env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self.call("initialize", {"protocolVersion": 1, "clientCapabilities": {}})
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin and self.process.stdout
        process = psutil.Process(self.process.pid)
        tree = [*process.children(recursive=True), process]
        self.process.stdin.close()
        self.process.terminate()  # with an MCP server the end of stdin alone does not end it
        for left in psutil.wait_procs(tree, timeout=5)[1]:
            left.kill()
        self.process.wait()
        self.process.stdout.close()

    def new_session(self, cwd: Path, mode: str = "default") -> str:
        """Open a session in a folder; `mode` is in the words of ACP (`autoEdit`)."""
        session: str = self.call("session/new", {"cwd": str(cwd), "mcpServers": []})["sessionId"]
        if mode != "default":
            self.call("session/set_mode", {"sessionId": session, "modeId": mode})
        return session

    def prompt(self, session: str, text: str) -> Message:
        """One turn, to its end."""
        blocks = [{"type": "text", "text": text}]
        return self.call("session/prompt", {"sessionId": session, "prompt": blocks})

    def call(self, method: str, params: Message) -> Message:
        """Send a request and await its answer; raises `AcpError`. A process that says nothing for long is killed."""
        self._last += 1
        self.send({"id": self._last, "method": method, "params": params})
        timer = threading.Timer(self.seconds, self.process.kill)
        timer.start()
        try:
            return self._answer(self._last)
        finally:
            timer.cancel()

    def send(self, message: Message) -> None:
        assert self.process.stdin
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self.process.stdin.flush()

    def _answer(self, number: int) -> Message:
        assert self.process.stdout
        for line in self.process.stdout:
            message = json.loads(line)
            if "method" not in message:
                if message["id"] == number:
                    return self._result(message)
            elif "id" in message:
                self.asked.append(message["params"])
                chosen = {"outcome": "selected", "optionId": self.decide(message["params"])}
                self.send({"id": message["id"], "result": {"outcome": chosen}})
            else:
                self.updates.append(message["params"])
        raise AssertionError(f"the process ended, or was silent for {self.seconds} s, before its answer")

    def _result(self, message: Message) -> Message:
        if "error" in message:
            raise AcpError(message["error"])
        result: Message = message["result"] or {}
        return result

    def tools_asked(self) -> list[str]:
        """The tools that were asked for, by name: the id of a call begins with it (0.41: `<tool>-<ms>-<n>`)."""
        return [_MADE_UP.split(asked["toolCall"]["toolCallId"])[0] for asked in self.asked]
