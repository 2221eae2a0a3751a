"""Private homes: the CLI reads our settings there, and its sessions still land where the user finds them."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from geminids.config.paths import SOURCE, Places, private_dir, write_private
from geminids.gemini.settings_file import Settings, SettingsProblem, read_settings
from geminids.gemini.skills.file import read_skill
from geminids.launch.environment import read_dotenv
from geminids.launch.errors import Refused
from geminids.redact import secrets_of

__all__ = [
    "SOURCE",
    "PrivateHome",
    "SourceHome",
    "plan_home",
    "regular_text",
    "secrets_in_files",
    "skill_links",
    "source_home",
    "write_home",
]


def skill_links(home: Path, folders: Sequence[str]) -> dict[str, str]:
    """The links (place in the private home: target) for these skills and the user's own; none for no `folders`.

    Of two with one name the later given wins, and any given one wins over the user's: that one is left out, for the
    CLI would choose by its own rules. Raises `Refused` for a folder that holds no skill.
    """
    if not folders:
        return {}
    given = {_name(folder): os.path.abspath(folder) for folder in folders}
    links: dict[str, str] = {}
    for tier in (".gemini/skills", ".agents/skills"):
        for entry in _entries(home / tier):
            if _name_of_entry(home / tier / entry) not in given:
                links[f"{tier}/{entry}"] = str(home / tier / entry)
    for entry in _entries(home / ".agents"):
        if entry != "skills":
            links[f".agents/{entry}"] = str(home / ".agents" / entry)
    for folder in given.values():
        links[_free_place(folder, links)] = folder
    return links


def _name(folder: str) -> str:
    file = os.path.join(folder, "SKILL.md")
    head = read_skill(file)
    if head.why is not None:
        raise Refused(
            "bad_option",
            f"skills: the CLI would not see {file}: {head.why}",
            f"`geminids skills lint {folder}` tells what is wrong.",
        )
    return head.name


def _name_of_entry(entry: Path) -> str | None:
    """The name of a user's skill, whether it is a folder or the SKILL.md at the top."""
    file = entry if entry.name == "SKILL.md" else entry / "SKILL.md"
    head = read_skill(str(file))
    return head.name if head.why is None else None


def _entries(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _free_place(folder: str, taken: dict[str, str]) -> str:
    """A place of the folder's own name, where that is free and the CLI does not pass over it."""
    name = os.path.basename(folder).lstrip(".") or "skill"
    places = (f".gemini/skills/{name}{more}" for more in ("", *(f"-{n}" for n in range(2, len(taken) + 4))))
    return next(place for place in places if place not in taken and not place.endswith("/node_modules"))


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
_SEPARATOR = "\0"


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


class PrivateHome(msgspec.Struct, frozen=True, kw_only=True):
    """The home that the CLI is given (`GEMINI_CLI_HOME`): its path and its contents. `write_home` writes it."""

    path: Path
    source: SourceHome
    settings: Settings
    files: dict[str, str] = {}
    """Further files, by their path in the home."""
    skill_links: dict[str, str] = {}
    without: tuple[str, ...] = ()
    """Files of the source that it does not link to."""


def plan_home(
    source: SourceHome,
    settings: Settings,
    places: Places,
    *,
    files: Mapping[str, str] = {},
    skills: Mapping[str, str] = {},
    hides_key: bool = False,
) -> PrivateHome:
    """The private home for these settings. Pure.

    `skills` comes from `skill_links`. `hides_key`: nothing in it leads to a file that may hold the API key.

    Its name comes from its contents, so that runs with different settings never share one, and runs with the
    same settings always do.
    """
    without = _WITH_KEYS if hides_key else ()
    contents = (
        str(source.path),
        _settings_text(settings),
        *files.values(),
        *skills,
        *skills.values(),
        *without,
    )
    path = places.homes / f"{source.name}-{_digest(_SEPARATOR.join(contents))}"
    return PrivateHome(
        path=path,
        source=source,
        settings=settings,
        files=dict(files),
        skill_links=dict(skills),
        without=without,
    )


def _settings_text(settings: Settings) -> str:
    return json.dumps(settings, indent=2, sort_keys=True)


def write_home(home: PrivateHome) -> None:
    """Write the home, or what is missing of it; raises OSError."""
    source, links = home.source, home.skill_links
    private_dir(home.path)
    gemini = private_dir(home.path / ".gemini")
    for name in _SHARED:
        target = source.gemini / name
        private_dir(target)
        _link(gemini / name, target)
    for name in (*_LINKED, *_texts(source.gemini)):
        if name in home.without:
            continue
        if (source.gemini / name).exists() and not (links and name == "skills"):
            _link(gemini / name, source.gemini / name)
    for name in (".agents", ".env"):
        if name not in home.without and (source.path / name).exists() and not (links and name == ".agents"):
            _link(home.path / name, source.path / name)
    for name, skill in links.items():
        private_dir((home.path / name).parent)
        _link(home.path / name, Path(skill))
    for name, content in home.files.items():
        private_dir((home.path / name).parent)
        _write_private(home.path / name, content)
    _write_private(gemini / "settings.json", _settings_text(home.settings))
    # On a file system that is read-only the CLI would hang in silence.
    draft = gemini / f".draft-{os.getpid()}-{os.urandom(4).hex()}"
    draft.touch(mode=0o600)
    draft.unlink()


def secrets_in_files(source: SourceHome, cwd: str) -> frozenset[str]:
    """The secrets in files that the CLI reads by itself and hands to its tools and MCP servers.

    It takes the first `.env` that it finds, from the folder upwards and then in the home (settings.ts,
    findEnvFile); here all of them count, since a tool can read them all.
    """
    folders = (Path(cwd), *Path(cwd).parents, source.path)
    found = secrets_of(_mcp_variables(source.settings))
    for file in (folder / name for folder in folders for name in (".gemini/.env", ".env")):
        found |= secrets_of(read_dotenv(regular_text(file) or ""))
    return found


def regular_text(file: Path) -> str | None:
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
    write_private(file, text.encode())
