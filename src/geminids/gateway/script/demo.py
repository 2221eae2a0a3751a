"""The script behind the option `--offline`: it answers in place of a model. It calls real tools of
the CLI, and describes what they returned.

The script has no state. It chooses each step by the conversation in the request. So one script can
serve many sessions, including resumed ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from geminids.gateway.request import Request
from geminids.gateway.script.replies import Call, Reply, ReplyUsage

__all__ = ["SCRIPTED_NOTE", "Listing", "informative_file", "offline_scene", "read_listing"]

SCRIPTED_NOTE = "(This answer was made by a script, not by a model.)"

_TRUNCATED = "--- FILE CONTENT (truncated) ---"


def offline_scene(pause: float = 0.015) -> Callable[[Request], Reply | None]:
    """Return a function that answers requests in place of a model, for a demo. Its answers call the
    CLI's own tools to list the folder and to read one file; the last answer describes both. For a
    request that does not ask for a streamed answer, the function returns None.

    `pause` is the time in seconds between the pieces of a text. With it, the text appears piece by
    piece, as from a real model.
    """

    def answer(request: Request) -> Reply | None:
        if request.method != "stream":
            return None
        return _next_step(request, pause)

    return answer


def _next_step(request: Request, pause: float) -> Reply:
    listed = _result(request, "list_directory")
    if listed is None:
        if "list_directory" not in request.tools:
            return _final_reply(
                request, [_quote_prompt(request), "No tool to look at files was offered to me."], pause
            )
        text = "I will look at the files of this folder first."
        thought = "**Looking around**\nThe list of files shows what this folder is about."
        return _reply(
            request, text, pause, thought=thought, calls=[Call("list_directory", {"dir_path": "."})]
        )
    output, failed = listed
    if failed:
        return _final_reply(
            request, [_quote_prompt(request), f"The folder could not be listed: {_short(output)}"], pause
        )
    listing = read_listing(output)
    read = _result(request, "read_file")
    file = informative_file(listing)
    if read is None and file is not None and "read_file" in request.tools:
        thought = f"**Reading {file}**\nThis file describes the folder best."
        return _reply(request, "", pause, thought=thought, calls=[Call("read_file", {"file_path": file})])
    paragraphs = [_quote_prompt(request), _describe_folder(listing)]
    if read is not None and file is not None:
        paragraphs.append(_describe_file(file, *read))
    return _final_reply(request, paragraphs, pause)


def _result(request: Request, tool: str) -> tuple[str, bool] | None:
    """Return the latest output of the tool named `tool` since the user's last prompt, and whether
    this output is an error. Return None if there is no output of this tool since that prompt.
    """
    for result in reversed(request.turn_results):
        if result.get("name") == tool:
            response: Any = result.get("response")
            if not isinstance(response, dict):
                return str(response), False
            if "error" in response:
                return str(response["error"]), True
            return str(response.get("output", "")), False
    return None


def _quote_prompt(request: Request) -> str:
    return f"You asked: “{_short(request.last_user_text, 300)}”"


def _describe_folder(listing: Listing) -> str:
    if not listing.files and not listing.folders:
        return "This folder is empty."
    kinds = ((listing.files, "file"), (listing.folders, "folder"))
    counts = [_count(len(names), kind) for names, kind in kinds if names]
    names = [*listing.files, *(f"{name}/" for name in listing.folders)]
    more = f" and {len(names) - 20} more" if len(names) > 20 else ""
    return f"This folder holds {' and '.join(counts)}: {', '.join(names[:20])}{more}."


def _describe_file(file: str, output: str, failed: bool) -> str:
    if failed:
        return f"{file} could not be read: {_short(output)}"
    _, cut, rest = output.partition(_TRUNCATED)
    lines = [line.strip() for line in (rest if cut else output).splitlines() if line.strip()]
    if not lines:
        return f"{file} is empty."
    heading = next((line.lstrip("#").strip() for line in lines[:20] if re.match(r"#+ ", line)), None)
    if heading is None or not file.lower().endswith((".md", ".markdown")):
        return f"{file} begins: “{_short(' / '.join(lines[:3]))}”"
    first_paragraph = next((line for line in lines if not line.startswith(("#", "<", "[", "!", "---"))), None)
    more = f", and continues: “{_short(first_paragraph)}”" if first_paragraph else ""
    return f"{file} has the heading “{_short(heading)}”{more}"


def _final_reply(request: Request, paragraphs: list[str], pause: float) -> Reply:
    return _reply(request, "\n\n".join([*paragraphs, SCRIPTED_NOTE]), pause)


def _reply(
    request: Request, text: str, pause: float, *, thought: str | None = None, calls: list[Call] | None = None
) -> Reply:
    input_tokens = request.size // 4
    # A real API reads the beginning of a known conversation from its cache.
    usage = (
        ReplyUsage(input=input_tokens, cached=input_tokens * 3 // 4)
        if request.turn_results
        else ReplyUsage(input=input_tokens)
    )
    pieces = list(_pieces(text))
    return Reply(text=pieces, thought=thought, calls=calls or [], pause=pause, usage=usage, times=None)


def _pieces(text: str, size: int = 24) -> Iterator[str]:
    """Split a text into pieces of a few words, as a model streams it. Each piece except the last
    has at least `size` characters.
    """
    piece = ""
    for word in re.findall(r"\s*\S+\s*", text):
        piece += word
        if len(piece) >= size:
            yield piece
            piece = ""
    if piece:
        yield piece


def _count(number: int, noun: str) -> str:
    return f"1 {noun}" if number == 1 else f"{number} {noun}s"


def _short(text: str, limit: int = 160) -> str:
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 1] + "…"


_HEAD = re.compile(r"Directory listing for (?P<folder>.+):$|Directory (?P<empty>.+) is empty\.$")
_SIZE = re.compile(r" \((?P<bytes>\d+) bytes\)$")
_NOTE = re.compile(r"\(\d+ .*ignored\)$")
_PROJECT_FILES = ("pyproject.toml", "package.json", "cargo.toml", "go.mod", "makefile")
_TEXT = re.compile(
    r"\.(md|markdown|rst|txt|py|pyi|js|mjs|ts|tsx|jsx|go|rs|c|h|cc|cpp|java|kt|rb|php|sh|toml|ya?ml|json|ini|cfg|"
    r"html|css|sql|csv|tex)$|^(dockerfile|license|notice|changelog|makefile)$",
    re.IGNORECASE,
)
_MAX_SIZE = 200_000


class Listing(msgspec.Struct, frozen=True):
    """The content of the folder `folder`: the names of its files and of its folders. `large`
    contains the names of files that are too large to read.
    """

    folder: str | None
    files: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    large: frozenset[str] = frozenset()


def read_listing(output: str) -> Listing:
    """Parse the output of the CLI's tool `list_directory`. The formats of all CLI releases are
    supported.

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
        if size is not None and int(size["bytes"]) > _MAX_SIZE:
            large.append(name)
    return Listing(folder, tuple(files), tuple(folders), frozenset(large))


def informative_file(listing: Listing) -> str | None:
    """Return the name of the file that probably describes the folder best. This is a README, or
    else a project file such as `package.json`, or else any text file. Return None if no file fits.

    >>> informative_file(Listing("/w", ("a.py", "package.json", "README.md")))
    'README.md'
    """
    # Leave out hidden files such as `.env`: they may contain secrets.
    names = [name for name in listing.files if not name.startswith(".") and name not in listing.large]
    readmes = sorted((name for name in names if name.lower().startswith("readme")), key=_readme_rank)
    if readmes:
        return readmes[0]
    for project_file in _PROJECT_FILES:
        for name in names:
            if name.lower() == project_file:
                return name
    return next((name for name in names if _TEXT.search(name)), None)


def _readme_rank(name: str) -> tuple[bool, int, str]:
    return not name.lower().endswith((".md", ".rst", ".txt", "readme")), len(name), name
