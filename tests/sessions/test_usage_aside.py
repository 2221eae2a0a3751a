"""Work that a fork does: in processes of their own, since one with threads is not forked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

_BEGIN = "import os, sys, threading\nfrom geminids.sessions.usage_aside import aside\nhere = os.getpid()\n"


def run(code: str) -> str:
    ran = subprocess.run([sys.executable, "-c", _BEGIN + code], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


def test_in_another_process() -> None:
    """The work is done by another process, and its result comes back whole, whatever its size."""
    code = "pid, text = aside(lambda: [str(os.getpid()), 'x' * 1_000_000], list[str])()\n"
    assert run(code + "print(int(pid) != here, len(text))") == "True 1000000"


@pytest.mark.parametrize(
    "how", ["os._exit(3)", "os.kill(os.getpid(), 9)", "raise ValueError", "return '\\udcff'"]
)
def test_fork_fails(how: str) -> None:
    """Where the fork breaks, or what it has cannot be told, the work is done here: nothing is lost."""
    code = f"def work():\n    if os.getpid() != here:\n        {how}\n    return 'done'\n"
    assert run(code + "print(aside(work, str)())") == "done"


def test_with_threads() -> None:
    """A process with threads is not forked."""
    code = "wait = threading.Event()\nthreading.Thread(target=wait.wait).start()\n"
    assert run(code + "print(aside(os.getpid, int)() == here)\nwait.set()") == "True"


def test_many_files(tmp_path: Path) -> None:
    """Two processes find what one finds, also where the name of a folder is no UTF-8."""
    for number in range(60):
        chats = Path(os.fsdecode(os.fsencode(tmp_path) + b"/.gemini/tmp/app-\xff")) / "chats"
        chats.mkdir(parents=True, exist_ok=True)
        spent = {"input": number + 1, "output": 2, "cached": 0, "thoughts": 0, "tool": 0, "total": number + 3}
        message = {"id": f"m{number}", "type": "gemini", "timestamp": "", "tokens": spent, "model": "m"}
        text = f'{{"sessionId":"s{number}"}}\n{json.dumps(message)}\n'
        (chats / f"session-2026-11-16T10-00-{number:08}.jsonl").write_text(text)
    code = (
        "from geminids.sessions.usage import stored_usage\n"
        f"one, two = (stored_usage(home={str(tmp_path)!r}, may_fork=fork) for fork in (False, True))\n"
        "print(one == two, sum(len(found.requests) for found in two))"
    )
    assert run(code) == "True 60"
