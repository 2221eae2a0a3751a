"""Format the first screen of a chat: folder, model, permissions, and how to leave."""

from __future__ import annotations

import os
from collections.abc import Iterator
from textwrap import wrap

from rich.text import Text

from geminids.options import CAPABILITIES, Options
from geminids.views.sanitize import one_line

__all__ = ["first_screen", "permission_summary", "two_columns"]

_MODES = {
    "default": "reads, asks before anything else",
    "auto_edit": "reads and edits files, asks before anything else",
    "yolo": "does everything without asking",
    "plan": "only reads and plans",
}
_LEFT = len("permissions") + 2


def first_screen(options: Options, model: str | None, width: int) -> Iterator[Text]:
    """Yield the lines that a chat shows at its start, wrapped at `width` columns.

    `model` is None if Gemini CLI chooses it.
    """
    if options.offline:
        model = "scripted, offline"
    facts = {
        "folder": _folder(options.cwd),
        "model": model or "chosen by Gemini CLI",
        "permissions": permission_summary(options),
    }
    for label, value in facts.items():
        yield from two_columns(Text(label, "dim"), one_line(value, 1000), left=_LEFT, width=width)
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


def two_columns(label: Text, value: str, *, left: int, width: int) -> Iterator[Text]:
    """Yield a label and a text next to it, which begins after `left` columns and is wrapped."""
    for row in wrap(value, max(width - left, left), break_on_hyphens=False):
        label.pad_right(left - len(label))
        yield Text.assemble(label, row)
        label = Text()


def _folder(path: str) -> str:
    full, home = os.path.realpath(path), os.path.expanduser("~")
    return f"~{full[len(home) :]}" if full == home or full.startswith(f"{home}/") else full
