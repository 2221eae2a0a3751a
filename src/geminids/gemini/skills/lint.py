"""Check a skill for errors (lint): its SKILL.md and its files must follow the rules in `RULES`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Literal

import msgspec

from geminids.gemini.skills.file import fields_of, head_of, split_head, yaml_texts
from geminids.gemini.skills.folder import links_outside

__all__ = ["RULES", "Level", "LintFinding", "finding", "lint_skill"]

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
    "not-yaml":             ("warning", "The front matter is not valid YAML: the CLI accepts it, other tools do not."),
    "name-characters":      ("error",   "A name has only lowercase letters, digits and single hyphens."),
    "name-too-long":        ("error",   "A name has at most 64 characters."),
    "name-not-folder":      ("error",   "The name differs from the name of the folder."),
    "description-too-long": ("error",   "A description has at most 1024 characters."),
    "missing-file":         ("warning", "The text refers to a file that does not exist."),
    "link-outside":         ("error",   "A link is absolute, or points outside the skill's folder."),
    "wrong-case":           ("error",   "The file must be named exactly `SKILL.md`."),
    "hidden-folder":        ("error",   "The CLI ignores folders whose name begins with a dot."),
    "passed-over-folder":   ("error",   "The CLI ignores folders with the name `node_modules`."),
    "too-deep":             ("error",   "The SKILL.md is more than one folder below the folder of skills."),
    "no-skill-file":        ("warning", "The folder has no SKILL.md."),
    "shadowed":             ("warning", "The CLI uses another skill with the same name instead."),
}
# fmt: on

_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_MAX_NAME = 64
_MAX_DESCRIPTION = 1024
# A reference to a file of the skill: a path in one of the folders of the Agent Skills standard, or
# the target of a Markdown link.
_REFERENCE = re.compile(
    r"(?<![\w./\\-])(?:\./)?((?:scripts|references|assets)/[\w./-]*\w)|\]\(([^)\s:#<>]+)\)"
)


class LintFinding(msgspec.Struct, frozen=True, kw_only=True):
    """A problem that was found in a skill. `code` is the name of the rule that the skill violates.

    `unseen` is true if the CLI silently ignores the skill because of this problem.
    """

    file: str
    line: int
    code: str
    level: Level
    message: str
    unseen: bool = False


def finding(file: str, line: int, code: str, message: str, *, unseen: bool = False) -> LintFinding:
    """Create a finding: a violation of the rule `code`. The rule determines the level of the
    finding (error or warning).

    If `unseen` is true, the CLI ignores the skill because of the violation, and this is added to
    the message.
    """
    text = f"{message}: the CLI will not see this skill" if unseen else message
    return LintFinding(file=file, line=line, code=code, level=RULES[code][0], message=text, unseen=unseen)


def lint_skill(file: str, *, in_folder: bool = True) -> list[LintFinding]:
    """Check a SKILL.md and the other files in its folder for errors, and return all findings.

    If `in_folder` is true, a skill whose name differs from the name of its folder is an error too.
    """
    if os.path.exists(file) and not os.path.isfile(file):
        return [finding(file, 1, "unreadable", "is not a regular file", unseen=True)]
    try:
        with open(file, "rb") as source:
            data = source.read()
    except OSError as error:
        return [finding(file, 1, "unreadable", f"cannot be read ({error.strerror})", unseen=True)]
    if data.startswith(b"\xef\xbb\xbf"):
        return [finding(file, 1, "byte-order-mark", "begins with a byte order mark", unseen=True)]
    findings = []
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        findings.append(finding(file, line, "not-utf8", f"is not UTF-8 (byte {error.start})"))
        text = data.decode("utf-8", "replace")
    findings += _lint_head(file, text, in_folder)
    findings += _lint_references(file, text)
    findings += _lint_links(file)
    return findings


def _lint_head(file: str, text: str, in_folder: bool) -> Iterator[LintFinding]:
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
        yield finding(
            file, 2, "not-yaml", "the name or the description is not a valid YAML string; put both in quotes"
        )
    if name:
        yield from _lint_name(file, _line(head, "name"), name, head_of(text).name, in_folder)
    if description and len(description) > _MAX_DESCRIPTION:
        at, size = _line(head, "description"), len(description)
        yield finding(
            file, at, "description-too-long", f"the description has {size} characters; the limit is 1024"
        )


def _lint_name(file: str, line: int, name: str, seen: str, in_folder: bool) -> Iterator[LintFinding]:
    if not _NAME.fullmatch(name):
        message = f"the name {name!r} may have only lowercase letters, digits and single hyphens"
        yield finding(
            file, line, "name-characters", message + (f"; the CLI reads {seen!r}" if seen != name else "")
        )
    if len(name) > _MAX_NAME:
        yield finding(file, line, "name-too-long", f"the name has {len(name)} characters; the limit is 64")
    folder = os.path.basename(os.path.dirname(os.path.abspath(file)))
    if in_folder and name != folder:
        yield finding(file, line, "name-not-folder", f"the name is {name!r}, but the folder is {folder!r}")


def _line(head: str, field: str) -> int:
    """Return the number of the line in the SKILL.md that contains this field of the front matter.
    Return 1 if the field is missing.

    `head` is the front matter. It starts at line 2 of the file.
    """
    for number, line in enumerate(head.splitlines(), 2):
        if re.match(rf"""\s*["']?{field}["']?\s*:""", line):
            return number
    return 1


def _lint_references(file: str, text: str) -> Iterator[LintFinding]:
    parts = split_head(text)
    if parts is None:
        return
    folder = os.path.dirname(os.path.abspath(file))
    before = text[: len(text) - len(parts[1])].count("\n")
    reported = set()
    for number, line in enumerate(parts[1].splitlines(), before + 1):
        for match in _REFERENCE.finditer(line):
            path = match[1] or match[2]
            if (
                path not in reported
                and not path.startswith("/")
                and not os.path.exists(os.path.join(folder, path))
            ):
                reported.add(path)
                yield finding(file, number, "missing-file", f"refers to {path}, which does not exist")


def _lint_links(file: str) -> Iterator[LintFinding]:
    folder = os.path.dirname(os.path.abspath(file))
    try:
        links = links_outside(folder)
    except OSError as error:
        yield finding(file, 1, "unreadable", f"{error.filename} cannot be read ({error.strerror})")
        return
    for path in links:
        yield finding(
            os.path.join(folder, path),
            1,
            "link-outside",
            "the link must be relative and point to a place inside the skill's folder",
        )
