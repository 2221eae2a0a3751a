"""What is wrong with skills: each finding with file, line and rule, and whether the CLI passes the skill over."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Literal

import msgspec

from geminids.gemini.skills.file import fields_of, head_of, split_head, yaml_texts
from geminids.gemini.skills.tree import outward_links

__all__ = ["RULES", "Finding", "Level", "finding", "lint_skill"]

Level = Literal["error", "warning"]

# fmt: off
RULES: dict[str, tuple[Level, str]] = {
    "unreadable":           ("error",   "The SKILL.md cannot be read."),
    "byte-order-mark":      ("error",   "The file begins with a byte order mark, so the CLI finds no front matter."),
    "not-utf8":             ("error",   "The file is not UTF-8."),
    "no-front-matter":      ("error",   "The file does not begin with a line `---`."),
    "not-closed":           ("error",   "The front matter has no closing `---`."),
    "no-name":              ("error",   "The front matter has no name."),
    "no-description":       ("error",   "The front matter has no description."),
    "not-yaml":             ("warning", "The front matter is no YAML: the CLI guesses, other tools refuse it."),
    "name-characters":      ("error",   "A name has lowercase letters, digits and single hyphens between them."),
    "name-too-long":        ("error",   "A name has at most 64 characters."),
    "name-not-folder":      ("error",   "The name is not the name of its folder."),
    "description-too-long": ("error",   "A description has at most 1024 characters."),
    "missing-file":         ("warning", "A file that the text refers to is not there."),
    "link-outside":         ("error",   "A link leads out of the skill's folder."),
    "wrong-case":           ("error",   "The file must be named `SKILL.md`, in this case."),
    "hidden-folder":        ("error",   "The CLI passes over folders whose name begins with a dot."),
    "passed-over-folder":   ("error",   "The CLI passes over folders of this name."),
    "too-deep":             ("error",   "The CLI looks one folder deep."),
    "no-skill-file":        ("warning", "The folder holds no SKILL.md."),
    "shadowed":             ("warning", "Another skill of the same name is taken in its place."),
}
# fmt: on

_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_LONGEST_NAME = 64
_LONGEST_DESCRIPTION = 1024
# Files that a skill brings along are in these folders (the Agent Skills standard); or a Markdown link names them.
_REFERENCE = re.compile(
    r"(?<![\w./\\-])(?:\./)?((?:scripts|references|assets)/[\w./-]*\w)|\]\(([^)\s:#<>]+)\)"
)


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong. `unseen`: the CLI passes this skill over in silence."""

    file: str
    line: int
    code: str
    level: Level
    message: str
    unseen: bool = False


def finding(file: str, line: int, code: str, message: str, *, unseen: bool = False) -> Finding:
    """A finding with the level of its rule; what the CLI will not see is said in each message."""
    text = f"{message}: the CLI will not see this skill" if unseen else message
    return Finding(file=file, line=line, code=code, level=RULES[code][0], message=text, unseen=unseen)


def lint_skill(file: str, *, in_folder: bool = True) -> list[Finding]:
    """Everything about one SKILL.md and what lies beside it. `in_folder`: the folder should have the skill's name."""
    if os.path.exists(file) and not os.path.isfile(file):
        return [finding(file, 1, "unreadable", "is not a file", unseen=True)]
    try:
        with open(file, "rb") as source:
            data = source.read()
    except OSError as error:
        return [finding(file, 1, "unreadable", f"cannot be read ({error.strerror})", unseen=True)]
    if data.startswith(b"\xef\xbb\xbf"):
        return [finding(file, 1, "byte-order-mark", "begins with a byte order mark", unseen=True)]
    found = []
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        found.append(finding(file, line, "not-utf8", f"is not UTF-8 (byte {error.start})"))
        text = data.decode("utf-8", "replace")
    found += _of_head(file, text, in_folder)
    found += _of_text(file, text)
    found += _of_links(file)
    return found


def _of_head(file: str, text: str, in_folder: bool) -> Iterator[Finding]:
    parts = split_head(text)
    if parts is None:
        if re.match(r"---\r?\n", text):
            yield finding(file, 1, "not-closed", "the front matter is not closed by a line ---", unseen=True)
        else:
            yield finding(file, 1, "no-front-matter", "does not begin with a line ---", unseen=True)
        return
    head = parts[0]
    name, description = fields_of(head)
    if not name:
        yield finding(file, _line(head, "name"), "no-name", "has no name", unseen=name is None)
    if not description:
        at = _line(head, "description")
        yield finding(file, at, "no-description", "has no description", unseen=description is None)
    if (
        name is not None
        and description is not None
        and not {"name", "description"} <= yaml_texts(head).keys()
    ):
        yield finding(file, 2, "not-yaml", "the front matter is no YAML with these two texts; quote them")
    if name:
        yield from _of_name(file, _line(head, "name"), name, head_of(text).name, in_folder)
    if description and len(description) > _LONGEST_DESCRIPTION:
        at, size = _line(head, "description"), len(description)
        yield finding(file, at, "description-too-long", f"the description has {size} characters of 1024")


def _of_name(file: str, line: int, name: str, seen: str, in_folder: bool) -> Iterator[Finding]:
    if not _NAME.fullmatch(name):
        what = f"the name {name!r} has more than lowercase letters, digits and single hyphens"
        yield finding(
            file, line, "name-characters", what + (f"; the CLI takes {seen!r}" if seen != name else "")
        )
    if len(name) > _LONGEST_NAME:
        yield finding(file, line, "name-too-long", f"the name has {len(name)} characters of 64")
    folder = os.path.basename(os.path.dirname(os.path.abspath(file)))
    if in_folder and name != folder:
        yield finding(file, line, "name-not-folder", f"the name is {name!r}, the folder {folder!r}")


def _line(head: str, field: str) -> int:
    """The line of the file that a field of its front matter is on."""
    for number, line in enumerate(head.splitlines(), 2):
        if re.match(rf"""\s*["']?{field}["']?\s*:""", line):
            return number
    return 1


def _of_text(file: str, text: str) -> Iterator[Finding]:
    parts = split_head(text)
    if parts is None:
        return
    folder = os.path.dirname(os.path.abspath(file))
    before = text[: len(text) - len(parts[1])].count("\n")
    told = set()
    for number, line in enumerate(parts[1].splitlines(), before + 1):
        for match in _REFERENCE.finditer(line):
            path = match[1] or match[2]
            if (
                path not in told
                and not path.startswith("/")
                and not os.path.exists(os.path.join(folder, path))
            ):
                told.add(path)
                yield finding(file, number, "missing-file", f"refers to {path}, which is not there")


def _of_links(file: str) -> Iterator[Finding]:
    folder = os.path.dirname(os.path.abspath(file))
    try:
        links = outward_links(folder)
    except OSError as error:
        yield finding(file, 1, "unreadable", f"{error.filename} cannot be read ({error.strerror})")
        return
    for path in links:
        yield finding(
            os.path.join(folder, path), 1, "link-outside", "the link leads out of the skill's folder"
        )
