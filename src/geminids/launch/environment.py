"""The environment of the CLI: this process's, the env file's, the caller's, and what headless runs need."""

from __future__ import annotations

from collections.abc import Mapping

from geminids.options import Options

__all__ = [
    "EnvFileProblem",
    "base_environment",
    "headless_environment",
    "offline_environment",
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
