"""A scripted model that answers immediately. It runs in its own process and uses no CPU time of the host.

python -m benchmarks.warm_model   prints the CLI's environment, and serves until its stdin is closed
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from geminids.gateway import Call, Gateway, Reply, Request

__all__ = ["ANSWER", "RAN", "SHELL_PROMPT", "model"]

SHELL_PROMPT = "Run a command."
RAN = "ran"
"""The file that the command creates."""
_PIECES = ["Hello! ", "This is ", "an answer ", "in a few ", "pieces."]
ANSWER = "".join(_PIECES)


@contextmanager
def model() -> Iterator[dict[str, str]]:
    """Start the model, and yield the environment of a CLI that uses it."""
    argv = [sys.executable, "-m", "benchmarks.warm_model"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as served:
        assert served.stdin and served.stdout
        env: dict[str, str] = json.loads(served.stdout.readline())
        yield env
        served.stdin.close()


_HELLO = Reply(thought="**Greeting** I answer kindly.", text=_PIECES, times=None)
_COMMAND = Reply(calls=[Call("run_shell_command", {"command": f"touch {RAN}"})])


def _answer(request: Request) -> Reply | None:
    if request.method != "stream":
        return None
    wants_command = any(SHELL_PROMPT in part.get("text", "") for part in request.contents[-1]["parts"])
    return _COMMAND if wants_command else _HELLO


if __name__ == "__main__":
    with Gateway(_answer, keep=1) as gateway:
        print(json.dumps(gateway.env), flush=True)
        sys.stdin.read()
