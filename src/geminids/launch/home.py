"""Private homes: the CLI reads our settings there, and stores sessions in the user's home."""

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
    """Return links (path in the private home: target) for these skills and the user's own.

    Without `folders`, there are no links: the home links the user's folder of skills as a whole.
    If two skills have the same name, the later folder wins, and every folder wins over the user's
    skill. The other skill gets no link, because the CLI would choose between them by its own rules.
    Raises `Refused` if a folder has no skill.
    """
    if not folders:
        return {}
    skills = {_name(folder): os.path.abspath(folder) for folder in folders}
    links: dict[str, str] = {}
    for tier in (".gemini/skills", ".agents/skills"):
        for entry in _entries(home / tier):
            if _name_of_entry(home / tier / entry) not in skills:
                links[f"{tier}/{entry}"] = str(home / tier / entry)
    for entry in _entries(home / ".agents"):
        if entry != "skills":
            links[f".agents/{entry}"] = str(home / ".agents" / entry)
    for folder in skills.values():
        links[_unused_path(folder, links)] = folder
    return links


def _name(folder: str) -> str:
    file = os.path.join(folder, "SKILL.md")
    head = read_skill(file)
    if head.why is not None:
        raise Refused(
            "bad_option",
            f"skills: Gemini CLI would ignore {file}: {head.why}",
            f"Run `geminids skills lint {folder}` for details.",
        )
    return head.name


def _name_of_entry(entry: Path) -> str | None:
    """Return the name of a user's skill. The entry is its folder, or a SKILL.md at the top level."""
    file = entry if entry.name == "SKILL.md" else entry / "SKILL.md"
    head = read_skill(str(file))
    return head.name if head.why is None else None


def _entries(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _unused_path(folder: str, taken: dict[str, str]) -> str:
    """Return an unused path named after the folder.

    The CLI ignores hidden folders and node_modules.
    """
    name = os.path.basename(folder).lstrip(".") or "skill"
    paths = (f".gemini/skills/{name}{more}" for more in ("", *(f"-{n}" for n in range(2, len(taken) + 4))))
    return next(path for path in paths if path not in taken and not path.endswith("/node_modules"))


# Contents of the user's `.gemini` that a run uses. They are linked and not copied, so that a login
# that the CLI refreshes is refreshed for the user too. Never link settings.json,
# trustedFolders.json, projects.json.
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
# Files that may contain an API key.
_WITH_KEYS = (".env", "gemini-credentials.json")
# Linked even if the user has none yet: the CLI must store sessions in the user's home.
_SHARED = ("tmp", "history")
_SEPARATOR = "\0"


class SourceHome(msgspec.Struct, frozen=True):
    """The home whose `.gemini` a run uses, and the settings in it."""

    name: str
    path: Path
    settings: Settings

    @property
    def gemini(self) -> Path:
        return self.path / ".gemini"


def source_home(home: str, environ: Mapping[str, str], places: Places) -> SourceHome:
    """Find the home: the user's own, an isolated one without the user's files, or a path.

    Raises SettingsProblem if its settings.json cannot be read: the CLI would refuse it too.
    """
    if home == "isolated":
        return SourceHome("isolated", places.homes / "isolated", {})
    if home == "user":
        # If a tool of another run started this one, GEMINI_CLI_HOME is that run's private home,
        # with that run's settings. SOURCE names the user's home.
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
    """The home for the CLI (`GEMINI_CLI_HOME`): its path and contents. `write_home` writes it."""

    path: Path
    source: SourceHome
    settings: Settings
    files: dict[str, str] = {}
    """More files, by their path in the home."""
    skill_links: dict[str, str] = {}
    without: tuple[str, ...] = ()
    """Files of the source home that are not linked."""


def plan_home(
    source: SourceHome,
    settings: Settings,
    places: Places,
    *,
    files: Mapping[str, str] = {},
    skills: Mapping[str, str] = {},
    hides_key: bool = False,
) -> PrivateHome:
    """Plan the private home for these settings. Pure.

    `skills` comes from `skill_links`. `hides_key`: do not link files that may contain the API key.

    The name of the home is a hash of its contents: runs with the same settings share a home, and
    runs with different settings do not.
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
    """Write the home, or the parts that are missing; raises OSError."""
    source, links = home.source, home.skill_links
    private_dir(home.path)
    gemini = private_dir(home.path / ".gemini")
    for name in _SHARED:
        target = source.gemini / name
        private_dir(target)
        _link(gemini / name, target)
    for name in (*_LINKED, *_context_files(source.gemini)):
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
    # Fail here if the file system is read-only: the CLI would hang without a message.
    draft = gemini / f".draft-{os.getpid()}-{os.urandom(4).hex()}"
    draft.touch(mode=0o600)
    draft.unlink()


def secrets_in_files(source: SourceHome, cwd: str) -> frozenset[str]:
    """Return the secrets in files that the CLI reads and passes to its tools and MCP servers.

    The CLI reads only the first `.env`, from the folder upwards and then in the home (settings.ts,
    findEnvFile). This function reads all of them, because a tool can read them all.
    """
    folders = (Path(cwd), *Path(cwd).parents, source.path)
    secrets = secrets_of(_mcp_variables(source.settings))
    for file in (folder / name for folder in folders for name in (".gemini/.env", ".env")):
        secrets |= secrets_of(read_dotenv(regular_text(file) or ""))
    return secrets


def regular_text(file: Path) -> str | None:
    """Return the text of a regular file, else None.

    Reading another kind, such as a FIFO, could block forever.
    """
    try:
        return file.read_text("utf-8", "replace") if file.is_file() else None
    except OSError:
        return None


def _mcp_variables(settings: Settings) -> dict[str, str]:
    servers = settings.get("mcpServers")
    variables: dict[str, str] = {}
    for server in servers.values() if isinstance(servers, dict) else ():
        env = server.get("env") if isinstance(server, dict) else None
        variables |= (
            {f"{len(variables)}_{k}": v for k, v in env.items() if isinstance(v, str)}
            if isinstance(env, dict)
            else {}
        )
    return variables


def _digest(text: str) -> str:
    """Hash the contents of a home for its name.

    Not with hashlib: it loads OpenSSL, which delays the spawn by 16 ms, and this hash need not be
    secure.
    """
    data = text.encode("utf-8", "surrogateescape")
    return f"{zlib.crc32(data):08x}{zlib.crc32(data[::-1]):08x}"


def _context_files(folder: Path) -> list[str]:
    """Return the Markdown files in a folder: `context.fileName` may name any of them."""
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
        return  # keep it: the CLI replaced the link by its own file
    try:
        link.symlink_to(target)
    except FileExistsError:
        pass  # another run created the same link at the same time


def _write_private(file: Path, text: str) -> None:
    try:
        if file.read_text("utf-8") == text:
            return
    except OSError:
        pass
    write_private(file, text.encode())
