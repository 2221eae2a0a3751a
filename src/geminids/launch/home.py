"""Private homes: the CLI reads our settings there, and its sessions still land where the user finds them."""

from __future__ import annotations

import json
import os
import sys
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from geminids.config.places import SOURCE, Places, private_dir
from geminids.launch.dotenv import read_dotenv
from geminids.launch.settings import Settings, SettingsProblem, read_settings
from geminids.redact import secrets_of

__all__ = [
    "SOURCE",
    "SourceHome",
    "secrets_in_files",
    "source_home",
    "system_settings_file",
    "variables_of",
    "write_home",
]

# Of the user's folder, what a run shall see: texts, skills, agents, extensions, policies and logins. Links, so
# that a login which the CLI refreshes stays refreshed. Never settings.json, trustedFolders.json, projects.json.
_LINKED = (
    "skills",
    "extensions",
    "agents",
    "commands",
    "policies",
    "oauth_creds.json",
    "google_accounts.json",
    "mcp-oauth-tokens.json",
    "mcp-oauth-tokens-v2.json",
    "gemini-credentials.json",
    "installation_id",
    ".env",
)
# Where the CLI or its user keeps an API key.
_WITH_KEYS = (".env", "gemini-credentials.json")
# Linked even where the user has none yet: sessions must land in the user's own tree.
_SHARED = ("tmp", "history")


class SourceHome(msgspec.Struct, frozen=True):
    """The home whose `.gemini` a run builds on, with the settings found in it."""

    name: str
    path: Path
    settings: Settings

    @property
    def gemini(self) -> Path:
        return self.path / ".gemini"


def source_home(home: str, environ: Mapping[str, str], places: Places) -> SourceHome:
    """`user`: the user's own; `isolated`: one that holds nothing of the user's; else a folder given by path.

    Raises SettingsProblem where its settings.json cannot be read: the CLI would refuse it too.
    """
    if home == "isolated":
        return SourceHome("isolated", places.homes / "isolated", {})
    if home == "user":
        # A run within a run: the outer one's private home is not the user's, and its limits are not for us.
        named = environ.get(SOURCE) or environ.get("GEMINI_CLI_HOME") or environ.get("HOME")
        path = Path(named or os.path.expanduser("~")).absolute()
    else:
        path = Path(home).absolute()
    file = path / ".gemini" / "settings.json"
    try:
        settings = read_settings(file.read_text("utf-8"), str(file))
    except (FileNotFoundError, NotADirectoryError):
        settings = {}
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsProblem(f"{file} cannot be read: {error}") from None
    return SourceHome("user" if home == "user" else "given", path, settings)


def write_home(
    source: SourceHome,
    settings: Settings,
    places: Places,
    *,
    files: Mapping[str, str] = {},
    skills: Sequence[str] = (),
    hides_key: bool = False,
) -> Path:
    """Make (or find again) the private home for these settings; return what GEMINI_CLI_HOME shall be.

    `hides_key`: nothing in it leads to a file that may hold the API key.

    Its name comes from its contents, so that runs with different settings never share one, and runs with the
    same settings always do. Raises `Refused` where one of `skills` is none.
    """
    text = json.dumps(settings, indent=2, sort_keys=True)
    links = _skill_links(source, skills)
    without = _WITH_KEYS if hides_key else ()
    key = _digest("\0".join((str(source.path), text, *files.values(), *links, *links.values(), *without)))
    home = private_dir(places.homes / f"{source.name}-{key}")
    gemini = private_dir(home / ".gemini")
    for name in _SHARED:
        target = source.gemini / name
        private_dir(target)
        _link(gemini / name, target)
    for name in (*_LINKED, *_texts(source.gemini)):
        if name in without:
            continue
        if (source.gemini / name).exists() and not (links and name == "skills"):
            _link(gemini / name, source.gemini / name)
    for name in (".agents", ".env"):
        if name not in without and (source.path / name).exists() and not (links and name == ".agents"):
            _link(home / name, source.path / name)
    for name, skill in links.items():
        private_dir((home / name).parent)
        _link(home / name, Path(skill))
    for name, content in files.items():
        private_dir((home / name).parent)
        _write_private(home / name, content)
    _write_private(gemini / "settings.json", text)
    # On a file system that is read-only the CLI would hang in silence.
    draft = gemini / f".draft-{os.getpid()}-{os.urandom(4).hex()}"
    draft.touch(mode=0o600)
    draft.unlink()
    return home


def _skill_links(source: SourceHome, skills: Sequence[str]) -> dict[str, str]:
    if not skills:
        return {}
    from geminids.launch.home_skills import skill_links  # imported late: few runs bring skills

    return skill_links(source.path, skills)


def variables_of(source: SourceHome, only: tuple[str, ...] | None) -> dict[str, str]:
    """The variables in the user's own `.env`, which the CLI does not read for a folder that it does not trust.

    It would take the first of the two (settings.ts, findEnvFile).
    """
    for file in (source.gemini / ".env", source.path / ".env"):
        text = _regular(file)
        if text is None:
            continue
        found = read_dotenv(text)
        return {name: value for name, value in found.items() if only is None or name in only}
    return {}


def secrets_in_files(source: SourceHome, cwd: str) -> frozenset[str]:
    """The secrets in files that the CLI reads by itself and hands to its tools and MCP servers.

    It takes the first `.env` that it finds, from the folder upwards and then in the home (settings.ts,
    findEnvFile); here all of them count, since a tool can read them all.
    """
    folders = (Path(cwd), *Path(cwd).parents, source.path)
    found = secrets_of(_mcp_variables(source.settings))
    for file in (folder / name for folder in folders for name in (".gemini/.env", ".env")):
        found |= secrets_of(read_dotenv(_regular(file) or ""))
    return found


def _regular(file: Path) -> str | None:
    """The text of a file; None where there is none, or where reading could wait for ever (a FIFO)."""
    try:
        return file.read_text("utf-8", "replace") if file.is_file() else None
    except OSError:
        return None


def _mcp_variables(settings: Settings) -> dict[str, str]:
    servers = settings.get("mcpServers")
    found: dict[str, str] = {}
    for server in servers.values() if isinstance(servers, dict) else ():
        env = server.get("env") if isinstance(server, dict) else None
        found |= (
            {f"{len(found)}_{k}": v for k, v in env.items() if isinstance(v, str)}
            if isinstance(env, dict)
            else {}
        )
    return found


def system_settings_file(settings: Settings, environ: Mapping[str, str], places: Places) -> Path:
    """A file for GEMINI_CLI_SYSTEM_SETTINGS_PATH, with what the machine's own system settings say in it too."""
    settings = _joined(settings, _machines(environ))
    text = json.dumps(settings, indent=2, sort_keys=True)
    key = _digest(text)
    file = private_dir(places.homes) / f"system-{key}.json"
    _write_private(file, text)
    return file


def _machines(environ: Mapping[str, str]) -> Settings:
    """The settings of whoever runs this machine: they outrank everybody's, and ours stand in their place."""
    named = environ.get("GEMINI_CLI_SYSTEM_SETTINGS_PATH")
    usual = (
        "/Library/Application Support/GeminiCli/settings.json"
        if sys.platform == "darwin"
        else "/etc/gemini-cli/settings.json"
    )
    file = Path(named or usual)
    try:
        return read_settings(file.read_text("utf-8"), str(file))
    except (OSError, UnicodeDecodeError):
        return {}


def _joined(under: Settings, over: Settings) -> Settings:
    """`over` on top of `under`, lists joined: neither takes from what the other forbids."""
    joined = dict(under)
    for name, value in over.items():
        below = joined.get(name)
        if isinstance(below, dict) and isinstance(value, dict):
            joined[name] = _joined(below, value)
        elif isinstance(below, list) and isinstance(value, list):
            joined[name] = [*below, *(one for one in value if one not in below)]
        else:
            joined[name] = value
    return joined


def _digest(text: str) -> str:
    """A name for some contents. Not hashlib: that loads OpenSSL, 16 ms before the spawn, and nobody is kept out."""
    data = text.encode("utf-8", "surrogateescape")
    return f"{zlib.crc32(data):08x}{zlib.crc32(data[::-1]):08x}"


def _texts(folder: Path) -> list[str]:
    """GEMINI.md, and whatever else `context.fileName` may name."""
    try:
        return [name for name in os.listdir(folder) if name.endswith(".md")]
    except OSError:
        return []


def _link(link: Path, target: Path) -> None:
    try:
        if os.readlink(link) == str(target):
            return
        link.unlink()
    except FileNotFoundError:
        pass
    except OSError:
        return  # the CLI has put a file of its own there: it stays
    try:
        link.symlink_to(target)
    except FileExistsError:
        pass  # another run was faster, with the same target


def _write_private(file: Path, text: str) -> None:
    try:
        if file.read_text("utf-8") == text:
            return
    except OSError:
        pass
    draft = file.with_name(f".{file.name}.{os.getpid()}.{os.urandom(4).hex()}")
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8") as out:
        out.write(text)
    os.replace(draft, file)
