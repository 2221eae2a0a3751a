"""Our own ledger of what the CLI asked for itself in runs of ours, such as the router's: no session file holds it."""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime
from typing import Annotated

import msgspec

from geminids.config.places import Places, private_dir

__all__ = ["Errand", "months", "read_month", "time_of", "write_down"]

_NAME = re.compile(r"\d{4}-\d{2}\.jsonl")
# So many months are kept. By their number, not by the clock: one that is wrong must not empty the folder.
_KEPT = 13
# What is below nothing was not written by us, and would take away from what others have spent.
_Count = Annotated[int, msgspec.Meta(ge=0)]


class Errand(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One request: when it ended (Unix milliseconds), in which run, session and folder, and its tokens.

    `free`: no real model was asked, so that what the session file says of it was never spent. `agent`: a subagent's,
    which old releases write down nowhere.
    """

    at: int
    run: str
    number: int
    session: str | None = None
    project: str | None = None
    model: str | None = None
    input: _Count = 0
    cached: _Count = 0
    output: _Count = 0
    thinking: _Count = 0
    tool: _Count = 0
    free: bool = False
    agent: bool = False


_line: msgspec.json.Decoder[Errand] = msgspec.json.Decoder(Errand)


def write_down(errand: Errand, places: Places) -> None:
    """Add it to its month's file; raises `OSError` where that cannot be written."""
    folder = private_dir(places.errands)
    name = f"{time_of(errand):%Y-%m}.jsonl"
    file, is_new = folder / name, not (folder / name).exists()
    flags = (
        os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
    )
    fd = os.open(file, flags | getattr(os, "O_NONBLOCK", 0), 0o600)
    try:
        # In one piece, for others write too; and begun anew, for the last of them may have been cut.
        os.write(fd, b"\n" + msgspec.json.encode(errand) + b"\n")
    finally:
        os.close(fd)
    if is_new:
        for old in months(places)[:-_KEPT]:
            (folder / old).unlink(missing_ok=True)


def months(places: Places) -> list[str]:
    """The names of the files, oldest first: 2026-11.jsonl."""
    try:
        return sorted(filter(_NAME.fullmatch, os.listdir(places.errands)))
    except OSError:
        return []


def read_month(data: bytes) -> tuple[list[Errand], int]:
    """What a file tells, and how many of its lines cannot be read."""
    found: dict[bytes, Errand] = {}
    lines = data.split(b"\n")
    broken = 0
    for at, line in enumerate(lines):
        try:
            if line and line not in found:
                found[line] = _line.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            # The last one may be written just now.
            broken += at < len(lines) - 1
    return list(found.values()), broken


def time_of(errand: Errand) -> datetime:
    """When it was, in UTC."""
    try:
        return datetime.fromtimestamp(errand.at / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return datetime.fromtimestamp(0, UTC)
