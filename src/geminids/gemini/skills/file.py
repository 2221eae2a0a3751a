"""Read a SKILL.md as the CLI does (its skillLoader)."""

from __future__ import annotations

import os
import re
import stat
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    import yaml

__all__ = ["SkillHead", "fields_of", "head_of", "read_skill", "split_head", "yaml_texts"]

# Larger than any real skill; the limits keep a hostile one from slowing down a run.
_MAX_FILE = 1024 * 1024
_MAX_HEAD = 32 * 1024

_HEAD = re.compile(r"---\r?\n([\s\S]*?)\r?\n---(?:\r?\n([\s\S]*))?")
# The characters of JavaScript's \s and trim(), which differ from Python's.
_BLANKS = " \t\n\v\f\r\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
_TRIMMED = "".join(map(chr, (*range(9, 14), 32, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029))) + (
    "\u202f\u205f\u3000\ufeff"
)
_FIELD = re.compile(rf"[{_BLANKS}]*(name|description):[{_BLANKS}]*([^\n\r\u2028\u2029]*)")
_CONTINUATION = re.compile(rf"[ \t]+[^{_BLANKS}]")
_INVALID_IN_NAME = re.compile(r'[:\\/<>*?"|]')
# A name that every parser reads the same way: unquoted, on its own line, and no other line can set
# a name.
_BARE_NAME = re.compile(r"name: *[A-Za-z0-9][\w.-]*(?: [\w.-]+)* *", re.ASCII)
_OTHER_NAME = re.compile(
    r"""name["']?\s*:|^["'?{&!*<%]|^\s*:|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029]|\r."""
)


class SkillHead(msgspec.Struct, frozen=True):
    """The name and description in a SKILL.md, or in `why` the reason that the CLI skips it."""

    name: str = ""
    description: str = ""
    why: str | None = None
    sure: bool = True
    """False if another YAML parser may read another name."""


def read_skill(file: str) -> SkillHead:
    """Read the front matter of a file. `why` is set if the CLI would silently skip it."""
    try:
        # Check before opening: opening a named pipe would wait for a writer.
        if not stat.S_ISREG(os.stat(file).st_mode):
            return SkillHead(why="it is not a file")
        with open(file, "rb") as source:
            data = source.read(_MAX_FILE + 1)
    except OSError as error:
        return SkillHead(why=f"it cannot be read: {error.strerror}")
    head = head_of(data.decode("utf-8", "replace"))
    return msgspec.structs.replace(head, sure=False) if len(data) > _MAX_FILE else head


def split_head(text: str) -> tuple[str, str] | None:
    """Split into front matter and body; None if the CLI finds no front matter."""
    match = _HEAD.match(text)
    return (match[1], match[2] or "") if match else None


def head_of(text: str) -> SkillHead:
    """Read name and description as the CLI does, or the reason that it skips the file.

    >>> head_of("---\\nname: a:b\\ndescription: Use when: asked\\n---\\n")
    SkillHead(name='a-b', description='Use when: asked', why=None, sure=False)
    """
    parts = split_head(text)
    if parts is None:
        is_opened = text.startswith(("---\n", "---\r\n"))
        return SkillHead(why="its front matter is not closed" if is_opened else "it has no front matter")
    name, description = fields_of(parts[0])
    sure = len(parts[0]) <= _MAX_HEAD and _is_sure(parts[0])
    if name is None or description is None:
        return SkillHead(why="it has no name or no description", sure=sure)
    return SkillHead(name=_INVALID_IN_NAME.sub("-", name), description=description, sure=sure)


def fields_of(head: str) -> tuple[str | None, str | None]:
    """Read name and description: as YAML if both are strings in it, else line by line."""
    fields = yaml_texts(head)
    if not ("name" in fields and "description" in fields):
        fields = _from_lines(head)
    return fields.get("name"), fields.get("description")


def yaml_texts(head: str) -> dict[str, str]:
    """Return the top-level entries that js-yaml reads as strings; empty without a YAML mapping.

    >>> yaml_texts('name: "a: b"\\ndescription: >\\n  two\\n  lines\\nversion: 1')
    {'name': 'a: b', 'description': 'two lines\\n'}
    """
    import yaml  # imported late: most runs read no skill

    if len(head) > _MAX_HEAD:
        return {}
    try:
        # Compose nodes only: this never expands merge keys, aliases or dates of a hostile file.
        document = yaml.compose(head if head.endswith("\n") else f"{head}\n", Loader=yaml.SafeLoader)
    except (yaml.YAMLError, ValueError, RecursionError):
        return {}
    if not isinstance(document, yaml.MappingNode):
        return {}
    keys = [key.value for key, _ in document.value if isinstance(key, yaml.ScalarNode)]
    if len(set(keys)) < len(keys) or "<<" in keys:
        return {}  # js-yaml rejects duplicate keys
    return {key.value: value.value for key, value in document.value if _is_text(value)}


def _is_text(node: yaml.Node) -> bool:
    if node.tag == "tag:yaml.org,2002:bool":  # in PyYAML (YAML 1.1) also `yes`, `no`, `on` and `off`
        return node.value.lower() not in ("true", "false")
    return node.tag == "tag:yaml.org,2002:str"


def _from_lines(head: str) -> dict[str, str]:
    """Read `name:` and `description:` lines with indented continuations: the CLI's fallback."""
    fields: dict[str, str] = {}
    lines = re.split(r"\r?\n", head)
    at = 0
    while at < len(lines):
        match = _FIELD.fullmatch(lines[at])
        at += 1
        if not match:
            continue
        parts = [match[2].strip(_TRIMMED)]
        while match[1] == "description" and at < len(lines) and _CONTINUATION.match(lines[at]):
            parts.append(lines[at].strip(_TRIMMED))
            at += 1
        fields[match[1]] = " ".join(filter(None, parts))
    return fields


def _is_sure(head: str) -> bool:
    lines = head.replace("\r\n", "\n").split("\n")
    named = [at for at, line in enumerate(lines) if _BARE_NAME.fullmatch(line)]
    if len(named) != 1 or (lines[named[0] + 1 :] and lines[named[0] + 1][:1] in (" ", "\t")):
        return False
    return not any(_OTHER_NAME.search(line) for at, line in enumerate(lines) if at != named[0])
