"""A referee that is not ours: `claude-code-log` renders exported sessions to HTML, with every message in it.

python tests/referees/code_log.py PATH/TO/claude-code-log

Exits with 1 and a message at the first session that is not rendered whole.
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
    read = 0
    for file in files:
        messages = geminids.sessions.load(file).messages
        said = [one.text.strip() for one in messages if one.is_prompt or one.type == "gemini"]
        said = [text for text in said if text]
        if not said:
            continue
        lines = b"".join(transcript(geminids.sessions.load(file), cwd="/made/up"))
        page = _rendered(renderer, lines)
        missing = [text for text in (*said, *_done(lines)) if not _is_in(text, page)]
        if missing:
            print(f"{file.name}: not in the page: {missing[0][:200]!r}", file=sys.stderr)
            return 1
        read += 1
    print(f"claude-code-log rendered {read} sessions whole")
    return 0 if read else 1


def _done(lines: bytes) -> Iterator[str]:
    """What was thought, asked of tools and told by them. What came of a Write the renderer leaves out."""
    written = set()
    messages = [json.loads(line).get("message", {}).get("content", "") for line in lines.splitlines()]
    for block in (block for content in messages if isinstance(content, list) for block in content):
        match block:
            case {"type": "thinking", "thinking": text}:
                yield text
            case {"type": "tool_use", "id": own, "name": name, "input": given}:
                written |= {own} if name == "Write" else set()
                yield from (value for value in given.values() if isinstance(value, str))
            case {"type": "tool_result", "tool_use_id": own, "content": str(text)} if own not in written:
                yield text


def _rendered(renderer: str, lines: bytes) -> str:
    with tempfile.TemporaryDirectory() as folder:
        exported = Path(folder) / "5f0c0f5e-0000-4000-8000-000000000001.jsonl"
        exported.write_bytes(lines)
        page = Path(folder) / "page.html"
        subprocess.run(
            [renderer, str(exported), "-o", str(page)], check=True, capture_output=True, env={"HOME": folder}
        )
        return page.read_text()


def _is_in(text: str, page: str) -> bool:
    """By its words: the renderer makes Markdown of it."""
    plain = " ".join(re.findall(r"\w+", html.unescape(re.sub(r"<[^>]*>", " ", page))))
    return " ".join(re.findall(r"\w+", text)) in plain


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
