"""A prompt as the blocks of the protocol: text, files as content, and nothing that the CLI would act on by itself."""

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

# The ACP server runs `/memory`, `$extensions install ...` and their like out of a prompt (acpCommandHandler.ts).
# It trims what JavaScript takes for white space, behind the sign too: `/ help` is a command.
# It puts a blank before a link: so is `/help@a.txt`.
_COMMAND = re.compile(r"[\s\ufeff]*[/$][\s\ufeff]*[A-Za-z][\w-]*([\s\ufeff@]|\Z)")
# Before such a word it makes it a text: no white space, so that the server's `trim` leaves it there.
_GUARD = "\u2060"
# As the headless lane's CLI finds them (atCommandProcessor.ts).
_AT = re.compile(r'(?<!\\)@((?:"[^"]*"|\\.|[^ \t\n\r,;!?()\[\]{}.]|\.(?!\Z|[ \t\n\r]))+)')

_MARKS = (
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


def is_command(words: str) -> bool:
    """Whether the CLI would take these words for a command.

    >>> is_command("/init"), is_command("$help me"), is_command("/usr/bin is where?"), is_command("$5 is little")
    (True, True, False, False)
    """
    return _COMMAND.match(words) is not None


def blocks_of(prompt: str, options: Options, cwd: str, run_id: str, before: str = "") -> tuple[Content, ...]:
    """What is sent for a prompt, with `before` in front of it; raises `Refused` where it cannot be sent."""
    try:
        # On this lane a text is a text: nothing has to be escaped.
        words = compose(prompt, msgspec.structs.replace(options, literal=False), run_id)
        attached = tuple(_attached(options))
        check_prompt(before + words, attached=sum(map(_units, attached)))
    except PromptProblem as problem:
        raise Refused(problem.kind, str(problem), problem.hint) from None
    if not before and is_command(words):
        words = _GUARD + words
    pieces = (words,) if options.literal else _with_links(words, cwd, (cwd, *options.include_dirs))
    texts = [Text(text=one) if isinstance(one, str) else one for one in pieces if one]
    blocks: tuple[Content, ...] = (*([Text(text=before)] if before else []), *texts, *attached)
    if any(isinstance(one, (Resource, ResourceLink)) for one in blocks):
        # Beside a link or a resource the CLI drops pictures and sound (acpSession.ts, resolvePrompt).
        return tuple(_embedded(one, number) for number, one in enumerate(blocks))
    return blocks


def _embedded(block: Content, number: int) -> Content:
    if not isinstance(block, (Image, Audio)):
        return block
    name = f"{block.mime_type.partition('/')[0]}-{number}"
    return Resource(resource=ResourceBlob(uri=name, blob=block.data, mime_type=block.mime_type))


def _with_links(words: str, cwd: str, roots: Sequence[str]) -> Iterator[str | ResourceLink]:
    """The words with each `@path` that is there as a link, which the CLI reads and puts in.

    As on the headless lane, one that leads out of the folders of the run stays a word: the CLI would ask for it.
    """
    at = 0
    for found in _AT.finditer(words):
        path = re.sub(r"\\(.)", r"\1", found[1])
        if _is_there(os.path.join(cwd, path), roots):
            yield words[at : found.start()]
            yield ResourceLink(uri=f"file://{path}", name=os.path.basename(path) or path)
            at = found.end()
    yield words[at:]


def _is_there(path: str, roots: Sequence[str]) -> bool:
    real = os.path.realpath(path)
    folders = map(os.path.realpath, roots)
    return os.path.exists(real) and any(os.path.commonpath((real, root)) == root for root in folders)


def _attached(options: Options) -> Iterator[Content]:
    if not (options.images or options.videos or options.files):
        return
    from geminids.launch.prompt.media import read_media  # imported late: few prompts have files
    from geminids.launch.prompt.media_types import TEXT

    for one in read_media(options):
        yield Text(text=f"\n(attached: {one.called})\n")
        if one.type is TEXT:
            text = _text(one.data)
            yield Resource(resource=ResourceText(uri=one.called, text=text, mime_type="text/plain"))
            continue
        data = base64.b64encode(one.data).decode("ascii")
        ending = one.type.endings[0]
        mime = _MIME.get(ending) or f"{one.type.kind}/{ending[1:]}"
        if one.type.kind == "image":
            yield Image(data=data, mime_type=mime)
        elif one.type.kind == "audio":
            yield Audio(data=data, mime_type=mime)
        else:
            yield Resource(resource=ResourceBlob(uri=one.called, blob=data, mime_type=mime))


def _text(data: bytes) -> str:
    """A text file as the CLI reads one: by its mark, and UTF-8 without one."""
    for mark, encoding in _MARKS:
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
