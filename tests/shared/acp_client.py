"""A minimal ACP client: it drives one `gemini --acp` process and answers and records its
requests."""

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

__all__ = ["AcpClient", "AcpError", "allow_once", "deny"]

_CALL_NUMBER = re.compile(r"__|-\d+-\d+$")

Message = dict[str, Any]
Decide = Callable[[Message], str]


class AcpError(Exception):
    """The CLI answered a request with an error; `error` is its JSON-RPC error object."""

    def __init__(self, error: Message) -> None:
        super().__init__(json.dumps(error))
        self.error = error


def allow_once(_: Message) -> str:
    """Allow each permission request, for one call only."""
    return "proceed_once"


def deny(_: Message) -> str:
    """Deny each permission request."""
    return "cancel"


@dataclass
class AcpClient:
    """Starts a CLI process and sends requests to it: `with AcpClient(argv, env, cwd) as client:`.

    The client reads only while it waits for an answer. Meanwhile it records notifications in
    `updates` and permission requests in `asked`. `decide` answers each permission request with an
    option id.
    """

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: Path
    decide: Decide = deny
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
        self.process.terminate()  # a CLI with an MCP server does not exit when stdin is closed
        for survivor in psutil.wait_procs(tree, timeout=5)[1]:
            survivor.kill()
        self.process.wait()
        self.process.stdout.close()

    def new_session(self, cwd: Path, mode: str = "default") -> str:
        """Open a session in a folder. Return its id. `mode` is an ACP mode id such as
        `autoEdit`."""
        session: str = self.call("session/new", {"cwd": str(cwd), "mcpServers": []})["sessionId"]
        if mode != "default":
            self.call("session/set_mode", {"sessionId": session, "modeId": mode})
        return session

    def prompt(self, session: str, text: str) -> Message:
        """Send a prompt, and return the result at the end of the turn."""
        blocks = [{"type": "text", "text": text}]
        return self.call("session/prompt", {"sessionId": session, "prompt": blocks})

    def call(self, method: str, params: Message) -> Message:
        """Send a request, wait for its answer and return the result. Raise `AcpError` for an error.

        The process is killed if there is no answer after `seconds`."""
        self._last += 1
        self.send({"id": self._last, "method": method, "params": params})
        timer = threading.Timer(self.seconds, self.process.kill)
        timer.start()
        try:
            return self._wait_for_answer(self._last)
        finally:
            timer.cancel()

    def send(self, message: Message) -> None:
        assert self.process.stdin
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self.process.stdin.flush()

    def _wait_for_answer(self, number: int) -> Message:
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
        raise AssertionError(f"the process ended before its answer, or did not answer for {self.seconds} s")

    def _result(self, message: Message) -> Message:
        if "error" in message:
            raise AcpError(message["error"])
        result: Message = message["result"] or {}
        return result

    def tools_asked(self) -> list[str]:
        """Return the names of the tools for which the CLI requested permission.

        The id of a tool call starts with the tool's name (0.41: `<tool>-<ms>-<n>`)."""
        return [_CALL_NUMBER.split(request["toolCall"]["toolCallId"])[0] for request in self.asked]
