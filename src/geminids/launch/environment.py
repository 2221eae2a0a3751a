"""Build the environment of the CLI, and read `.env` files."""

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

# Variables that could make the CLI send the requests of an offline run to the network.
_NETWORK = (
    "GOOGLE_API_KEY",
    "GOOGLE_GENAI_USE_VERTEXAI",
    "GOOGLE_GENAI_USE_GCA",
    "GOOGLE_VERTEX_BASE_URL",
    "GEMINI_MODEL",
    *(name for proxy in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY") for name in (proxy, proxy.lower())),
)

# Programs need these variables to find their files and to use the user's language.
_NEEDED = ("PATH", "HOME", "TMPDIR", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TERM")
# Prefix of our own variables. A run needs them if a tool of another run started it.
_OURS = "GEMINI_CLI_GEMINIDS_"


class EnvFileProblem(Exception):
    """A line of an env file does not have the form NAME=value."""


def read_env_file(text: str, where: str) -> dict[str, str]:
    """Parse the text of an env file: one NAME=value per line.

    `export`, quotes, comments and blank lines are allowed. Raises `EnvFileProblem` for any other
    line that is not NAME=value. `where` is the file's name for messages.

    >>> read_env_file('export A="x y"  # note\\nB=2', ".env")
    {'A': 'x y', 'B': '2'}
    """
    variables: dict[str, str] = {}
    # Not splitlines: it also splits at characters that no editor treats as the end of a line.
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    for number, raw in enumerate(lines, 1):
        line = raw.strip().removeprefix("export ").strip()
        if not line or line.startswith("#"):
            continue
        name, equals, value = line.partition("=")
        name = name.strip()
        if not equals or not name.replace("_", "a").isalnum():
            # Do not show the line: it may contain a secret.
            raise EnvFileProblem(f"{where}, line {number} is not NAME=value")
        variables[name] = _unquoted(value.strip())
    return variables


def _unquoted(value: str) -> str:
    if value[:1] in ("'", '"'):
        end = value.find(value[0], 1)
        if end > 0:
            return value[1:end]
    return value.partition(" #")[0].rstrip()


def base_environment(
    environ: Mapping[str, str], options: Options, from_file: Mapping[str, str]
) -> dict[str, str]:
    """Return the environment of a run, without the variables that geminids adds later.

    The result contains `environ`, the variables of the env file (`from_file`) and `options.env`. If
    several of them set the same variable, the last one wins.

    If `options.env_only` is set, only some variables of `environ` are used: those that `env_only`
    names, those that every program needs, and geminids' own.
    """
    if options.env_only is not None:
        named = {*options.env_only, *_NEEDED}
        environ = {name: value for name, value in environ.items() if name in named or name.startswith(_OURS)}
    return {**environ, **from_file, **options.env}


def headless_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return `environ` with additional variables. They make the CLI work without a terminal."""
    ours = {
        # Run the CLI as one process: its launcher swallows signals, and killing it orphans the
        # agent (#25590).
        "GEMINI_CLI_NO_RELAUNCH": "true",
        # Without this variable, a login asks for consent on stdout and waits for input on stdin.
        "NO_BROWSER": "true",
    }
    return {**environ, **ours}


def telemetry_environment(outfile: str) -> dict[str, str]:
    """Return the variables that make the CLI write its telemetry to the file `outfile`.

    Settings of the CLI could have the same effect. They are not used, because several runs can
    share a settings file, but each run has its own telemetry file.
    """
    return {
        "GEMINI_TELEMETRY_ENABLED": "true",
        "GEMINI_TELEMETRY_TARGET": "local",
        "GEMINI_TELEMETRY_OUTFILE": outfile,
        "GEMINI_TELEMETRY_LOG_PROMPTS": "false",
    }


def offline_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return `environ` without the variables that could make an offline run use the network."""
    return {name: value for name, value in environ.items() if name not in _NETWORK}


# Whitespace and line ends as JavaScript defines them.
_S = r"[\t-\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff]"
_BLANK = "\t\n\v\f\r \u00a0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff" + "".join(
    map(chr, range(0x2000, 0x200B))
)
_BEGIN, _END = r"(?:\A|(?<=[\n\r\u2028\u2029]))", r"(?=[\n\r\u2028\u2029]|\Z)"
# The regular expression of dotenv (lib/main.js, LINE): a name, `=` or `: `, and a value that is in
# quotes or ends at a comment. It is compiled on first use, because most folders have no `.env`.
_LINE = (
    rf"""{_BEGIN}{_S}*(?:export{_S}+)?([\w.-]+)(?:{_S}*={_S}*?|:{_S}+?)"""
    rf"""({_S}*'(?:\\'|[^'])*'|{_S}*"(?:\\"|[^"])*"|{_S}*`(?:\\`|[^`])*`|[^#\r\n]+)?"""
    rf"""{_S}*(?:\#[^\n\r\u2028\u2029]*)?{_END}"""
)
_QUOTED = rf"""{_BEGIN}(['"`])([\s\S]*)\1{_END}"""
# A name at the start of a line. The name and its `=` can be on two lines.
_NAME = r"^(?=\s?(?:export\s)?([\w.-]+)\s?[=:])"
_LINE_ENDS = frozenset("\n\r\u2028\u2029")


def read_dotenv(text: str) -> dict[str, str]:
    """Parse a `.env` file as the CLI does: ignore everything that is not an assignment.

    >>> read_dotenv('A=1 # one\\nexport B="x\\\\ny"\\nnot a line')
    {'A': '1', 'B': 'x\\ny'}
    """
    variables: dict[str, str] = {}
    for match in re.finditer(_LINE, text.replace("\r\n", "\n").replace("\r", "\n"), re.ASCII):
        value = (match[2] or "").strip(_BLANK)
        quote, value = value[:1], re.sub(_QUOTED, r"\2", value)
        if quote == '"':
            value = value.replace("\\n", "\n").replace("\\r", "\r")
        variables[match[1]] = value
    return variables


def names_in(text: str) -> tuple[str, ...]:
    """Return every variable name that a `.env` file could set.

    The result never misses a name that the file sets, but may contain others. In the example, `B`
    is only a part of the value of `A`.

    >>> names_in('A = "\\nB=2\\n"')
    ('A', 'B')
    """
    # First replace each run of whitespace (as JavaScript defines it) with one character. Otherwise
    # the search takes quadratic time.
    text = re.sub(r"[\s\ufeff]+", lambda run: " " if _LINE_ENDS.isdisjoint(run[0]) else "\n", text)
    return tuple(dict.fromkeys(match[1] for match in re.finditer(_NAME, text, re.MULTILINE)))
