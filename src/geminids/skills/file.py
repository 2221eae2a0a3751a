"""One SKILL.md, read as a given release of the CLI reads it (its skillLoader)."""

from __future__ import annotations

import os
import re
import stat

import msgspec

from geminids.skills.front_matter import NotYaml, read_yaml_head
from geminids.toolchain.releases import Release
from geminids.toolchain.versions import Version

__all__ = ["Dialect", "SkillHead", "dialect_of", "fields_of", "head_of", "read_skill", "split_head"]

# No skill is as big; a hostile one shall not hold a run up.
_BIGGEST_FILE = 1024 * 1024
_BIGGEST_HEAD = 32 * 1024

_LOOSE = re.compile(r"---\r?\n([\s\S]*?)\r?\n---(?:\r?\n([\s\S]*))?")
_STRICT = re.compile(r"---\r?\n([\s\S]*?)\r?\n---\r?\n([\s\S]*)")
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


class Dialect(msgspec.Struct, frozen=True):
    """What a release does otherwise than the others (its skillLoader, read from 0.24 to 0.61)."""

    at_the_top: bool
    """A SKILL.md in the skills folder itself counts; the head may end the file; disabled names in any case (0.25)."""
    forgiving: bool
    """A head that is no YAML is read line by line; on without a setting; built-in skills (0.26)."""
    filled: bool
    """`${extensionPath}` and its like in an extension's skill are filled in (0.27)."""
    agents: bool
    """`.agents/skills` is looked at (0.28)."""
    cleaned: bool
    """Characters that no file name may have become `-`; `node_modules` is passed over (0.29)."""


class SkillHead(msgspec.Struct, frozen=True):
    """What a SKILL.md says of itself. `why` tells why the CLI passes it over; else name and description are there."""

    name: str = ""
    description: str = ""
    why: str | None = None
    sure: bool = True
    """False where another reader of YAML may come to another name."""


def dialect_of(release: Release) -> Dialect:
    """How a release reads skills; a version that is not known is taken for the newest."""
    core = (Version.parse(release.version) or Version(999, 0)).core
    return Dialect(
        at_the_top=core >= (0, 25, 0),
        forgiving=core >= (0, 26, 0),
        filled=core >= (0, 27, 0),
        agents=release.agents_skills_dir,
        cleaned=core >= (0, 29, 0),
    )


def read_skill(file: str, dialect: Dialect) -> SkillHead:
    """The head of a file; what cannot be read has a `why`, as the CLI passes over it without a word."""
    try:
        # Looked at first: to open a pipe would wait for its writer.
        if not stat.S_ISREG(os.stat(file).st_mode):
            return SkillHead(why="it is not a file")
        with open(file, "rb") as source:
            data = source.read(_BIGGEST_FILE + 1)
    except OSError as error:
        return SkillHead(why=f"it cannot be read: {error.strerror}")
    head = head_of(data.decode("utf-8", "replace"), dialect)
    return msgspec.structs.replace(head, sure=False) if len(data) > _BIGGEST_FILE else head


def split_head(text: str, dialect: Dialect) -> tuple[str, str] | None:
    """Front matter and body, or None where the CLI finds no front matter."""
    match = (_LOOSE if dialect.at_the_top else _STRICT).match(text)
    return (match[1], match[2] or "") if match else None


def head_of(text: str, dialect: Dialect) -> SkillHead:
    """Name and description as the CLI takes them, or why it passes the file over.

    >>> from geminids.toolchain.releases import release_of
    >>> head_of("---\\nname: a:b\\ndescription: Use when: asked\\n---\\n", dialect_of(release_of("0.61.0")))
    SkillHead(name='a-b', description='Use when: asked', why=None, sure=False)
    """
    parts = split_head(text, dialect)
    if parts is None:
        closed = text.startswith(("---\n", "---\r\n"))
        return SkillHead(why="its front matter is not closed" if closed else "it has no front matter")
    small = len(parts[0]) <= _BIGGEST_HEAD
    name, description = fields_of(parts[0], dialect)
    sure = small and _is_sure(parts[0])
    if name is None or description is None:
        return SkillHead(why="it has no name or no description", sure=sure)
    return SkillHead(
        name=_UNCLEAN.sub("-", name) if dialect.cleaned else name, description=description, sure=sure
    )


def fields_of(head: str, dialect: Dialect) -> tuple[str | None, str | None]:
    """Name and description in a front matter: as YAML where both are texts there, else by lines."""
    fields: dict[str, str] = {}
    try:
        if len(head) <= _BIGGEST_HEAD:
            found = read_yaml_head(head)
            fields = {key: value for key, value in found.items() if isinstance(value, str)}
    except (NotYaml, RecursionError):
        pass
    if dialect.forgiving and not ("name" in fields and "description" in fields):
        fields = _from_lines(head)
    return fields.get("name"), fields.get("description")


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
