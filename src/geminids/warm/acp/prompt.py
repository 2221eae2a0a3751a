"""Encode a prompt as ACP content blocks: text, attached files and links.

Text that the CLI would run as a command is changed, so that the CLI treats it as plain text.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Iterator, Sequence

import msgspec

from geminids.gemini.protocol.acp.calls import (
    AudioContent,
    Content,
    ImageContent,
    Resource,
    ResourceBlob,
    ResourceLink,
    ResourceText,
    TextContent,
)
from geminids.launch.errors import PromptProblem, Refused
from geminids.launch.prompt.compose import check_prompt, compose
from geminids.launch.prompt.media import read_media
from geminids.launch.prompt.media_types import TEXT
from geminids.options import Options

__all__ = ["encode_prompt", "is_command"]

# The CLI's ACP server runs a prompt such as `/memory` or `$extensions install ...` as a command
# (acpCommandHandler.ts of Gemini CLI). The server removes whitespace (as JavaScript defines it)
# before and after the `/` or `$`, so `/ help` is a command. It inserts a space before a link, so
# `/help@a.txt` is a command too.
_COMMAND = re.compile(r"[\s\ufeff]*[/$][\s\ufeff]*[A-Za-z][\w-]*([\s\ufeff@]|\Z)")
# If this invisible character is put before a command, the server treats the command as plain text.
# The character is not whitespace, so the server does not remove it.
_GUARD = "\u2060"
# This is how the CLI finds `@path` in the prompt of a headless run (atCommandProcessor.ts of Gemini
# CLI).
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

    A command is a word after `/` or `$`, except if the text is a path or an amount of money.

    >>> is_command("/init"), is_command("$help me"), is_command("/usr/bin is where?"), is_command("$5 is little")
    (True, True, False, False)
    """
    return _COMMAND.match(text) is not None


def encode_prompt(
    prompt: str, options: Options, cwd: str, run_id: str, before: str = ""
) -> tuple[Content, ...]:
    """Encode a prompt, with its attached files, as ACP content blocks.

    `before` is text to put before the prompt, such as an earlier conversation. Raises `Refused` if
    the prompt cannot be sent.
    """
    try:
        # Use `literal=False`, because ACP sends text unchanged: nothing must be escaped.
        words = compose(prompt, msgspec.structs.replace(options, literal=False), run_id)
        attached = tuple(_attachments(options))
        check_prompt(before + words, attached=sum(map(_text_length, attached)))
    except PromptProblem as problem:
        raise Refused(problem.kind, str(problem), problem.hint) from None
    if not before and is_command(words):
        words = _GUARD + words
    pieces = (words,) if options.literal else _with_links(words, cwd, (cwd, *options.include_dirs))
    texts = [TextContent(text=piece) if isinstance(piece, str) else piece for piece in pieces if piece]
    blocks: tuple[Content, ...] = (*([TextContent(text=before)] if before else []), *texts, *attached)
    if any(isinstance(block, (Resource, ResourceLink)) for block in blocks):
        # If a prompt contains a link or a resource, the CLI does not send the images and audio of
        # the prompt (resolvePrompt in acpSession.ts of Gemini CLI). So convert images and audio to
        # resources too.
        return tuple(_embedded(block, number) for number, block in enumerate(blocks))
    return blocks


def _embedded(block: Content, number: int) -> Content:
    if not isinstance(block, (ImageContent, AudioContent)):
        return block
    name = f"{block.mime_type.partition('/')[0]}-{number}"
    return Resource(resource=ResourceBlob(uri=name, blob=block.data, mime_type=block.mime_type))


def _with_links(words: str, cwd: str, roots: Sequence[str]) -> Iterator[str | ResourceLink]:
    """Yield the pieces of a prompt: text, and a link in place of each `@path` of an existing file.

    The CLI inserts the content of a linked file. A path outside the folders of the run stays text,
    as in a headless run, because the CLI would ask for permission to read that file.
    """
    position = 0
    for match in _AT.finditer(words):
        path = re.sub(r"\\(.)", r"\1", match[1])
        if _is_inside(os.path.join(cwd, path), roots):
            yield words[position : match.start()]
            yield ResourceLink(uri=f"file://{path}", name=os.path.basename(path) or path)
            position = match.end()
    yield words[position:]


def _is_inside(path: str, roots: Sequence[str]) -> bool:
    real = os.path.realpath(path)
    folders = map(os.path.realpath, roots)
    return os.path.exists(real) and any(os.path.commonpath((real, root)) == root for root in folders)


def _attachments(options: Options) -> Iterator[Content]:
    if not (options.images or options.videos or options.files):
        return
    for media in read_media(options):
        yield TextContent(text=f"\n(attached: {media.called})\n")
        if media.type is TEXT:
            text = _decode_text(media.data)
            yield Resource(resource=ResourceText(uri=media.called, text=text, mime_type="text/plain"))
            continue
        data = base64.b64encode(media.data).decode("ascii")
        ending = media.type.endings[0]
        mime = _MIME.get(ending) or f"{media.type.kind}/{ending[1:]}"
        if media.type.kind == "image":
            yield ImageContent(data=data, mime_type=mime)
        elif media.type.kind == "audio":
            yield AudioContent(data=data, mime_type=mime)
        else:
            yield Resource(resource=ResourceBlob(uri=media.called, blob=data, mime_type=mime))


def _decode_text(data: bytes) -> str:
    """Decode a text file as the CLI does: by its byte order mark, or as UTF-8 if it has none."""
    for mark, encoding in _BYTE_ORDER_MARKS:
        if data.startswith(mark):
            return data.decode(encoding, "replace")
    return data.decode("utf-8-sig", "replace")


def _text_length(block: Content) -> int:
    """Return the number of characters that an attachment adds to the prompt."""
    return (
        len(block.resource.text)
        if isinstance(block, Resource) and isinstance(block.resource, ResourceText)
        else 0
    )
