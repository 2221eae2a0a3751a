"""Read the name and the description of a skill from its SKILL.md, in the same way as the CLI
(skillLoader.ts of Gemini CLI).
"""

from __future__ import annotations

import os
import re
import stat
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    import yaml

__all__ = ["SkillHead", "fields_of", "head_of", "read_skill", "split_head", "yaml_texts"]

# Limits in bytes and characters. Real skills are smaller; a hostile one must not slow down a run.
_MAX_FILE = 1024 * 1024
_MAX_HEAD = 32 * 1024

_HEAD = re.compile(r"---\r?\n([\s\S]*?)\r?\n---(?:\r?\n([\s\S]*))?")
# The characters that JavaScript's \s and trim() treat as white space. Python's list is different.
_BLANKS = " \t\n\v\f\r\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
_TRIMMED = "".join(map(chr, (*range(9, 14), 32, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029))) + (
    "\u202f\u205f\u3000\ufeff"
)
_FIELD = re.compile(rf"[{_BLANKS}]*(name|description):[{_BLANKS}]*([^\n\r\u2028\u2029]*)")
_CONTINUATION = re.compile(rf"[ \t]+[^{_BLANKS}]")
_INVALID_IN_NAME = re.compile(r'[:\\/<>*?"|]')
# `_BARE_NAME` is a line with a name that every YAML parser reads the same way, because the name is
# not quoted. `_OTHER_NAME` is any other line that could set a name for some parser.
_BARE_NAME = re.compile(r"name: *[A-Za-z0-9][\w.-]*(?: [\w.-]+)* *", re.ASCII)
_OTHER_NAME = re.compile(
    r"""name["']?\s*:|^["'?{&!*<%]|^\s*:|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029]|\r."""
)


class SkillHead(msgspec.Struct, frozen=True):
    """The name and the description of a skill, from its SKILL.md.

    If the CLI would ignore the file, `why` is the reason; otherwise `why` is None.
    """

    name: str = ""
    description: str = ""
    why: str | None = None
    sure: bool = True
    """False if the CLI's YAML parser might read a name from the file that differs from `name`."""


def read_skill(file: str) -> SkillHead:
    """Read the name and the description of a skill from its SKILL.md.

    If the CLI would ignore the file, the field `why` of the result contains the reason.
    """
    try:
        # Check before opening: opening a named pipe would wait for a writer.
        if not stat.S_ISREG(os.stat(file).st_mode):
            return SkillHead(why="it is not a regular file")
        with open(file, "rb") as source:
            data = source.read(_MAX_FILE + 1)
    except OSError as error:
        return SkillHead(why=f"it cannot be read: {error.strerror}")
    head = head_of(data.decode("utf-8", "replace"))
    return msgspec.structs.replace(head, sure=False) if len(data) > _MAX_FILE else head


def split_head(text: str) -> tuple[str, str] | None:
    """Split the text of a SKILL.md into the front matter (the lines between `---` and `---`) and
    the body.

    Return None if the CLI would find no front matter.
    """
    match = _HEAD.match(text)
    return (match[1], match[2] or "") if match else None


def head_of(text: str) -> SkillHead:
    """Read the name and the description of a skill from the text of its SKILL.md, in the same way
    as the CLI.

    In the example, the colon in the name is replaced, as in the CLI. `sure` is False because the
    CLI's YAML parser might read another name.

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
    """Return the name and the description in the front matter of a SKILL.md. Each is None if it is
    missing.

    `head` is the front matter. It is read as YAML. If it is not valid YAML, or if one of the two
    fields is missing or not a string, `head` is read line by line. The CLI does the same.
    """
    fields = yaml_texts(head)
    if not ("name" in fields and "description" in fields):
        fields = _from_lines(head)
    return fields.get("name"), fields.get("description")


def yaml_texts(head: str) -> dict[str, str]:
    """Return the fields of a front matter (`head`) that the CLI's YAML parser reads as strings.
    Other fields are left out, such as the number `version` in the example.

    The result is empty if the front matter is too long, or if the CLI would not read it as a YAML
    mapping.

    >>> yaml_texts('name: "a: b"\\ndescription: >\\n  two\\n  lines\\nversion: 1')
    {'name': 'a: b', 'description': 'two lines\\n'}
    """
    import yaml  # imported late: it is large, and most runs read no skill

    if len(head) > _MAX_HEAD:
        return {}
    try:
        # Do not construct Python values, so that aliases and merge keys of a hostile file are not
        # expanded.
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
    if (
        node.tag == "tag:yaml.org,2002:bool"
    ):  # PyYAML also reads `yes`, `no`, `on` and `off` as booleans; the CLI does not
        return node.value.lower() not in ("true", "false")
    return node.tag == "tag:yaml.org,2002:str"


def _from_lines(head: str) -> dict[str, str]:
    """Read the name and the description from a front matter line by line, without a YAML parser, in
    the same way as the CLI.

    The description can continue on indented lines.
    """
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
