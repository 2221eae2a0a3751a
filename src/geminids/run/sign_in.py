"""The checks of how a run would sign in: the settings file, and the key, project or account."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from geminids.launch.auth import Auth, choose_auth
from geminids.launch.dotenv import read_dotenv
from geminids.launch.home import SourceHome
from geminids.launch.settings import SettingsProblem
from geminids.run.checks import Check, Scene

__all__ = ["auth", "local_env", "settings"]

_SET_KEY = "Set GEMINI_API_KEY (a key from https://aistudio.google.com/apikey), or set up Vertex AI."
_RETIRED = (
    "Google retired Gemini CLI for personal accounts (free, AI Pro, AI Ultra) on 2026-06-18; "
    "Code Assist Standard and Enterprise accounts work"
)
# Where the CLI keeps what it stores for itself: a login, or everything in one encrypted file.
_LOGINS = ("oauth_creds.json", "gemini-credentials.json")


def settings(scene: Scene) -> Check:
    """The settings file of the home that a run builds on."""
    source = scene.source
    if isinstance(source, SettingsProblem):
        return Check("settings", "error", str(source), "Mend that file, or run with --home=isolated.")
    file = source.gemini / "settings.json"
    return Check("settings", "ok", str(file) if file.exists() else f"{file}: none, the CLI's defaults hold")


def auth(scene: Scene) -> Check:
    """How a run would sign in, as far as that can be told without a request."""
    if scene.options.offline:
        return Check("auth", "skipped", "offline: the scripted model asks for no sign-in")
    source = scene.source
    if isinstance(source, SettingsProblem):
        return Check("auth", "skipped", "the settings of this home cannot be read")
    trusted = scene.options.trust_workspace
    file, from_file = local_env(scene.cwd, source.path, trusted=trusted)
    env = {**from_file, **{name: value for name, value in scene.env.items() if value}}
    found = choose_auth(scene.env, source.settings)
    if found.mode == "none" and from_file:
        # Nothing of ours then: the file is read for the run, and decides by what is in it.
        found = choose_auth(env, {})
        if found.mode != "none":
            found = Auth(found.mode, f"{found.source} in {file}")
    check = _judge(found, env, source)
    return check if trusted or check.level != "error" else _with_what_is_passed_over(check, scene, source)


def _with_what_is_passed_over(check: Check, scene: Scene, source: SourceHome) -> Check:
    """A key in the folder's own env file is a riddle to whoever put it there: the folder has no power."""
    file, theirs = local_env(scene.cwd, source.path, trusted=True)
    if file is None or choose_auth(theirs, {}).mode == "none":
        return check
    detail = f"{check.detail}; {file} has one, but it is not read: the folder is not trusted"
    return Check("auth", "error", detail, f"Name it with --env-file {file}, or trust the folder.")


def local_env(cwd: Path, home: Path, *, trusted: bool) -> tuple[Path | None, dict[str, str]]:
    """The env file that a run takes variables from, and what it sets: the nearest (settings.ts, findEnvFile).

    Files of the folder and above it count only where the folder is `trusted`.
    """
    folders = (cwd, *cwd.parents, home) if trusted else (home,)
    for file in (folder / name for folder in folders for name in (".gemini/.env", ".env")):
        try:
            return file, read_dotenv(file.read_text("utf-8", "replace"))
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            return file, {}
    return None, {}


def _judge(found: Auth, env: Mapping[str, str], source: SourceHome) -> Check:
    if found.mode == "key":
        return _key(found, env, source)
    if found.mode == "vertex":
        return _vertex(found, env)
    if found.mode == "account":
        return _account(found, env, source)
    if found.mode == "adc":
        return Check("auth", "ok", f"default credentials of this machine ({found.source})")
    if found.mode == "other":
        detail = f"a way of signing in that geminids does not know ({found.source})"
        return Check("auth", "warning", detail, "Try it: geminids doctor --live")
    detail = "no sign-in was found: no key, no Vertex AI, no account"
    if env.get("GOOGLE_API_KEY"):
        detail += "; GOOGLE_API_KEY alone selects nothing, it serves Vertex AI only"
    return Check("auth", "error", detail, _SET_KEY + " Without one: --offline.")


def _key(found: Auth, env: Mapping[str, str], source: SourceHome) -> Check:
    if env.get("GEMINI_API_KEY"):
        return Check("auth", "ok", f"API key ({found.source})")
    if (source.gemini / "gemini-credentials.json").exists():
        return Check("auth", "ok", f"API key, stored by the CLI ({found.source})")
    detail = f"{found.source} asks for an API key, and GEMINI_API_KEY is not set"
    return Check("auth", "error", detail, _SET_KEY + " If it is in your keychain, `--live` will tell.")


def _vertex(found: Auth, env: Mapping[str, str]) -> Check:
    if env.get("GOOGLE_API_KEY"):
        return Check("auth", "ok", f"Vertex AI with GOOGLE_API_KEY ({found.source})")
    project, location = env.get("GOOGLE_CLOUD_PROJECT"), env.get("GOOGLE_CLOUD_LOCATION")
    named = {"GOOGLE_CLOUD_PROJECT": project, "GOOGLE_CLOUD_LOCATION": location}
    missing = [name for name, value in named.items() if not value]
    if missing:
        detail = f"Vertex AI ({found.source}), not set: {', '.join(missing)}"
        hint = "Set GOOGLE_CLOUD_PROJECT and GOOGLE_CLOUD_LOCATION, or GOOGLE_API_KEY."
        return Check("auth", "error", detail, hint)
    credentials = env.get("GOOGLE_APPLICATION_CREDENTIALS")
    if credentials and not Path(credentials).is_file():
        detail = f"Vertex AI, but GOOGLE_APPLICATION_CREDENTIALS names {credentials}, which is no file"
        return Check("auth", "error", detail, "Name the file with the credentials.")
    return Check("auth", "ok", f"Vertex AI, project {project} in {location} ({found.source})")


def _account(found: Auth, env: Mapping[str, str], source: SourceHome) -> Check:
    hint = "Use an API key (GEMINI_API_KEY), Vertex AI, or a Code Assist Standard or Enterprise account."
    has_login = any((source.gemini / name).exists() for name in _LOGINS)
    if not has_login and not env.get("GOOGLE_CLOUD_ACCESS_TOKEN"):
        detail = f"a Google account ({found.source}), but no login is stored in {source.gemini}. {_RETIRED}"
        return Check("auth", "error", detail, hint)
    return Check("auth", "warning", f"a Google account ({found.source}). {_RETIRED}", hint)
