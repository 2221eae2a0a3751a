"""Record the events of real runs in tests/recordings/events, for the golden files of the dialects.

    python tests/recorders/record_events.py

Ids, times, paths and pids are replaced by fixed values. All the rest is the output of the real CLI
0.61.0.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from pathlib import Path
from typing import Any

import geminids
from geminids import Options, Permissions
from geminids.config.paths import Places
from geminids.gateway import Gateway
from geminids.gateway.script.replies import Reply, make_reply

VERSION = "0.61.0"
RECORDINGS = Path(__file__).parents[1] / "recordings" / "events"
_TOKENS = {"input": 1000, "output": 20, "cached": 300, "thinking": 7}
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def _reply(**fields: Any) -> Reply:
    return make_reply({"usage": _TOKENS, **fields})  # type: ignore[typeddict-item]


READ = ("read_file", {"file_path": "a.txt"})
WRITE = ("write_file", {"file_path": "new.txt", "content": "one\ntwo\n"})
EDIT = (
    "replace",
    {"file_path": "new.txt", "instruction": "x", "old_string": "two", "new_string": "2"},
)
SHELL = ("run_shell_command", {"command": "echo out; exit 3", "description": "Fails."})
AGENT = ("invoke_agent", {"agent_name": "generalist", "prompt": "Do the subtask."})

# Name of the scene: the scripted replies, and the options of the run.
SCENES: dict[str, tuple[list[Reply], dict[str, Any]]] = {
    "plain": ([_reply(text=["It is ", "plain: é ✓ 🙂."])], {}),
    "thoughts": (
        [_reply(thought=["**Plan**\nFirst this.", "**Again**\nThen that."], text="Thought it over.")],
        {},
    ),
    "tools": (
        [
            _reply(thought="**Look**\nI read.", text="Let me see. ", calls=[READ, WRITE]),
            _reply(calls=[EDIT, SHELL]),
            _reply(
                text="All ", calls=[("glob", {"pattern": "*.txt"}), ("list_directory", {"dir_path": "."})]
            ),
            _reply(text="done."),
        ],
        {"approval": "yolo"},
    ),
    "denied": (
        [_reply(calls=[SHELL]), _reply(text="Not allowed.")],
        {"permissions": Permissions(shell="deny")},
    ),
    "failed_tool": (
        [_reply(calls=[("read_file", {"file_path": "none.txt"})]), _reply(text="Not there.")],
        {},
    ),
    "unknown_tool": ([_reply(calls=[("nonesuch", {"q": 1})]), _reply(text="No such tool.")], {}),
    "subagent": ([_reply(calls=[AGENT]), _reply(text="The agent is back.")], {"approval": "yolo"}),
    "max_turns": ([_reply(calls=[READ]), _reply(calls=[READ])], {"max_turns": 1}),
    "api_error": ([_reply(text="First. ", calls=[READ]), _reply(status=400, error="nothing doing")], {}),
    "bad_key": ([_reply(status=403, error="Permission denied on project x.")], {}),
    "empty": ([_reply(empty=True)], {"max_attempts": 1}),
    "loop": ([make_reply({"calls": [READ], "usage": _TOKENS, "times": None})], {}),
    "timed_out": ([_reply(text=["half ", "of it"], stall=True)], {"timeout": 3.0}),
    "interrupted": ([_reply(text=["half ", "of it"], stall=True)], {}),
    "no_result": ([_reply(text=["half ", "of it"], stall=True)], {}),
    "secret": (
        [_reply(text="the key is correct-horse-battery, sir")],
        {"env": {"MY_TOKEN": "correct-horse-battery"}},
    ),
}


def main() -> None:
    RECORDINGS.mkdir(parents=True, exist_ok=True)
    for name, (replies, fields) in SCENES.items():
        _record(name, replies, fields)
    _record_resumed()
    _record_permission_requests()


class _Stage:
    """Temporary folders and a scripted model for the runs of one scene."""

    def __init__(self, replies: list[Reply]) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="geminids-record-")
        self.root = Path(self._folder.name).resolve()
        for name in ("repo", "home", "tmp"):
            (self.root / name).mkdir()
        (self.root / "repo" / "a.txt").write_text("hello\n")
        self.gateway = Gateway(replies).start()
        self.gateway.when("subtask", thought="**Sub**\nI read.", calls=[READ], usage=_TOKENS)
        self.gateway.when(
            "subtask",
            calls=[
                ("complete_task", {"result": {"response": "It says hello."}, "response": "It says hello."})
            ],
            usage=_TOKENS,
        )

    def options(self, **fields: Any) -> Options:
        own = {"HOME": str(self.root / "home"), "TMPDIR": str(self.root / "tmp")}
        env = {**self.gateway.env, **own, **fields.pop("env", {})}
        return Options(cwd=str(self.root / "repo"), gemini=VERSION, model="flash", env=env, **fields)

    def __enter__(self) -> _Stage:
        return self

    def __exit__(self, *_: object) -> None:
        self.gateway.close()
        self._folder.cleanup()


def _record(name: str, replies: list[Reply], fields: dict[str, Any]) -> None:
    with _Stage(replies) as stage:
        events = []
        stream = geminids.open_run(f"Do the {name}.", stage.options(**fields))
        from geminids.client import _stream

        for event in _stream(stream):
            events.append(event)
            if isinstance(event, geminids.Text) and name == "interrupted":
                stream.stop("enough")
            if isinstance(event, geminids.Text) and name == "no_result" and stream.pid is not None:
                os.kill(stream.pid, 9)
        _save(name, events, stage.root)


def _record_resumed() -> None:
    with _Stage([_reply(text="First."), _reply(text="Second.")]) as stage:
        first = geminids.ask_sync("Do the first.", stage.options())
        events = list(geminids.stream_sync("And now?", stage.options(resume=first.session_id)))
        _save("resumed", events, stage.root)


def _record_permission_requests() -> None:
    """Record a run on the warm transport with one allowed and one denied call."""
    with _Stage([_reply(calls=[WRITE]), _reply(calls=[SHELL]), _reply(text="One of two.")]) as stage:
        events = list(
            geminids.stream_sync(
                "Do both.",
                stage.options(),
                on_permission=lambda ask: "deny" if ask.command else "allow",
            )
        )
        _save("asked", events, stage.root)


def _save(name: str, events: list[Any], root: Path) -> None:
    """Write the events of a scene to a file, with fixed ids, times, paths and pids."""
    first_time = events[0].at
    text = "\n".join(geminids.encode_event(event).decode() for event in events)
    text = text.replace(str(root), "/made/up").replace(str(Places.of().root), "/made/up/geminids")
    fixed_ids: dict[str, str] = {}

    def fixed_id(match: re.Match[str]) -> str:
        number = len(fixed_ids) + 1
        return fixed_ids.setdefault(match[0], f"5f0c0f5e-0000-4000-8000-{number:012}")

    text = _UUID.sub(fixed_id, text)
    text = re.sub(r"run-[0-9a-f]{16}", "run-0123456789abcdef", text)
    text = _fix_call_ids(text)
    text = re.sub(r"(Process Group PGID: )\d+", r"\g<1>4242", text)
    lines = []
    for line in text.splitlines():
        event = json.loads(line)
        event["at"] = 1_794_800_000_000 + max(0, event["at"] - first_time)
        if "pid" in event:
            event["pid"] = 4242
        lines.append(json.dumps(event, ensure_ascii=False, separators=(",", ":")))
    (RECORDINGS / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    last = json.loads(lines[-1])
    print(f"{name}: {len(lines)} events, {last['outcome']}, {last['failure'] and last['failure']['kind']}")


def _fix_call_ids(text: str) -> str:
    """Replace the time in call ids by a fixed time. Two calls of the same tool keep different
    ids."""
    fixed_ids: dict[str, str] = {}

    def fixed_id(match: re.Match[str]) -> str:
        if match[0] not in fixed_ids:
            candidates = (
                f"{match[1]}{1_794_800_000_000 + later}{match[2]}" for later in range(len(fixed_ids) + 1)
            )
            fixed_ids[match[0]] = next(
                candidate for candidate in candidates if candidate not in fixed_ids.values()
            )
        return fixed_ids[match[0]]

    return re.sub(r"(\b\w+_)17\d{11}(_\d+)", fixed_id, text)


if __name__ == "__main__":
    main()
