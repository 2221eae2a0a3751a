"""Read a script (prepared replies in place of a model) from a file. The file contains JSON (an
object or an array) or JSON Lines.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TypeVar

import msgspec

from geminids.errors import ScriptError
from geminids.gateway.script.replies import Reply, Script

__all__ = ["load_script", "read_script"]

_T = TypeVar("_T")
_BYTE = re.compile(r"\s*\(byte (\d+)\)")
_EXAMPLE = '[{"calls": [{"name": "read_file", "args": {"file_path": "README.md"}}]}, {"text": "Done."}]'
_HINT = (
    f"A script is a JSON list of replies, for example {_EXAMPLE}. "
    f"The fields of a reply: {', '.join(Reply.__struct_fields__)}."
)


class _ScriptObject(msgspec.Struct, forbid_unknown_fields=True):
    replies: list[msgspec.Raw] = []
    default: msgspec.Raw = msgspec.Raw()


def load_script(path: str | Path) -> Script:
    """Read a script (prepared replies in place of a model) from a file. Raises `ScriptError`
    if the file cannot be read or is not a valid script; the error names the file and, if possible,
    the line.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ScriptError(
            error.strerror or str(error),
            where=str(path),
            hint="Check the path and the permissions of the file.",
        ) from None
    return read_script(data, str(path))


def read_script(data: bytes, name: str = "script") -> Script:
    """Decode the content of a script file (prepared replies in place of a model). `name` is the
    name of the file in error messages. Raises `ScriptError` if the content is not valid.

    >>> read_script(b'[{"text": "hi"}]').replies[0].text
    'hi'
    >>> len(read_script(b'{"text": "one"}\\n{"text": "two"}\\n').replies)
    2
    """
    data = data.removeprefix(b"\xef\xbb\xbf")
    source = _Source(data, name)
    start = data.lstrip()[:1]
    if start == b"[":
        return Script(source.replies(source.decode(list[msgspec.Raw])))
    if start == b"{" and not _is_lines(data):
        script = source.decode(_ScriptObject)
        replies = source.replies(script.replies)
        if not bytes(script.default):
            return Script(replies)
        default = source.reply(script.default, "default", data.find(b'"default"'))
        return Script(replies, msgspec.structs.replace(default, times=None))
    return Script(_read_lines(data, name))


def _is_lines(data: bytes) -> bool:
    """Return whether the data is in the format JSON Lines. This is the case if its first line is a
    complete reply.
    """
    first = data.lstrip().split(b"\n", 1)[0]
    try:
        decoded = msgspec.json.decode(first)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return isinstance(decoded, dict) and not {"replies", "default"} & decoded.keys()


def _read_lines(data: bytes, name: str) -> tuple[Reply, ...]:
    replies: list[Reply] = []
    for number, line in enumerate(data.split(b"\n"), 1):
        if line.strip():
            replies.append(_Source(line, name, number).reply(msgspec.Raw(line), f"reply {len(replies) + 1}"))
    if not replies:
        raise ScriptError("the script has no replies", where=name, hint=_HINT)
    return tuple(replies)


class _Source:
    """Decodes the text of a script file, or one line of it, and adds the file name and the line
    number to errors. `first` is the line number in the file at which `data` begins.
    """

    def __init__(self, data: bytes, name: str, first: int = 1) -> None:
        self._data = data
        self._name = name
        self._first = first

    def decode(self, kind: type[_T]) -> _T:
        try:
            return msgspec.json.decode(self._data, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise self._error(str(error), 0) from None

    def replies(self, raws: list[msgspec.Raw]) -> tuple[Reply, ...]:
        replies, at = [], 0
        for number, raw in enumerate(raws, 1):
            # The replies are in this order in the text, so each search starts after the previous
            # reply.
            at = max(self._data.find(bytes(raw), at), at)
            replies.append(self.reply(raw, f"reply {number}", at))
            at += len(bytes(raw))
        return tuple(replies)

    def reply(self, raw: msgspec.Raw, label: str, at: int = 0) -> Reply:
        try:
            return msgspec.json.decode(raw, type=Reply)
        except msgspec.ValidationError as error:
            raise self._error(f"{label}: {error}", at) from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise self._error(str(error), at) from None

    def _error(self, message: str, at: int) -> ScriptError:
        byte = _BYTE.search(message)
        if byte is not None:
            at += int(byte[1])
            message = _BYTE.sub("", message)
        elif "truncated" in message:
            at = len(self._data.rstrip())
        line = self._first + self._data.count(b"\n", 0, at)
        return ScriptError(message, where=f"{self._name}:{line}", hint=_HINT)
