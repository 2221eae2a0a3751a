"""The scene that `--offline` plays: the real CLI, real tools, and a scripted model that says what they gave.

It keeps no state: what to do next is read from the conversation in each request, so that one scene serves
many sessions, resumed ones too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from geminids.gateway.request import Request
from geminids.gateway.script.script import Call, Reply, Usage

__all__ = ["SCRIPTED_NOTE", "Listing", "informative_file", "offline_scene", "read_listing"]

SCRIPTED_NOTE = "(This answer was made by a script, not by a model.)"

_TRUNCATED = "--- FILE CONTENT (truncated) ---"


def offline_scene(pause: float = 0.015) -> Callable[[Request], Reply | None]:
    """A script that looks at the folder with the CLI's own tools and tells what it saw.

    `pause` is the time between the pieces of a text, which makes it pleasant to watch.
    """

    def play(request: Request) -> Reply | None:
        if request.method != "stream":
            return None
        return _next_step(request, pause)

    return play


def _next_step(request: Request, pause: float) -> Reply:
    listed = _result(request, "list_directory")
    if listed is None:
        if "list_directory" not in request.tools:
            return _say(request, [_asked(request), "No tool to look at files was offered to me."], pause)
        text = "I will look at the files of this folder first."
        thought = "**Looking around**\nThe files of this folder say most about it."
        return _speak(
            request, text, pause, thought=thought, calls=[Call("list_directory", {"dir_path": "."})]
        )
    output, failed = listed
    if failed:
        return _say(request, [_asked(request), f"The folder could not be listed: {_short(output)}"], pause)
    listing = read_listing(output)
    read = _result(request, "read_file")
    file = informative_file(listing)
    if read is None and file is not None and "read_file" in request.tools:
        thought = f"**Reading {file}**\nIt is the most telling file here."
        return _speak(request, "", pause, thought=thought, calls=[Call("read_file", {"file_path": file})])
    told = [_asked(request), _told_folder(listing)]
    if read is not None and file is not None:
        told.append(_told_file(file, *read))
    return _say(request, told, pause)


def _result(request: Request, tool: str) -> tuple[str, bool] | None:
    """What a tool gave since the user spoke last, and whether that is an error."""
    for result in reversed(request.turn_results):
        if result.get("name") == tool:
            response: Any = result.get("response")
            if not isinstance(response, dict):
                return str(response), False
            if "error" in response:
                return str(response["error"]), True
            return str(response.get("output", "")), False
    return None


def _asked(request: Request) -> str:
    return f"You asked: “{_short(request.last_user_text, 300)}”"


def _told_folder(listing: Listing) -> str:
    if not listing.files and not listing.folders:
        return "This folder is empty."
    kinds = ((listing.files, "file"), (listing.folders, "folder"))
    counts = [_count(len(names), kind) for names, kind in kinds if names]
    names = [*listing.files, *(f"{name}/" for name in listing.folders)]
    more = f" and {len(names) - 20} more" if len(names) > 20 else ""
    return f"This folder holds {' and '.join(counts)}: {', '.join(names[:20])}{more}."


def _told_file(file: str, output: str, failed: bool) -> str:
    if failed:
        return f"{file} could not be read: {_short(output)}"
    _, cut, rest = output.partition(_TRUNCATED)
    lines = [line.strip() for line in (rest if cut else output).splitlines() if line.strip()]
    if not lines:
        return f"{file} is empty."
    heading = next((line.lstrip("#").strip() for line in lines[:20] if re.match(r"#+ ", line)), None)
    if heading is None or not file.lower().endswith((".md", ".markdown")):
        return f"{file} begins: “{_short(' / '.join(lines[:3]))}”"
    below = next((line for line in lines if not line.startswith(("#", "<", "[", "!", "---"))), None)
    more = f", and goes on: “{_short(below)}”" if below else ""
    return f"{file} has the heading “{_short(heading)}”{more}"


def _say(request: Request, told: list[str], pause: float) -> Reply:
    return _speak(request, "\n\n".join([*told, SCRIPTED_NOTE]), pause)


def _speak(
    request: Request, text: str, pause: float, *, thought: str | None = None, calls: list[Call] | None = None
) -> Reply:
    taken = request.size // 4
    # A model that has seen the beginning of a conversation before takes it from its cache.
    usage = Usage(input=taken, cached=taken * 3 // 4) if request.turn_results else Usage(input=taken)
    said = list(_pieces(text))
    return Reply(text=said, thought=thought, calls=calls or [], pause=pause, usage=usage, times=None)


def _pieces(text: str, size: int = 24) -> Iterator[str]:
    """A text in pieces of some words, as a model streams it."""
    piece = ""
    for word in re.findall(r"\s*\S+\s*", text):
        piece += word
        if len(piece) >= size:
            yield piece
            piece = ""
    if piece:
        yield piece


def _count(number: int, what: str) -> str:
    return f"1 {what}" if number == 1 else f"{number} {what}s"


def _short(text: str, most: int = 160) -> str:
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 1] + "…"


_HEAD = re.compile(r"Directory listing for (?P<folder>.+):$|Directory (?P<empty>.+) is empty\.$")
_SIZE = re.compile(r" \((?P<bytes>\d+) bytes\)$")
_NOTE = re.compile(r"\(\d+ .*ignored\)$")
_TELLING = ("pyproject.toml", "package.json", "cargo.toml", "go.mod", "makefile")
_TEXT = re.compile(
    r"\.(md|markdown|rst|txt|py|pyi|js|mjs|ts|tsx|jsx|go|rs|c|h|cc|cpp|java|kt|rb|php|sh|toml|ya?ml|json|ini|cfg|"
    r"html|css|sql|csv|tex)$|^(dockerfile|license|notice|changelog|makefile)$",
    re.IGNORECASE,
)
_MOST = 200_000


class Listing(msgspec.Struct, frozen=True):
    """A folder with the names in it."""

    folder: str | None
    files: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    large: frozenset[str] = frozenset()


def read_listing(output: str) -> Listing:
    """Read the output of `list_directory` of any release.

    >>> read_listing("Directory listing for /w:\\n[DIR] src\\na.py (4 bytes)")
    Listing(folder='/w', files=('a.py',), folders=('src',), large=frozenset())
    """
    lines = output.splitlines()
    head = _HEAD.match(lines[0].rstrip()) if lines else None
    folder = (head["folder"] or head["empty"]) if head else None
    files, folders, large = [], [], []
    for line in lines[1:] if head else lines:
        name = line.rstrip()
        if not name or _NOTE.match(name):
            continue
        if name.startswith("[DIR] "):
            folders.append(name.removeprefix("[DIR] "))
            continue
        size = _SIZE.search(name)
        name = _SIZE.sub("", name)
        files.append(name)
        if size is not None and int(size["bytes"]) > _MOST:
            large.append(name)
    return Listing(folder, tuple(files), tuple(folders), frozenset(large))


def informative_file(listing: Listing) -> str | None:
    """The file that says most about the folder: a README, else the project's file, else a text.

    >>> informative_file(Listing("/w", ("a.py", "package.json", "README.md")))
    'README.md'
    """
    # Hidden files can hold secrets (.env): never those.
    names = [name for name in listing.files if not name.startswith(".") and name not in listing.large]
    readmes = sorted((name for name in names if name.lower().startswith("readme")), key=_readme_rank)
    if readmes:
        return readmes[0]
    for wanted in _TELLING:
        for name in names:
            if name.lower() == wanted:
                return name
    return next((name for name in names if _TEXT.search(name)), None)


def _readme_rank(name: str) -> tuple[bool, int, str]:
    return not name.lower().endswith((".md", ".rst", ".txt", "readme")), len(name), name
