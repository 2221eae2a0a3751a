"""The ground that every lane stands on: the environment, the CLI, the folder, the terms and the home."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from geminids.config.places import Places
from geminids.errors import CliMissing, ToolchainError
from geminids.gateway.route import Route
from geminids.launch import environment, home
from geminids.launch.auth import Auth
from geminids.launch.gateway_env import NO_KEY, Endpoint, gateway_environment, past_proxies
from geminids.launch.refused import Refused
from geminids.launch.settings import SettingsProblem, merge
from geminids.launch.sign_in import find_sign_in
from geminids.launch.terms import Terms, make_terms
from geminids.options import Options
from geminids.outcome import FailureKind
from geminids.redact import secrets_in_words, secrets_of
from geminids.toolchain import Gemini, find

if TYPE_CHECKING:
    from geminids.skills.find import Skill

__all__ = ["Connect", "Ground", "Warmth", "find_gemini", "make_ground", "placeholder"]

Connect = Callable[[Route, Mapping[str, str]], Endpoint]
"""Opens the gateway for a route, with the environment that names proxies and certificates; raises `Refused`."""


def placeholder(route: Route, env: Mapping[str, str]) -> Endpoint:
    """For plans that are shown and never carried out: opens nothing."""
    return Endpoint("http://127.0.0.1:<port>", NO_KEY)


class Warmth(msgspec.Struct, frozen=True):
    """The ground is for an ACP process; `asks` where somebody can be asked there."""

    asks: bool = False


class Ground(msgspec.Struct, frozen=True, kw_only=True):
    """What options come to before a lane adds its own: `env` is the whole environment of the CLI."""

    gemini: Gemini
    cwd: str
    env: dict[str, str]
    auth: Auth
    route: Route
    terms: Terms
    secrets: frozenset[str]


def make_ground(
    options: Options,
    environ: Mapping[str, str],
    places: Places,
    connect: Connect = placeholder,
    *,
    dry: bool = False,
    warm: Warmth | None = None,
    budget: bool = False,
) -> Ground:
    """Find the CLI and the folder, decide the route, open the gateway with `connect`, and write out the home.

    Raises `Refused` if a run cannot work. `budget`: the run shares a budget with others.
    """
    if os.name == "nt":
        raise Refused("cli_unsupported", "runs need Linux or macOS so far", "Run it under WSL.")
    env = environment.base_environment(environ, options, _env_file(options))
    if options.offline:
        env = environment.offline_environment(env)
    gemini = find_gemini(options, env, places)
    _check_release(gemini)
    cwd = _working_folder(options, make=options.make_cwd and not dry)
    try:
        return _with_home(options, gemini, env, cwd, places, connect, warm, budget=budget)
    except SettingsProblem as problem:
        raise Refused("config", str(problem), "Mend that file, or run with home='isolated'.") from None


def _in_servers(options: Options) -> frozenset[str]:
    """What the caller gave to MCP servers in confidence."""
    servers = options.mcp_servers.values()
    headers = {value for server in servers for value in server.headers.values() if len(value) >= 8}
    words = (secrets_in_words((*server.args, server.url or "")) for server in servers)
    return frozenset(headers).union(*(secrets_of(server.env) for server in servers), *words)


def _env_file(options: Options) -> dict[str, str]:
    if options.env_file is None:
        return {}
    try:
        return environment.read_env_file(Path(options.env_file).read_text("utf-8"), options.env_file)
    except (OSError, UnicodeDecodeError, environment.EnvFileProblem) as error:
        raise Refused("bad_option", f"env_file: {error}", "Write one NAME=value a line.") from None


def find_gemini(options: Options, env: Mapping[str, str], places: Places) -> Gemini:
    try:
        return find(options.gemini, environ=env, places=places)
    except OSError as error:
        hint = "Name another folder with GEMINIDS_HOME."
        raise Refused("config", f"{places.root} cannot be used: {error.strerror}", hint) from None
    except ToolchainError as error:
        kind: FailureKind = "cli_missing" if isinstance(error, CliMissing) else "cli_unsupported"
        raise Refused(kind, _with_places(error), error.hint or "Run `geminids install`.") from None


def _with_places(error: ToolchainError) -> str:
    """Its message, and the first places that were looked at where it does not name them itself."""
    looked = [place for place in error.looked if place not in error.message]
    more = f"; and {len(looked) - 3} more places" if len(looked) > 3 else ""
    return f"{error.message} (looked at {'; '.join(looked[:3])}{more})" if looked else error.message


def _check_release(gemini: Gemini) -> None:
    refused = gemini.release.why_refused
    if refused is None:
        return
    named = {"option": "the option `gemini`", "GEMINI_CLI_PATH": "GEMINI_CLI_PATH"}.get(gemini.origin)
    hint = "Run: geminids install"
    # A CLI that was named is not replaced by an install.
    raise Refused("cli_unsupported", refused, f"{hint}; {named} names {gemini.entry}." if named else hint)


def _working_folder(options: Options, *, make: bool) -> str:
    # Without links, as Node itself sees it: what lies above the folder would else be looked for in the wrong place.
    cwd = os.path.realpath(options.cwd)
    try:
        if make:
            os.makedirs(cwd, exist_ok=True)
    except OSError as error:
        raise Refused(
            "bad_option", f"cwd: {cwd} cannot be made: {error.strerror}", "Name another folder."
        ) from None
    return cwd


def _with_home(
    options: Options,
    gemini: Gemini,
    env: dict[str, str],
    cwd: str,
    places: Places,
    connect: Connect,
    warm: Warmth | None,
    *,
    budget: bool,
) -> Ground:
    """Choose the sign-in and the route, and write the settings where the CLI reads them."""
    release = gemini.release
    source = home.source_home(options.home, env, places)
    signed = find_sign_in(options, env, source, cwd, budget=budget)
    auth, route = signed.auth, signed.route
    if route.kind == "refused":
        raise Refused(route.failure, route.reason, route.hint)
    secrets = secrets_of(signed.env) | home.secrets_in_files(source, cwd) | _in_servers(options)
    env = signed.env
    if route.kind == "gateway":
        endpoint = connect(route, env)
        own = (route.key, endpoint.key, endpoint.token)
        secrets |= {secret for secret in own if secret and secret != NO_KEY}
        env = gateway_environment(env, route, endpoint, blank=options.trust_workspace)
        env = past_proxies(env)
    strange = () if options.trust_workspace else _strange_skills(cwd, source, places)
    terms = make_terms(
        options,
        release,
        source,
        cwd,
        env,
        auth.selected_type,
        strange,
        warm=warm is not None,
        asks=warm is not None and warm.asks,
    )
    env = {name: value for name, value in env.items() if name not in terms.drop} | terms.env
    env |= _written(options, source, terms, places, hides=route.hides_credentials)
    env = environment.headless_environment(env)
    return Ground(
        gemini=gemini, cwd=cwd, env=env, auth=auth, route=route, terms=terms, secrets=frozenset(secrets)
    )


def _strange_skills(cwd: str, source: home.SourceHome, places: Places) -> tuple[Skill, ...]:
    """The skills of the folder that nobody vouches for."""
    if not any(os.path.isdir(os.path.join(cwd, name, "skills")) for name in (".gemini", ".agents")):
        return ()
    from geminids.skills.record import untrusted_skills  # imported late: few folders have skills

    return untrusted_skills(cwd, places, home=source.path)


def _written(
    options: Options, source: home.SourceHome, terms: Terms, places: Places, *, hides: bool
) -> dict[str, str]:
    """Write the private home; return the variables that lead the CLI there."""
    settings = merge(source.settings, terms.settings)
    try:
        where = home.write_home(
            source, settings, places, files=terms.files, skills=options.skills, hides_key=hides
        )
        return {"GEMINI_CLI_HOME": str(where), home.SOURCE: str(source.path)}
    except OSError as error:
        raise Refused(
            "config", f"the private home cannot be written: {error}", _where_to(error, source, places)
        ) from None


def _where_to(error: OSError, source: home.SourceHome, places: Places) -> str:
    theirs = str(error.filename or "").startswith(f"{source.path}{os.sep}") and source.name != "isolated"
    if theirs:
        return f"Make {source.path} writable (sessions land there), or run with home='isolated'."
    return f"Make {places.root} writable, or name another folder with GEMINIDS_HOME."
