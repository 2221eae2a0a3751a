"""The environment of the CLI: this process, the env file, the options, and the `.env` files that it would read."""

from __future__ import annotations

import re
from collections.abc import Mapping

from geminids.options import Options

__all__ = [
    "EnvFileProblem",
    "base_environment",
    "headless_environment",
    "names_in",
    "offline_environment",
    "read_dotenv",
    "read_env_file",
    "telemetry_environment",
]

# Whatever would lead an offline run away from the loopback.
_AWAY = (
    "GOOGLE_API_KEY",
    "GOOGLE_GENAI_USE_VERTEXAI",
    "GOOGLE_GENAI_USE_GCA",
    "GOOGLE_VERTEX_BASE_URL",
    "GEMINI_MODEL",
    *(name for proxy in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY") for name in (proxy, proxy.lower())),
)

# Without these a program does not find its files, or speaks another language than its user.
_NEEDED = ("PATH", "HOME", "TMPDIR", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TERM")
# Whose run this is, where it is a run within a run.
_OURS = "GEMINI_CLI_GEMINIDS_"


class EnvFileProblem(Exception):
    """A line of an env file that is not NAME=value."""


def read_env_file(text: str, where: str) -> dict[str, str]:
    """NAME=value lines; `export`, quotes, comments and blank lines are understood.

    >>> read_env_file('export A="x y"  # note\\nB=2', ".env")
    {'A': 'x y', 'B': '2'}
    """
    found: dict[str, str] = {}
    # Not splitlines: that would cut a value at characters that end no line in any editor.
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    for number, raw in enumerate(lines, 1):
        line = raw.strip().removeprefix("export ").strip()
        if not line or line.startswith("#"):
            continue
        name, equals, value = line.partition("=")
        name = name.strip()
        if not equals or not name.replace("_", "a").isalnum():
            # The line itself is not shown: it may hold a secret.
            raise EnvFileProblem(f"{where}, line {number}: not NAME=value")
        found[name] = _unquoted(value.strip())
    return found


def _unquoted(value: str) -> str:
    if value[:1] in ("'", '"'):
        end = value.find(value[0], 1)
        if end > 0:
            return value[1:end]
    return value.partition(" #")[0].rstrip()


def base_environment(
    environ: Mapping[str, str], options: Options, from_file: Mapping[str, str]
) -> dict[str, str]:
    """This process's variables (with `env_only`, the named ones alone), then the env file's, then the caller's."""
    if options.env_only is not None:
        named = {*options.env_only, *_NEEDED}
        environ = {name: value for name, value in environ.items() if name in named or name.startswith(_OURS)}
    return {**environ, **from_file, **options.env}


def headless_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """What every headless run needs, where the caller has not decided otherwise."""
    ours = {
        # One process: the launcher swallows signals, and its kill would orphan the agent (#25590).
        "GEMINI_CLI_NO_RELAUNCH": "true",
        # Else a login asks for consent on stdout and waits on stdin.
        "NO_BROWSER": "true",
    }
    return {**environ, **ours}


def telemetry_environment(outfile: str) -> dict[str, str]:
    """Variables that make the CLI write its telemetry to a file; as settings, each run would need its own home."""
    return {
        "GEMINI_TELEMETRY_ENABLED": "true",
        "GEMINI_TELEMETRY_TARGET": "local",
        "GEMINI_TELEMETRY_OUTFILE": outfile,
        "GEMINI_TELEMETRY_LOG_PROMPTS": "false",
    }


def offline_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without anything that would lead an offline run away from loopback."""
    return {name: value for name, value in environ.items() if name not in _AWAY}


# Blanks and ends of lines as JavaScript knows them.
_S = r"[\t-\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff]"
_BLANK = "\t\n\v\f\r \u00a0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff" + "".join(
    map(chr, range(0x2000, 0x200B))
)
_BEGIN, _END = r"(?:\A|(?<=[\n\r\u2028\u2029]))", r"(?=[\n\r\u2028\u2029]|\Z)"
# dotenv's own expression (lib/main.js, LINE): a name, `=` (or `: `), a value in quotes or up to a comment.
# A text, not compiled yet: most folders have no such file.
_LINE = (
    rf"""{_BEGIN}{_S}*(?:export{_S}+)?([\w.-]+)(?:{_S}*={_S}*?|:{_S}+?)"""
    rf"""({_S}*'(?:\\'|[^'])*'|{_S}*"(?:\\"|[^"])*"|{_S}*`(?:\\`|[^`])*`|[^#\r\n]+)?"""
    rf"""{_S}*(?:\#[^\n\r\u2028\u2029]*)?{_END}"""
)
_QUOTED = rf"""{_BEGIN}(['"`])([\s\S]*)\1{_END}"""
# Where a line begins, and what stands there; a name and its `=` can be on two lines.
_NAME = r"^(?=\s?(?:export\s)?([\w.-]+)\s?[=:])"
_LINE_ENDS = frozenset("\n\r\u2028\u2029")


def read_dotenv(text: str) -> dict[str, str]:
    """The variables in a `.env` file; what is no assignment is passed over, as the CLI does.

    >>> read_dotenv('A=1 # one\\nexport B="x\\\\ny"\\nnot a line')
    {'A': '1', 'B': 'x\\ny'}
    """
    found: dict[str, str] = {}
    for match in re.finditer(_LINE, text.replace("\r\n", "\n").replace("\r", "\n"), re.ASCII):
        value = (match[2] or "").strip(_BLANK)
        quote, value = value[:1], re.sub(_QUOTED, r"\2", value)
        if quote == '"':
            value = value.replace("\\n", "\n").replace("\\r", "\r")
        found[match[1]] = value
    return found


def names_in(text: str) -> tuple[str, ...]:
    """Every name that could be set by a `.env` file, however oddly it is written: rather one too many.

    >>> names_in('A = "\\nB=2\\n"')
    ('A', 'B')
    """
    # Blanks as JavaScript knows them, each run of them one: the search then takes time by length, not by its square.
    text = re.sub(r"[\s\ufeff]+", lambda run: " " if _LINE_ENDS.isdisjoint(run[0]) else "\n", text)
    return tuple(dict.fromkeys(match[1] for match in re.finditer(_NAME, text, re.MULTILINE)))
