"""Format the first screen of a chat: folder, model, permissions, and how to leave."""

from __future__ import annotations

import os
from collections.abc import Iterator
from textwrap import wrap

from rich.text import Text

from geminids.options import CAPABILITIES, Options
from geminids.views.sanitize import one_line

__all__ = ["first_screen", "permission_summary"]

_MODES = {
    "default": "reads, asks before anything else",
    "auto_edit": "reads and edits files, asks before anything else",
    "yolo": "does everything without asking",
    "plan": "only reads and plans",
}
_WIDTH = len("permissions") + 2


def first_screen(options: Options, model: str | None, width: int) -> Iterator[Text]:
    """Yield the lines that a chat shows at its start, wrapped at `width` columns.

    `model` is None if Gemini CLI chooses it.
    """
    if options.offline:
        model = "scripted, offline"
    yield from _lines("folder", _folder(options.cwd), width)
    yield from _lines("model", model or "chosen by Gemini CLI", width)
    yield from _lines("permissions", permission_summary(options), width)
    yield Text("/help lists the commands · Ctrl-D leaves", "dim")


def permission_summary(options: Options) -> str:
    """Describe the approval mode and the rules of a run in one line.

    >>> from geminids import Permissions
    >>> permission_summary(Options(approval="yolo", permissions=Permissions(shell="deny")))
    'yolo: does everything without asking; denied: shell'
    """
    rules, by_power = options.permissions, {"allow": "allowed", "ask": "asks for", "deny": "denied"}
    parts = [f"{options.approval}: {_MODES[options.approval]}"]
    for power, word in by_power.items():
        names = [name for name in CAPABILITIES if getattr(rules, name) == power]
        if power != "ask":
            for kind in ("tools", "commands", "servers"):
                names += getattr(rules, f"{power}_{kind}")
        if names:
            parts.append(f"{word}: {', '.join(names)}")
    if rules.only_tools:
        parts.append(f"only these tools: {', '.join(rules.only_tools)}")
    return "; ".join(parts)


def _lines(label: str, value: str, width: int) -> Iterator[Text]:
    rows = wrap(one_line(value, 1000), max(width - _WIDTH, _WIDTH), break_on_hyphens=False)
    for number, row in enumerate(rows):
        yield Text.assemble((("" if number else label).ljust(_WIDTH), "dim"), row)


def _folder(path: str) -> str:
    full, home = os.path.realpath(path), os.path.expanduser("~")
    return f"~{full[len(home) :]}" if full == home or full.startswith(f"{home}/") else full
