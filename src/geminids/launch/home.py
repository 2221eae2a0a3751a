"""Create the private home of a run: a home folder for the CLI, with our settings.

Links in the private home lead to the user's home, where the CLI stores its sessions.
"""

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
    """Return the links that add skills to a private home: path in the private home → target.

    `home` is the user's home; `folders` are the skill folders in the option `skills`. If `folders`
    is empty, the result is empty too: `write_home` then creates one link to the user's skills
    folder. Otherwise, the result also includes one link for each of the user's own skills.

    If several skills have the same name, only one of them gets a link, because otherwise the CLI
    would choose one by its own rules. A skill in `folders` is preferred to a skill of the user, and
    a later entry of `folders` to an earlier one.

    Raises `Refused` if a folder contains no valid skill.
    """
    if not folders:
        return {}
    skills = {_skill_name(folder): os.path.abspath(folder) for folder in folders}
    links: dict[str, str] = {}
    for parent in (".gemini/skills", ".agents/skills"):
        for entry in _entries(home / parent):
            if _user_skill_name(home / parent / entry) not in skills:
                links[f"{parent}/{entry}"] = str(home / parent / entry)
    for entry in _entries(home / ".agents"):
        if entry != "skills":
            links[f".agents/{entry}"] = str(home / ".agents" / entry)
    for folder in skills.values():
        links[_unused_path(folder, links)] = folder
    return links


def _skill_name(folder: str) -> str:
    file = os.path.join(folder, "SKILL.md")
    head = read_skill(file)
    if head.why is not None:
        raise Refused(
            "bad_option",
            f"`skills`: Gemini CLI would ignore {file}: {head.why}",
            f"Run `geminids skills lint {folder}` for details.",
        )
    return head.name


def _user_skill_name(entry: Path) -> str | None:
    """Return the name of one of the user's skills, or None if the skill is not valid.

    `entry` is the skill's folder, or a SKILL.md that is directly in the skills folder.
    """
    file = entry if entry.name == "SKILL.md" else entry / "SKILL.md"
    head = read_skill(str(file))
    return head.name if head.why is None else None


def _entries(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _unused_path(folder: str, taken: dict[str, str]) -> str:
    """Return an unused path in the private home for a skill, named after the skill's `folder`.

    `taken` contains the paths that are already used. The returned path does not end in a hidden
    name (`.name`) or in node_modules, because the CLI ignores such folders.
    """
    name = os.path.basename(folder).lstrip(".") or "skill"
    paths = (f".gemini/skills/{name}{more}" for more in ("", *(f"-{n}" for n in range(2, len(taken) + 4))))
    return next(path for path in paths if path not in taken and not path.endswith("/node_modules"))


# Contents of the user's `.gemini` that a run uses. They are linked, not copied: if the CLI
# refreshes a login, it must update the user's file. Never link settings.json, trustedFolders.json
# or projects.json.
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
# These folders are always linked, because the CLI must store sessions in the user's home. If they
# are missing there, they are created.
_SHARED = ("tmp", "history")
_SEPARATOR = "\0"


class SourceHome(msgspec.Struct, frozen=True):
    """The home whose `.gemini` folder a run uses, and the settings in it.

    `name` is "user", "isolated" or "given" (the option `home` is the path of a folder).
    """

    name: str
    path: Path
    settings: Settings

    @property
    def gemini(self) -> Path:
        return self.path / ".gemini"


def source_home(home: str, environ: Mapping[str, str], places: Places) -> SourceHome:
    """Return the home that the option `home` selects.

    `home` is "user" (the user's own home), "isolated" (a home without the user's files) or a path.
    Raises `SettingsProblem` if the home's settings.json cannot be read. The CLI would not start
    with such a file.
    """
    if home == "isolated":
        return SourceHome("isolated", places.homes / "isolated", {})
    if home == "user":
        # If a tool of another run started this run, GEMINI_CLI_HOME is the private home of that
        # other run. The variable SOURCE then contains the path of the user's home.
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
    """The private home of a run: the home folder that its CLI uses (`GEMINI_CLI_HOME`).

    `write_home` creates it at `path`, with links to the files of `source`. `skill_links` is the
    result of the function `skill_links`.
    """

    path: Path
    source: SourceHome
    settings: Settings
    files: dict[str, str] = {}
    """Further files to write: path in the private home → text."""
    skill_links: dict[str, str] = {}
    without: tuple[str, ...] = ()
    """Names of files in the source home that are not linked."""


def plan_home(
    source: SourceHome,
    settings: Settings,
    places: Places,
    *,
    files: Mapping[str, str] = {},
    skills: Mapping[str, str] = {},
    hides_key: bool = False,
) -> PrivateHome:
    """Plan the private home for these settings: choose its path and contents, but write nothing.

    A private home is the folder that the CLI uses instead of the user's `~/.gemini`. It has links
    to the files of `source`, the user's home. If `hides_key` is True, there are no links to files
    that may contain the API key. `files` are further files to write (path in the home → text).
    `skills` is the result of `skill_links`.

    The name of the home contains a hash of its contents. So runs with the same contents share a
    home, and other runs use different homes.
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
    """Write the private home: create what is missing, and update the files that differ.

    Raises `OSError` if a file, folder or link cannot be created.
    """
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
    # Test that new files can be created, and raise `OSError` if not. On a read-only file system,
    # the CLI would hang without a message.
    draft = gemini / f".draft-{os.getpid()}-{os.urandom(4).hex()}"
    draft.touch(mode=0o600)
    draft.unlink()


def secrets_in_files(source: SourceHome, cwd: str) -> frozenset[str]:
    """Return the secrets in `.env` files and in the user's settings for MCP servers.

    The function reads the `.env` files in `cwd`, in the folders above `cwd`, and in the home
    `source`. The CLI reads only the first of these files (settings.ts, findEnvFile), but a tool can
    read all of them.
    """
    folders = (Path(cwd), *Path(cwd).parents, source.path)
    secrets = secrets_of(_mcp_variables(source.settings))
    for file in (folder / name for folder in folders for name in (".gemini/.env", ".env")):
        secrets |= secrets_of(read_dotenv(regular_text(file) or ""))
    return secrets


def regular_text(file: Path) -> str | None:
    """Return the text of a regular file, or None if it cannot be read or is not a regular file.

    Reading another kind of file, such as a FIFO, could block forever.
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
    """Return a hash of a home's contents, for the name of the home.

    The function does not use hashlib, because that loads OpenSSL, which delays the start by 16 ms.
    The hash need not be secure.
    """
    data = text.encode("utf-8", "surrogateescape")
    return f"{zlib.crc32(data):08x}{zlib.crc32(data[::-1]):08x}"


def _context_files(folder: Path) -> list[str]:
    """Return the names of the Markdown files in a folder.

    The setting `context.fileName` can name any of them as a context file.
    """
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
        return  # the CLI replaced the link with its own file: keep that file
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
