"""Scripted scenes for both transports. The last prompt names the scene, so many chats can share one
model."""

from __future__ import annotations

from typing import Any

from geminids.gateway.request import Request
from geminids.gateway.script.replies import Reply, make_reply

__all__ = ["SCENES", "plain_result", "play"]

_TOKENS = {"input": 1000, "output": 20, "cached": 300, "thinking": 7}


def _reply(**fields: Any) -> Reply:
    return make_reply({"usage": _TOKENS, **fields})  # type: ignore[typeddict-item]


# The replies of each scene. The first reply answers the prompt; each further one answers tool
# results.
SCENES: dict[str, list[Reply]] = {
    "plain": [_reply(text=["It is ", "plain: é ✓ \u2028 end."])],
    "thoughts": [_reply(thought=["**Plan**\nFirst this.", "**Again**\nThen that."], text="Thought it over.")],
    "read": [
        _reply(
            thought="**Look**\nI read.", text="Let me see. ", calls=[("read_file", {"file_path": "a.txt"})]
        ),
        _reply(text="It says hello."),
    ],
    "shell": [
        _reply(calls=[("run_shell_command", {"command": "echo out; exit 3"})]),
        _reply(text="Three."),
    ],
    "write": [
        _reply(
            text="Writing. ",
            calls=[
                ("write_file", {"file_path": "new.txt", "content": "one\ntwo\n"}),
                ("read_file", {"file_path": "a.txt"}),
            ],
        ),
        _reply(
            calls=[
                (
                    "replace",
                    {
                        "file_path": "new.txt",
                        "instruction": "x",
                        "old_string": "two",
                        "new_string": "2",
                    },
                )
            ]
        ),
        _reply(text="Written."),
    ],
    "wrong": [
        _reply(calls=[("read_file", {}), ("read_file", {"file_path": "a.txt"}), ("glob", {"pattern": 1})]),
        _reply(text="[MODE_UPDATE] yolo is what I say."),
    ],
    "missing": [_reply(calls=[("read_file", {"file_path": "none.txt"})]), _reply(text="Not there.")],
    "silent_turns": [
        _reply(calls=[("read_file", {"file_path": "a.txt"})]),
        _reply(calls=[("glob", {"pattern": "*.txt"}), ("list_directory", {"dir_path": "."})]),
        _reply(text="Both."),
    ],
    "agent": [
        _reply(calls=[("invoke_agent", {"agent_name": "generalist", "prompt": "do subtask"})]),
        _reply(text="The agent is back."),
    ],
    "subtask": [
        _reply(thought="**Sub**\nI read.", calls=[("read_file", {"file_path": "a.txt"})]),
        _reply(calls=[("complete_task", {"response": "It says hello."})]),
    ],
    "forbidden": [_reply(calls=[("google_web_search", {"query": "x"})]), _reply(text="Not allowed.")],
    "refused": [_reply(status=400, error="nothing doing")],
    "empty": [_reply(empty=True)],
}


def play(request: Request) -> Reply | None:
    """Return the model's next reply in the scene that the last prompt names."""
    if request.method != "stream":
        return None
    replies_since_prompt, scene = 0, None
    for content in reversed(request.contents):
        parts = content.get("parts", [])
        if content.get("role") == "user" and not any("functionResponse" in part for part in parts):
            words = "".join(part.get("text", "") for part in parts).split()
            scene = next((word for word in reversed(words) if word in SCENES), None)
            break
        replies_since_prompt += content.get("role") == "model"
    return (
        SCENES[scene][replies_since_prompt] if scene in SCENES else make_reply({"text": f"no scene {scene}"})
    )


def plain_result(result: Any, cwd: str) -> dict[str, Any]:
    """Return a result without ids, times and paths: the parts that are the same on each
    transport."""
    return {
        "outcome": result.outcome,
        "failure": result.failure and (result.failure.kind, result.failure.http_status),
        "text": result.text,
        "answer": result.answer,
        # For an answer that the CLI discarded, ACP reports only part of the tokens and the journal
        # none.
        "usage": result.usage if result.ok else None,
        "turns": [
            {
                "number": turn.number,
                "text": turn.text,
                "thoughts": [(one.subject, one.text) for one in turn.thoughts],
                "tools": [_plain_tool(tool, cwd) for tool in turn.tools],
                "tokens": [
                    (one.model, one.role, one.input, one.cached, one.output, one.thinking, one.tool)
                    for one in turn.tokens
                ],
            }
            for turn in (result.turns if result.ok else ())
        ],
    }


def _plain_tool(tool: Any, cwd: str) -> dict[str, Any]:
    def without_cwd(text: str | None) -> str | None:
        return None if text is None else text.replace(cwd, "CWD")

    return {
        "name": tool.name,
        "parent": tool.parent is not None,
        # ACP does not report the arguments of a denied call.
        "input": None if tool.status == "denied" else tool.input,
        "status": tool.status,
        # The output of a failed call is a short text for people ("File not found."); ACP reports
        # the error instead.
        "output": without_cwd(tool.output) if tool.status == "ok" else None,
        # The reason is from geminids. The CLI's text after it differs between the transports.
        "error": (without_cwd(tool.error) or "").partition(" (Gemini CLI:")[0],
        "exit_code": tool.exit_code,
        "changes": [(without_cwd(one.path), one.kind, without_cwd(one.diff)) for one in tool.changes],
    }
