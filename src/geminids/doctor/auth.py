"""Check the sign-in: the CLI's settings file, the credentials, and how requests reach the API."""

from __future__ import annotations

from collections.abc import Mapping

from geminids.doctor.checks import Check, CheckContext
from geminids.errors import GeminidsError
from geminids.gateway.forward.credential import VertexCredentials
from geminids.gateway.forward.network_settings import read_network_settings
from geminids.gemini.settings_file import SettingsProblem
from geminids.launch.auth import Auth, choose_auth, nearest_dotenv, resolve_auth
from geminids.launch.home import SourceHome
from geminids.launch.route import decide_route, route_text

__all__ = ["auth", "gateway", "settings"]

_SET_KEY = "Set GEMINI_API_KEY (a key from https://aistudio.google.com/apikey), or set up Vertex AI."
_RETIRED = (
    "Google retired Gemini CLI for personal accounts (free, AI Pro, AI Ultra) on 2026-06-18; "
    "Code Assist Standard and Enterprise accounts work"
)
# The files in which the CLI stores the login of an account: a plain one, or an encrypted one that
# contains all its credentials.
_LOGINS = ("oauth_creds.json", "gemini-credentials.json")


def settings(context: CheckContext) -> Check:
    """Check that the CLI's settings file, in the home folder of the run, can be read."""
    source = context.source
    if isinstance(source, SettingsProblem):
        return Check("settings", "error", str(source), "Fix the settings file, or use `home='isolated'`.")
    file = source.gemini / "settings.json"
    return Check(
        "settings", "ok", str(file) if file.exists() else f"{file} does not exist; the CLI uses its defaults"
    )


def auth(context: CheckContext) -> Check:
    """Check which sign-in a run would use. No request is sent, so this does not test whether a key
    is valid."""
    if context.options.is_simulated:
        model = "a recorded model" if context.options.replay is not None else "the scripted model"
        return Check("auth", "skipped", f"offline: {model} needs no sign-in")
    source = context.source
    if isinstance(source, SettingsProblem):
        return Check("auth", "skipped", "not checked: the CLI's settings file cannot be read")
    resolved = resolve_auth(context.options, context.env, source, context.cwd)
    check = _auth_check(resolved.auth, resolved.env, source)
    if context.options.trust_workspace or check.level != "error":
        return check
    return _with_ignored_file(check, context, source)


def gateway(context: CheckContext) -> Check:
    """Check how the requests of a run would reach the API: through the gateway or directly.

    This check uses the same code as a run. So it reports what a run would do.
    """
    source = context.source
    if isinstance(source, SettingsProblem):
        return Check("gateway", "skipped", "not checked: the CLI's settings file cannot be read")
    resolved = resolve_auth(context.options, context.env, source, context.cwd)
    route = decide_route(context.options, resolved)
    if route.kind == "refused":
        return Check("gateway", "error", route_text(route), route.hint)
    if route.kind == "direct":
        hint = "Without the gateway, costs are estimates, and limits, `record` and `replay` cannot be used."
        return Check("gateway", "warning", route_text(route), hint)
    if route.sign_in == "vertex_credentials":
        try:
            network = read_network_settings(resolved.env)
            VertexCredentials(route.project, route.location, resolved.env, network).check_available()
        except GeminidsError as error:
            return Check("gateway", "error", error.message, error.hint)
    return Check("gateway", "ok", route_text(route))


def _with_ignored_file(check: Check, context: CheckContext, source: SourceHome) -> Check:
    """If a `.env` file of the working folder contains a sign-in, such as an API key, add an
    explanation to the failed `check`: a run ignores this sign-in, because the folder is not
    trusted.

    Return `check` unchanged if no `.env` file contains a sign-in.
    """
    file, variables = nearest_dotenv(context.cwd, source.path, trusted=True)
    if file is None or choose_auth(variables, {}).mode == "none":
        return check
    detail = f"{check.detail}; the sign-in in {file} is ignored because the folder is not trusted"
    return Check(
        "auth", "error", detail, f"Use `env_file={str(file)!r}`, or trust the folder with `trust_workspace`."
    )


def _auth_check(chosen: Auth, env: Mapping[str, str], source: SourceHome) -> Check:
    if chosen.mode == "key":
        return _key_check(chosen, env, source)
    if chosen.mode == "vertex":
        return Check("auth", "ok", f"Vertex AI ({chosen.source})")
    if chosen.mode == "account":
        return _account_check(chosen, env, source)
    if chosen.mode == "adc":
        return Check(
            "auth", "ok", f"the sign-in uses the default credentials of this machine (from {chosen.source})"
        )
    if chosen.mode == "other":
        detail = f"geminids does not know the selected sign-in method ({chosen.source})"
        return Check("auth", "warning", detail, "Test it with: geminids doctor --live")
    detail = "no sign-in was found: no API key, no Vertex AI settings and no Google account"
    if env.get("GOOGLE_API_KEY"):
        detail += "; GOOGLE_API_KEY is set, but the CLI uses it only for Vertex AI"
    return Check("auth", "error", detail, _SET_KEY + " To run without a key, use `offline=True`.")


def _key_check(chosen: Auth, env: Mapping[str, str], source: SourceHome) -> Check:
    if env.get("GEMINI_API_KEY"):
        return Check("auth", "ok", f"API key ({chosen.source})")
    if (source.gemini / "gemini-credentials.json").exists():
        return Check("auth", "ok", f"API key, stored by the CLI ({chosen.source})")
    detail = f"{chosen.source} selects an API key, but GEMINI_API_KEY is not set"
    return Check("auth", "error", detail, _SET_KEY + " If the key is in your keychain, test it with --live.")


def _account_check(chosen: Auth, env: Mapping[str, str], source: SourceHome) -> Check:
    hint = "Use an API key (GEMINI_API_KEY), Vertex AI, or a Code Assist Standard or Enterprise account."
    has_login = any((source.gemini / name).exists() for name in _LOGINS)
    if not has_login and not env.get("GOOGLE_CLOUD_ACCESS_TOKEN"):
        detail = (
            f"the sign-in uses a Google account (from {chosen.source}), "
            f"but {source.gemini} has no stored login. {_RETIRED}"
        )
        return Check("auth", "error", detail, hint)
    return Check(
        "auth", "warning", f"the sign-in uses a Google account (from {chosen.source}). {_RETIRED}", hint
    )
