"""The checks of how a run would sign in: the settings file, and the key, project or account."""

from __future__ import annotations

from collections.abc import Mapping

from geminids.doctor.checks import Check, Scene
from geminids.errors import GeminidsError
from geminids.gemini.settings_file import SettingsProblem
from geminids.launch.auth import Auth, choose_auth
from geminids.launch.home import SourceHome
from geminids.launch.route import route_text
from geminids.launch.sign_in import find_sign_in, nearest_dotenv

__all__ = ["auth", "gateway", "settings"]

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
    """How a run would sign in, as far as that is known without a request."""
    if scene.options.offline:
        return Check("auth", "skipped", "offline: the scripted model asks for no sign-in")
    source = scene.source
    if isinstance(source, SettingsProblem):
        return Check("auth", "skipped", "the settings of this home cannot be read")
    signed = find_sign_in(scene.options, scene.env, source, scene.cwd)
    check = _judge(signed.auth, signed.env, source)
    if scene.options.trust_workspace or check.level != "error":
        return check
    return _with_ignored_file(check, scene, source)


def gateway(scene: Scene) -> Check:
    """Which route the requests of a run would take: the decision is the run's own."""
    source = scene.source
    if isinstance(source, SettingsProblem):
        return Check("gateway", "skipped", "the settings of this home cannot be read")
    signed = find_sign_in(scene.options, scene.env, source, scene.cwd)
    route = signed.route
    if route.kind == "refused":
        return Check("gateway", "error", route_text(route), route.hint)
    if route.kind == "direct":
        hint = "Cost is an estimate, and limits, record and replay are refused."
        return Check("gateway", "warning", route_text(route), hint)
    if route.sign_in == "vertex_credentials":
        from geminids.gateway.forward.credential import VertexCredentials
        from geminids.gateway.forward.network_settings import read_network_settings

        try:
            network = read_network_settings(signed.env)
            VertexCredentials(route.project, route.location, signed.env, network).check_available()
        except GeminidsError as error:
            return Check("gateway", "error", error.message, error.hint)
    return Check("gateway", "ok", route_text(route))


def _with_ignored_file(check: Check, scene: Scene, source: SourceHome) -> Check:
    """Explain that a key in the folder's own env file is ignored because the folder is not trusted."""
    file, theirs = nearest_dotenv(scene.cwd, source.path, trusted=True)
    if file is None or choose_auth(theirs, {}).mode == "none":
        return check
    detail = f"{check.detail}; {file} has one, which is ignored because the folder is not trusted"
    return Check(
        "auth", "error", detail, f"Use --env-file {file}, or trust the folder with --trust-workspace."
    )


def _judge(found: Auth, env: Mapping[str, str], source: SourceHome) -> Check:
    if found.mode == "key":
        return _key(found, env, source)
    if found.mode == "vertex":
        return Check("auth", "ok", f"Vertex AI ({found.source})")
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


def _account(found: Auth, env: Mapping[str, str], source: SourceHome) -> Check:
    hint = "Use an API key (GEMINI_API_KEY), Vertex AI, or a Code Assist Standard or Enterprise account."
    has_login = any((source.gemini / name).exists() for name in _LOGINS)
    if not has_login and not env.get("GOOGLE_CLOUD_ACCESS_TOKEN"):
        detail = f"a Google account ({found.source}), but no login is stored in {source.gemini}. {_RETIRED}"
        return Check("auth", "error", detail, hint)
    return Check("auth", "warning", f"a Google account ({found.source}). {_RETIRED}", hint)
