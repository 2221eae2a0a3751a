"""Encode a prompt as ACP content blocks: text, attached files, and links, but no commands of the CLI."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Iterator, Sequence

import msgspec

from geminids.gemini.protocol.acp.calls import (
    Audio,
    Content,
    Image,
    Resource,
    ResourceBlob,
    ResourceLink,
    ResourceText,
    Text,
)
from geminids.launch.errors import PromptProblem, Refused
from geminids.launch.prompt.compose import check_prompt, compose
from geminids.options import Options

__all__ = ["blocks_of", "is_command"]

# The ACP server runs commands in a prompt, such as `/memory` and `$extensions install ...` (acpCommandHandler.ts).
# It trims JavaScript white space, also after the sign: `/ help` is a command.
# It inserts a blank before a link: `/help@a.txt` is a command too.
_COMMAND = re.compile(r"[\s\ufeff]*[/$][\s\ufeff]*[A-Za-z][\w-]*([\s\ufeff@]|\Z)")
# Put before a command to make it text. It is not white space, so the server's `trim` keeps it.
_GUARD = "\u2060"
# The same rule as in a headless run (atCommandProcessor.ts).
_AT = re.compile(r'(?<!\\)@((?:"[^"]*"|\\.|[^ \t\n\r,;!?()\[\]{}.]|\.(?!\Z|[ \t\n\r]))+)')

_BYTE_ORDER_MARKS = (
    (b"\xff\xfe\0\0", "utf-32"),
    (b"\0\0\xfe\xff", "utf-32"),
    (b"\xff\xfe", "utf-16"),
    (b"\xfe\xff", "utf-16"),
)
_MIME = {
    ".jpg": "image/jpeg",
    ".mov": "video/quicktime",
    ".3gp": "video/3gpp",
    ".mpg": "video/mpeg",
    ".mp3": "audio/mpeg",
    ".pdf": "application/pdf",
}


def is_command(text: str) -> bool:
    """Whether the CLI would run this text as a command.

    >>> is_command("/init"), is_command("$help me"), is_command("/usr/bin is where?"), is_command("$5 is little")
    (True, True, False, False)
    """
    return _COMMAND.match(text) is not None


def blocks_of(prompt: str, options: Options, cwd: str, run_id: str, before: str = "") -> tuple[Content, ...]:
    """The blocks of a prompt, with `before` in front of it; raises `Refused` if it cannot be sent."""
    try:
        # The warm transport sends text as it is: nothing needs an escape.
        words = compose(prompt, msgspec.structs.replace(options, literal=False), run_id)
        attached = tuple(_attached(options))
        check_prompt(before + words, attached=sum(map(_units, attached)))
    except PromptProblem as problem:
        raise Refused(problem.kind, str(problem), problem.hint) from None
    if not before and is_command(words):
        words = _GUARD + words
    pieces = (words,) if options.literal else _with_links(words, cwd, (cwd, *options.include_dirs))
    texts = [Text(text=piece) if isinstance(piece, str) else piece for piece in pieces if piece]
    blocks: tuple[Content, ...] = (*([Text(text=before)] if before else []), *texts, *attached)
    if any(isinstance(block, (Resource, ResourceLink)) for block in blocks):
        # If there is a link or a resource, the CLI drops images and audio (acpSession.ts, resolvePrompt).
        return tuple(_embedded(block, number) for number, block in enumerate(blocks))
    return blocks


def _embedded(block: Content, number: int) -> Content:
    if not isinstance(block, (Image, Audio)):
        return block
    name = f"{block.mime_type.partition('/')[0]}-{number}"
    return Resource(resource=ResourceBlob(uri=name, blob=block.data, mime_type=block.mime_type))


def _with_links(words: str, cwd: str, roots: Sequence[str]) -> Iterator[str | ResourceLink]:
    """Replace each `@path` that exists by a link: the CLI reads the file and inserts it.

    As in a headless run, a path outside the folders of the run stays text: the CLI would ask for permission.
    """
    position = 0
    for match in _AT.finditer(words):
        path = re.sub(r"\\(.)", r"\1", match[1])
        if _is_there(os.path.join(cwd, path), roots):
            yield words[position : match.start()]
            yield ResourceLink(uri=f"file://{path}", name=os.path.basename(path) or path)
            position = match.end()
    yield words[position:]


def _is_there(path: str, roots: Sequence[str]) -> bool:
    real = os.path.realpath(path)
    folders = map(os.path.realpath, roots)
    return os.path.exists(real) and any(os.path.commonpath((real, root)) == root for root in folders)


def _attached(options: Options) -> Iterator[Content]:
    if not (options.images or options.videos or options.files):
        return
    from geminids.launch.prompt.media import read_media  # imported late: few prompts have files
    from geminids.launch.prompt.media_types import TEXT

    for media in read_media(options):
        yield Text(text=f"\n(attached: {media.called})\n")
        if media.type is TEXT:
            text = _text(media.data)
            yield Resource(resource=ResourceText(uri=media.called, text=text, mime_type="text/plain"))
            continue
        data = base64.b64encode(media.data).decode("ascii")
        ending = media.type.endings[0]
        mime = _MIME.get(ending) or f"{media.type.kind}/{ending[1:]}"
        if media.type.kind == "image":
            yield Image(data=data, mime_type=mime)
        elif media.type.kind == "audio":
            yield Audio(data=data, mime_type=mime)
        else:
            yield Resource(resource=ResourceBlob(uri=media.called, blob=data, mime_type=mime))


def _text(data: bytes) -> str:
    """Decode a text file as the CLI does: by its byte order mark, or as UTF-8 without one."""
    for mark, encoding in _BYTE_ORDER_MARKS:
        if data.startswith(mark):
            return data.decode(encoding, "replace")
    return data.decode("utf-8-sig", "replace")


def _units(block: Content) -> int:
    """The characters that an attachment adds to the prompt."""
    return (
        len(block.resource.text)
        if isinstance(block, Resource) and isinstance(block.resource, ResourceText)
        else 0
    )
