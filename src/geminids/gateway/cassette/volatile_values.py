"""Replace volatile values in texts: values that differ from run to run, such as dates, times, ids
and process ids. This module does no I/O.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable

__all__ = [
    "Day",
    "Days",
    "days_of",
    "shorten",
    "sorted_skills",
    "tool_output",
    "user_instructions",
    "without_cassette",
    "without_run_ids",
    "without_times",
]

Day = tuple[int, int, int]

_MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]
_WEEKDAY = r"(?:(?:Mon|Tues?|Wed(?:nes)?|Thu(?:rs)?|Fri|Sat(?:ur)?|Sun)(?:day)?,? +)?"
_UUID = re.compile(r"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b")
_TOKEN = re.compile(r"\bgeminids-run-[0-9a-f]{48}\b")
# Ids that the CLI gives to tool calls. An id consists of the tool name, milliseconds and a number.
# File names can contain such an id.
_CALL = re.compile(r"\b[A-Za-z]\w*?[_-]1[6-9]\d{11}[_-][0-9a-f]+\b")
_CLI = re.compile(r"/[^\s\"'`<>()]*?/@google/gemini-cli(?:-core)?(?=/)")
# Temporary folders that Python, mktemp, pytest and Node create.
_TEMP = re.compile(
    r"(?<![\w.-])/(?:private/)?(?:tmp|var/tmp|var/folders/\w+/\w+/T)/"
    r"(?:tmp[a-z0-9_]{8}|tmp\.\w{6,}|pytest-of-[^/\s]+/pytest-\d+|[\w.]+-(?=[a-z]*[0-9A-Z])\w{6})(?![\w.-])"
)
# Lists of skills in a request: a list in the system instruction, and names in the declaration of a
# tool (core/src/prompts and core/src/tools/activate-skill.ts).
_SKILL = re.compile(r"<skill>.*?</skill>", re.DOTALL)
_SKILL_LIST = re.compile(r"<skill>.*?</skill>(?:\s*<skill>.*?</skill>)+", re.DOTALL)
_SKILL_NAMES = re.compile(r"(?<=\(Available: )'[^']+'(?:, '[^']+')+(?=\))")
_CLOCK = r"\d{1,2}:\d\d(?::\d\d(?:[.,]\d+)?)?(?: ?[AP]M)?"
_IN_RESULTS = (
    (re.compile(rf"(?<=[\d>])T{_CLOCK}(?:Z|[+-]\d\d:?\d\d)?"), "T<time>"),
    (re.compile(rf"(?<![\w:.]){_CLOCK}(?:Z|[+-]\d\d:?\d\d)?(?![\w:])"), "<time>"),
    (re.compile(r"(?<![\w.])\d+(?:\.\d+)? ?(?:ms|s|secs?|seconds?)\b"), "<duration>"),
    (re.compile(r"(?<![\w.])1[6-9]\d{8}(?:\.\d+|\d{3})?(?![\w.])"), "<epoch>"),
    (re.compile(r"(?i)\b(pid|ppid|pgid)( ?[:=]? ?)\d+\b"), r"\1\2<pid>"),
    (re.compile(r"\b(127\.0\.0\.1|localhost):\d+\b"), r"\1:<port>"),
    (re.compile(r"\b0x[0-9a-fA-F]{6,16}\b"), "<address>"),
    (re.compile(r"\b(?:[0-9a-f]{64}|[0-9a-f]{40})\b"), "<hash>"),
    (re.compile(r"(?<=\[)([\w/.-]+(?: \(root-commit\))?) [0-9a-f]{7,12}(?=\])"), r"\1 <hash>"),
)


def days_of(*seconds: float) -> frozenset[Day]:
    """Return the dates (year, month, day) of these Unix times, both in local time and in UTC."""
    return frozenset(
        (day.tm_year, day.tm_mon, day.tm_mday)
        for at in seconds
        for day in (time.localtime(at), time.gmtime(at))
    )


class Days:
    """Replaces the given dates in texts with `<today>`, in all common notations. Other dates stay
    unchanged.

    >>> Days([(2026, 11, 16)]).text("on Monday, November 16, 2026 and on 2026-11-17")
    'on <today> and on 2026-11-17'
    """

    def __init__(self, days: Iterable[Day]) -> None:
        sorted_days = sorted(days)
        self._full = re.compile("|".join(form for day in sorted_days for form in _full_forms(*day)) or "(?!)")
        self._short = re.compile("|".join(_short_form(*day) for day in sorted_days) or "(?!)")

    def text(self, text: str) -> str:
        """Return the text with the dates replaced. Only dates that are written with a year are
        replaced.
        """
        return self._full.sub("<today>", text)

    def result(self, text: str) -> str:
        """Return the output of a tool with the dates replaced. Dates in the formats of
        commands such as `date` and `ls` are replaced too, even if they have no year, for example
        `Nov 16 13:25`.
        """
        return self._short.sub("<today>", self.text(text))


def _full_forms(year: int, month: int, day: int) -> tuple[str, ...]:
    long = _MONTHS[month - 1]
    name = f"(?:{long}|{long[:3]})"
    numbers = (
        f"{year}([-/.]?){month:02}#{day:02}",
        f"{month:02}([/.-]){day:02}#{year}",
        f"{day:02}([/.-]){month:02}#{year}",
    )
    return (
        rf"\b{_WEEKDAY}{name} +{day},? {year}\b",
        rf"\b{_WEEKDAY}0?{day} {name} {year}\b",
        *(rf"(?<!\d){_without_groups(form)}(?!\d)" for form in numbers),
    )


def _without_groups(form: str) -> str:
    """Expand a date pattern into alternatives, one for each separator, such as `-` or `/`. In
    `form`, a group matches the first separator, and the character `#` stands for the same separator
    again.

    A back-reference to the separator is not possible, because it needs the number of the
    separator's group. This number is not known here, because the pattern becomes a part of a larger
    pattern with other groups.
    """
    before, _, rest = form.partition("([")
    signs, optional, rest = rest.partition("]?)") if "]?)" in rest else rest.partition("])")
    kinds = [re.escape(sign) for sign in signs] + ([""] if "?" in optional else [])
    return "(?:" + "|".join(before + kind + rest.replace("#", kind) for kind in kinds) + ")"


def _short_form(year: int, month: int, day: int) -> str:
    clock = rf"(?: +(?:{_CLOCK}|<time>)(?: [A-Z]{{2,5}})?)?"
    return rf"\b{_WEEKDAY}{_MONTHS[month - 1][:3]} +{day}\b{clock}(?: {year}\b)?"


def sorted_skills(text: str) -> str:
    """Return the text with its lists of skills sorted by name. This is needed because the CLI lists
    its built-in skills in the order in which it happened to read their files.

    >>> sorted_skills("by name (Available: 'b', 'a').")
    "by name (Available: 'a', 'b')."
    """
    text = _SKILL_NAMES.sub(lambda match: ", ".join(sorted(match[0].split(", "))), text)
    return _SKILL_LIST.sub(lambda match: "\n".join(sorted(_SKILL.findall(match[0]))), text)


def without_run_ids(text: str) -> str:
    """Return the text with the ids of a run, the paths of temporary folders, and the path of the
    CLI installation replaced with placeholders.
    """
    if "/@google/gemini-cli" in text:  # search first, because the pattern tries every slash
        text = _CLI.sub("<cli>", text)
    text = _CALL.sub("<call>", text)
    return _UUID.sub("<uuid>", _TOKEN.sub("***", _TEMP.sub("<tmp>", text)))


def without_times(text: str) -> str:
    """Return the output of a tool with times, process ids, ports, hashes and similar values
    replaced with placeholders.

    >>> without_times("2 passed in 0.31s at 13:25:32, pid 4711")
    '2 passed in <duration> at <time>, pid <pid>'
    """
    for pattern, word in _IN_RESULTS:
        text = pattern.sub(word, text)
    return text


_TREE = re.compile(r"^(?:[│ ]*[├└]─+.*|Showing up to \d+ items.*|(?:/.*|<[\w ]+>)/)\n?", re.MULTILINE)
_CLI_CONTEXT = re.compile(
    r"^(?:Today's date is .*|My operating system is: .*|The project's temporary directory is: .*"
    r"|I'm currently working in the .*|- \*\*Workspace Directories:\*\*|- \*\*Directory Structure:\*\*|  - .*"
    r"|Here is the folder structure of .*|</?session_context>|This is the Gemini CLI\. We are setting up .*"
    r"|Reminder: Do not return an empty response .*|My setup is complete\. .*)\n?",
    re.MULTILINE,
)
_BLANK = re.compile(r"\n\s*\n")


def user_instructions(text: str) -> str:
    """Return only the user's instructions from the context text, which the CLI adds to each
    conversation. The date, the operating system and the folders are removed.
    """
    return _BLANK.sub("\n", _CLI_CONTEXT.sub("", _TREE.sub("", text))).strip()


_SHELL_TAIL = re.compile(
    r"^(?:Error: \(none\)|Exit Code: 0|Signal: (?:0|\(none\))|(?:Background PIDs|Process Group PGID): .*)(?:\n|\Z)",
    re.MULTILINE,
)
_TOO_LARGE = re.compile(r"\AOutput too large\. Showing .* For full output see: .*\n")
_FENCE = re.compile(r"^</?untrusted_context>(?:\n|\Z)", re.MULTILINE)
_SIZES = re.compile(r"(?: \(\d+ bytes\))+$", re.MULTILINE)
_UPDATED = re.compile(r" Here is the updated code:\n.*", re.DOTALL)


def tool_output(tool: str, text: str) -> str:
    """Return the output of the tool named `tool` without the text that the CLI adds: tags, file
    sizes, process ids, and the new content of a changed file.
    """
    text = _TOO_LARGE.sub("", _FENCE.sub("", text))
    if tool == "run_shell_command":
        text = _SHELL_TAIL.sub("", text)
    elif tool == "list_directory":
        text = _SIZES.sub("", text)
    elif tool in ("write_file", "replace"):
        text = _UPDATED.sub("", text)
    return text.rstrip()


_PART = r"[^\s/\"']+\.[0-9a-f]{8}\.part"


def without_cassette(name: str, text: str) -> str:
    """Return the output of a tool without the lines that end with a name of the cassette file. This
    name is `name` during a replay, and a temporary name (`….part`) during a recording. If these
    lines stayed, the output of a tool that lists files would differ between recording and replay.

    >>> without_cassette("fix.jsonl", "files:\\n  a.py\\n  fix.jsonl.0a1b2c3d.part\\n  fix.jsonl")
    'files:\\n  a.py'
    """
    if not name or not (name in text or ".part" in text):
        return text
    line = re.compile(rf"^(?:.*[ \t/\"'])?(?:{re.escape(name)}|{_PART})[\"']?(?:\n|\Z)", re.MULTILINE)
    return line.sub("", text).rstrip()


# Lengths in characters. Newer CLI releases keep 8,000 characters of the beginning and 32,000 of the
# end of a shell command's output, including what the CLI adds.
_MAX_LENGTH = 36_000
_BEGINNING = 4_000
_END = 16_000


def shorten(tool: str, text: str) -> str:
    """Return the output of a tool, with the middle removed if it is a long output of the shell
    tool. This is needed because the CLI also removes the middle of such an output, at a position
    that differs from run to run.
    """
    if tool != "run_shell_command" or len(text) <= _MAX_LENGTH:
        return text
    return f"{text[:_BEGINNING]}\n<much>\n{text[-_END:]}"
