"""Referee: `claude-code-log` renders exported sessions to HTML, and every message must be in the
page.

python tests/referees/code_log.py PATH/TO/claude-code-log

The program exits with 1 and a message at the first session that is not rendered completely.
"""

from __future__ import annotations

import html
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import geminids
from geminids.dialects.claude.session_file import transcript

RECORDINGS = Path(__file__).parents[1] / "recordings"


def main(renderer: str) -> int:
    files = sorted(RECORDINGS.glob("0.61.0/session-*.jsonl")) + sorted(
        RECORDINGS.glob("0.41.2/session-*.jsonl")
    )
    rendered = 0
    for file in files:
        messages = geminids.sessions.load(file).messages
        texts = [
            message.text.strip() for message in messages if message.is_prompt or message.type == "gemini"
        ]
        texts = [text for text in texts if text]
        if not texts:
            continue
        lines = b"".join(transcript(geminids.sessions.load(file), cwd="/made/up"))
        page = _render(renderer, lines)
        missing = [text for text in (*texts, *_tool_texts(lines)) if not _is_in(text, page)]
        if missing:
            print(f"{file.name}: this text is missing in the page: {missing[0][:200]!r}", file=sys.stderr)
            return 1
        rendered += 1
    print(f"claude-code-log rendered {rendered} sessions completely")
    return 0 if rendered else 1


def _tool_texts(lines: bytes) -> Iterator[str]:
    """Yield thoughts, tool inputs and tool results.
    The renderer leaves out the result of a Write, so this function does, too."""
    write_calls = set()
    messages = [json.loads(line).get("message", {}).get("content", "") for line in lines.splitlines()]
    for block in (block for content in messages if isinstance(content, list) for block in content):
        match block:
            case {"type": "thinking", "thinking": text}:
                yield text
            case {"type": "tool_use", "id": call_id, "name": name, "input": tool_input}:
                write_calls |= {call_id} if name == "Write" else set()
                yield from (value for value in tool_input.values() if isinstance(value, str))
            case {"type": "tool_result", "tool_use_id": call_id, "content": str(text)} if (
                call_id not in write_calls
            ):
                yield text


def _render(renderer: str, lines: bytes) -> str:
    with tempfile.TemporaryDirectory() as folder:
        exported = Path(folder) / "5f0c0f5e-0000-4000-8000-000000000001.jsonl"
        exported.write_bytes(lines)
        page = Path(folder) / "page.html"
        subprocess.run(
            [renderer, str(exported), "-o", str(page)], check=True, capture_output=True, env={"HOME": folder}
        )
        return page.read_text()


def _is_in(text: str, page: str) -> bool:
    """Return whether the page contains the words of the text in order.
    The renderer formats the text as Markdown, so only words are compared."""
    plain = " ".join(re.findall(r"\w+", html.unescape(re.sub(r"<[^>]*>", " ", page))))
    return " ".join(re.findall(r"\w+", text)) in plain


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
