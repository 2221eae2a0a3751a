"""Write docs/images/run.svg: a real offline run of Gemini CLI in a terminal, drawn by rich.

    python docs/picture.py docs/images/run.svg

tmux is the terminal, because it can report the screen with its colours.
"""

from __future__ import annotations

import io
import os
import shlex
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

WIDTH, HEIGHT = 92, 40
COMMAND = 'geminids run --offline "What is in this folder?"'
FILES = {
    "README.md": "# Meteors\n\nThey fall in December.\n",
    "observe.py": "def count(night):\n    return len(night)\n",
    "nights/2026-12-13.csv": "22:14,-2\n22:40,1\n",
}
_THEME = TerminalTheme(
    (22, 24, 29),
    (215, 218, 224),
    [
        *[(60, 64, 72), (240, 113, 120), (152, 195, 121), (229, 192, 123)],
        *[(97, 175, 239), (198, 120, 221), (86, 182, 194), (215, 218, 224)],
    ],
)
# The format of rich without its fonts from a server, and with the fonts that a system has.
_FORMAT = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  font-size: {char_height}px; line-height: {line_height}px; font-variant-east-asian: full-width; }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def screen_after_run() -> str:
    """Run the command in a terminal and return its last screen, with the codes of its colours."""
    tmux = ["tmux", "-L", f"geminids-{uuid.uuid4().hex[:8]}", "-f", os.devnull]
    programs = Path(sys.executable).parent
    with tempfile.TemporaryDirectory() as home, tempfile.TemporaryDirectory() as outer:
        folder = Path(outer, "meteors")
        for name, text in FILES.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        geminids_home = os.environ.get("GEMINIDS_HOME", str(programs.parents[1] / ".geminids"))
        env = {
            "HOME": home,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "GEMINIDS_HOME": geminids_home,
            "GEMINIDS_CONFIG": os.devnull,
            "COLORTERM": "truecolor",
            "LANG": "C.UTF-8",
        }
        shown = f"printf '\\033[2m$\\033[0m %s\\n\\n' {shlex.quote(COMMAND)}"
        shell = f"{shown}; {COMMAND}; {shlex.join(tmux)} wait-for -S done; cat"
        size = ["-x", str(WIDTH), "-y", str(HEIGHT)]
        start = ["new-session", "-d", *size, "-c", str(folder), "sh", "-c", shell]
        try:
            subprocess.run([*tmux, *start], env=env, check=True, timeout=30)
            subprocess.run([*tmux, "wait-for", "done"], env=env, check=True, timeout=120)
            capture = subprocess.run(
                [*tmux, "capture-pane", "-e", "-p"], env=env, check=True, stdout=subprocess.PIPE
            )
        finally:
            subprocess.run([*tmux, "kill-server"], env=env, check=False)
    return capture.stdout.decode().rstrip()


def main(file: str) -> None:
    text = Text.from_ansi(screen_after_run())
    console = Console(width=WIDTH, record=True, file=io.StringIO(), color_system="truecolor")
    console.print(text)
    svg = console.export_svg(title="geminids", theme=_THEME, code_format=_FORMAT, unique_id="run")
    Path(file).write_text(svg)


if __name__ == "__main__":
    main(sys.argv[1])
