"""A referee that is not ours: `claude-code-log` renders exported sessions to HTML, with every message in it.

python tests/referees/code_log.py PATH/TO/claude-code-log

Exits with 1 and a message at the first session that is not rendered whole.
"""

from __future__ import annotations

import html
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import geminids
from geminids.dialects.claude.stored import transcript

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
        page = _rendered(renderer, file)
        missing = [text for text in said if not _is_in(text, page)]
        if missing:
            print(f"{file.name}: not in the page: {missing[0][:200]!r}", file=sys.stderr)
            return 1
        read += 1
    print(f"claude-code-log rendered {read} sessions whole")
    return 0 if read else 1


def _rendered(renderer: str, file: Path) -> str:
    with tempfile.TemporaryDirectory() as folder:
        exported = Path(folder) / "5f0c0f5e-0000-4000-8000-000000000001.jsonl"
        session = geminids.sessions.load(file)
        exported.write_bytes(b"".join(transcript(session, cwd="/made/up")))
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
