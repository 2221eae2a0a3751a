"""One SKILL.md, read as the CLI reads it (its skillLoader)."""

from __future__ import annotations

import os
import re
import stat
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    import yaml

__all__ = ["SkillHead", "fields_of", "head_of", "read_skill", "split_head", "yaml_texts"]

# No skill is as big; a hostile one shall not hold a run up.
_BIGGEST_FILE = 1024 * 1024
_BIGGEST_HEAD = 32 * 1024

_HEAD = re.compile(r"---\r?\n([\s\S]*?)\r?\n---(?:\r?\n([\s\S]*))?")
# JavaScript's \s and trim(): Python's own know other characters.
_BLANKS = " \t\n\v\f\r\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
_TRIMMED = "".join(map(chr, (*range(9, 14), 32, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029))) + (
    "\u202f\u205f\u3000\ufeff"
)
_FIELD = re.compile(rf"[{_BLANKS}]*(name|description):[{_BLANKS}]*([^\n\r\u2028\u2029]*)")
_GOES_ON = re.compile(rf"[ \t]+[^{_BLANKS}]")
_UNCLEAN = re.compile(r'[:\\/<>*?"|]')
# A name that every way to read a head agrees about: one line of its own, bare, and no other place for a name.
_BARE_NAME = re.compile(r"name: *[A-Za-z0-9][\w.-]*(?: [\w.-]+)* *", re.ASCII)
_ELSEWHERE = re.compile(
    r"""name["']?\s*:|^["'?{&!*<%]|^\s*:|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029]|\r."""
)


class SkillHead(msgspec.Struct, frozen=True):
    """What a SKILL.md says of itself. `why` tells why the CLI passes it over; else name and description are there."""

    name: str = ""
    description: str = ""
    why: str | None = None
    sure: bool = True
    """False where another reader of YAML may come to another name."""


def read_skill(file: str) -> SkillHead:
    """The head of a file; what cannot be read has a `why`, as the CLI passes over it without a word."""
    try:
        # Looked at first: to open a pipe would wait for its writer.
        if not stat.S_ISREG(os.stat(file).st_mode):
            return SkillHead(why="it is not a file")
        with open(file, "rb") as source:
            data = source.read(_BIGGEST_FILE + 1)
    except OSError as error:
        return SkillHead(why=f"it cannot be read: {error.strerror}")
    head = head_of(data.decode("utf-8", "replace"))
    return msgspec.structs.replace(head, sure=False) if len(data) > _BIGGEST_FILE else head


def split_head(text: str) -> tuple[str, str] | None:
    """Front matter and body, or None where the CLI finds no front matter."""
    match = _HEAD.match(text)
    return (match[1], match[2] or "") if match else None


def head_of(text: str) -> SkillHead:
    """Name and description as the CLI takes them, or why it passes the file over.

    >>> head_of("---\\nname: a:b\\ndescription: Use when: asked\\n---\\n")
    SkillHead(name='a-b', description='Use when: asked', why=None, sure=False)
    """
    parts = split_head(text)
    if parts is None:
        closed = text.startswith(("---\n", "---\r\n"))
        return SkillHead(why="its front matter is not closed" if closed else "it has no front matter")
    small = len(parts[0]) <= _BIGGEST_HEAD
    name, description = fields_of(parts[0])
    sure = small and _is_sure(parts[0])
    if name is None or description is None:
        return SkillHead(why="it has no name or no description", sure=sure)
    return SkillHead(name=_UNCLEAN.sub("-", name), description=description, sure=sure)


def fields_of(head: str) -> tuple[str | None, str | None]:
    """Name and description in a front matter: as YAML where both are texts there, else by lines."""
    fields = yaml_texts(head)
    if not ("name" in fields and "description" in fields):
        fields = _from_lines(head)
    return fields.get("name"), fields.get("description")


def yaml_texts(head: str) -> dict[str, str]:
    """The top-level entries of a front matter that are texts for js-yaml; empty if it is no YAML mapping.

    >>> yaml_texts('name: "a: b"\\ndescription: >\\n  two\\n  lines\\nversion: 1')
    {'name': 'a: b', 'description': 'two lines\\n'}
    """
    import yaml  # imported late: most runs read no skill

    if len(head) > _BIGGEST_HEAD:
        return {}
    try:
        # Nodes, not values: no merge key, alias or date of a hostile head is ever expanded.
        document = yaml.compose(head if head.endswith("\n") else f"{head}\n", Loader=yaml.SafeLoader)
    except (yaml.YAMLError, ValueError, RecursionError):
        return {}
    if not isinstance(document, yaml.MappingNode):
        return {}
    keys = [key.value for key, _ in document.value if isinstance(key, yaml.ScalarNode)]
    if len(set(keys)) < len(keys) or "<<" in keys:
        return {}  # js-yaml refuses a key twice
    return {key.value: value.value for key, value in document.value if _is_text(value)}


def _is_text(node: yaml.Node) -> bool:
    if node.tag == "tag:yaml.org,2002:bool":  # PyYAML's YAML 1.1 has `yes`, `no`, `on` and `off` too
        return node.value.lower() not in ("true", "false")
    return node.tag == "tag:yaml.org,2002:str"


def _from_lines(head: str) -> dict[str, str]:
    """The CLI's own way with a head that is no YAML: `name:` and `description:` lines, and what is indented."""
    found: dict[str, str] = {}
    lines = re.split(r"\r?\n", head)
    at = 0
    while at < len(lines):
        match = _FIELD.fullmatch(lines[at])
        at += 1
        if not match:
            continue
        parts = [match[2].strip(_TRIMMED)]
        while match[1] == "description" and at < len(lines) and _GOES_ON.match(lines[at]):
            parts.append(lines[at].strip(_TRIMMED))
            at += 1
        found[match[1]] = " ".join(filter(None, parts))
    return found


def _is_sure(head: str) -> bool:
    lines = head.replace("\r\n", "\n").split("\n")
    named = [at for at, line in enumerate(lines) if _BARE_NAME.fullmatch(line)]
    if len(named) != 1 or (lines[named[0] + 1 :] and lines[named[0] + 1][:1] in (" ", "\t")):
        return False
    return not any(_ELSEWHERE.search(line) for at, line in enumerate(lines) if at != named[0])
