"""Build the message that sends a run to the owner daemon.

The message contains the working folder, the environment variables and the umask of this process.
"""

from __future__ import annotations

import os

import msgspec

from geminids.launch.prepare import why_not_warm
from geminids.options import Options
from geminids.warm.acp.prompt import is_command
from geminids.warm.owner.protocol import Order

__all__ = ["make_order", "rooted", "why_not_served"]

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
    "script",
    "telemetry",
)
_FILE = "file:"


def why_not_served(prompt: str, options: Options) -> str | None:
    """Return why the owner daemon cannot serve a run of this prompt, or None if it can."""
    if os.name == "nt":
        return "this system has no Unix sockets"
    if options.leftovers == "keep":
        return "processes that the run leaves running would end with the background process for warm runs"
    if is_command(prompt) and not options.literal:
        return "a warm process cannot run a slash command of the CLI"
    return why_not_warm(options)


def make_order(prompt: str, options: Options, keep: float, asks: bool) -> Order:
    """Build the message that asks the owner daemon for a run.

    `keep` is the number of seconds that the daemon waits for another run after the end of this one.
    Then the daemon ends. `asks` is True if this process answers permission requests.
    """
    return Order(
        prompt=prompt,
        options=rooted(options, os.getcwd()),
        environ=dict(os.environ),
        umask=_umask(),
        asks=asks,
        keep=keep,
    )


def rooted(options: Options, folder: str) -> Options:
    """Return the options with absolute paths.

    The owner daemon works in another folder, so relative paths are joined to `folder`. Values that
    are not paths, such as the version of the CLI, do not change.

    >>> absolute = rooted(Options(cwd="x", files=("a.txt",), gemini="0.61.0", home="user"), "/w")
    >>> absolute.cwd, absolute.files, absolute.gemini, absolute.home
    ('/w/x', ('/w/a.txt',), '0.61.0', 'user')
    """
    changed: dict[str, object] = {}
    for name in _PATHS:
        value = getattr(options, name)
        if isinstance(value, tuple):
            changed[name] = tuple(os.path.join(folder, path) for path in value)
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
