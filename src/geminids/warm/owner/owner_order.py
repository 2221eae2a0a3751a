"""Encode a run for the pool's owner, with the client's folder, variables and umask."""

from __future__ import annotations

import os

import msgspec

from geminids.launch.prepare import why_not_warm
from geminids.options import Options
from geminids.warm.owner.owner_wire import Order
from geminids.warm.prompt import is_command

__all__ = ["make_order", "rooted", "too_cold_for_owner"]

_PATHS = (
    "cwd",
    "instructions",
    "images",
    "videos",
    "files",
    "system_prompt",
    "include_dirs",
    "skills",
    "env_file",
    "prices",
    "record",
    "replay",
    "telemetry",
)
_FILE = "file:"


def too_cold_for_owner(prompt: str, options: Options) -> str | None:
    """Why the owner cannot serve such a run; None if it can."""
    if os.name == "nt":
        return "this system has no Unix sockets"
    if options.leftovers == "keep":
        return "what it leaves running would end with the pool's owner"
    if is_command(prompt) and not options.literal:
        return "the warm transport does not run CLI commands"
    return why_not_warm(options)


def make_order(prompt: str, options: Options, keep: float, asks: bool) -> Order:
    """The order for this run, with this process's folder, variables and umask."""
    return Order(
        prompt=prompt,
        options=rooted(options, os.getcwd()),
        environ=dict(os.environ),
        umask=_umask(),
        asks=asks,
        keep=keep,
    )


def rooted(options: Options, folder: str) -> Options:
    """The options with every path whole: the owner works in another folder.

    >>> made = rooted(Options(cwd="x", files=("a.txt",), gemini="0.61.0", home="user"), "/w")
    >>> made.cwd, made.files, made.gemini, made.home
    ('/w/x', ('/w/a.txt',), '0.61.0', 'user')
    """
    changed: dict[str, object] = {}
    for name in _PATHS:
        value = getattr(options, name)
        if isinstance(value, tuple):
            changed[name] = tuple(os.path.join(folder, one) for one in value)
        elif value is not None:
            changed[name] = os.path.normpath(os.path.join(folder, value))
    if options.gemini is not None and os.sep in options.gemini:
        changed["gemini"] = os.path.join(folder, options.gemini)
    if options.key_from is not None and options.key_from.startswith(_FILE):
        changed["key_from"] = _FILE + os.path.join(folder, options.key_from.removeprefix(_FILE))
    if options.home not in ("user", "isolated"):
        changed["home"] = os.path.join(folder, options.home)
    return msgspec.structs.replace(options, **changed)


def _umask() -> int:
    now = os.umask(0o077)
    os.umask(now)
    return now
