"""The ground that every lane stands on: the environment, the CLI, the folder, the terms and the home."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from geminids.config.places import Places
from geminids.errors import CliMissing, ToolchainError
from geminids.launch import environment, home
from geminids.launch.auth import Auth, choose_auth
from geminids.launch.gate import Gate, Given, with_stand_in
from geminids.launch.gatewayed import past_proxies
from geminids.launch.refused import Refused
from geminids.launch.settings import SettingsProblem, merge
from geminids.launch.terms import Terms, make_terms
from geminids.launch.workspace_auth import refuse_other_sign_in
from geminids.options import Options
from geminids.outcome import FailureKind
from geminids.redact import secrets_in_words, secrets_of
from geminids.toolchain import Gemini, Release, find

if TYPE_CHECKING:
    from geminids.skills.find import Skill

__all__ = ["Ground", "Warmth", "find_gemini", "make_ground"]


class Warmth(msgspec.Struct, frozen=True):
    """The ground is for an ACP process; `asks` where somebody can be asked there."""

    asks: bool = False


class Ground(msgspec.Struct, frozen=True, kw_only=True):
    """What options come to before a lane adds its own: `env` is the whole environment of the CLI."""

    gemini: Gemini
    cwd: str
    env: dict[str, str]
    auth: Auth
    terms: Terms
    secrets: frozenset[str]


def make_ground(
    options: Options,
    environ: Mapping[str, str],
    places: Places,
    gate: Gate | None = None,
    *,
    dry: bool = False,
    warm: Warmth | None = None,
) -> Ground:
    """Find the CLI and the folder, and write out the home; raises `Refused` where that cannot work.

    Without a `gate` the CLI speaks to the API itself.
    """
    if os.name == "nt":
        raise Refused("cli_unsupported", "runs need Linux or macOS so far", "Run it under WSL.")
    env = environment.base_environment(environ, options, _env_file(options))
    if gate is not None:
        env = with_stand_in(env, options)
    gemini = find_gemini(options, env, places)
    _check_release(options, gemini.release)
    cwd = _working_folder(options, make=options.make_cwd and not dry)
    auth, terms, given, in_files = _with_home(options, gemini.release, env, cwd, places, gate, warm)
    secrets = secrets_of(env) | secrets_of(given.env) | given.secrets | in_files | _in_servers(options)
    env = environment.headless_environment(given.env)
    if given.gatewayed:
        env = past_proxies(env, gemini.release.honours_no_proxy)
    return Ground(gemini=gemini, cwd=cwd, env=env, auth=auth, terms=terms, secrets=secrets)


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


def _check_release(options: Options, release: Release) -> None:
    """Refuse what this release cannot do, rather than let it end in a riddle."""
    needed = ["stream_json"]
    if options.resume is not None:
        needed.append("resume")
    if options.session_id is not None:
        needed.append("session_id_flag")
    if options.approval == "plan":
        needed.append("plan_mode")
    if options.effort is not None:
        needed.append("model_configs")
    if options.skills:
        needed += ["private_home", "skills"]
    if options.home != "user":
        needed.append("private_home")
    if options.include_dirs:
        # Older ones take the flag, and look into it on a terminal alone.
        needed.append("include_directories_media")
    missing = [what for name in needed if (what := release.lacks(name))]
    if missing:
        hint = "Install a newer release with `geminids install` and name it with `gemini`, or do without."
        raise Refused("cli_unsupported", "; ".join(missing), hint)


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
    release: Release,
    env: dict[str, str],
    cwd: str,
    places: Places,
    gate: Gate | None,
    warm: Warmth | None,
) -> tuple[Auth, Terms, Given, frozenset[str]]:
    """Choose the sign-in and write the settings where this release reads them; tell what secrets lie there."""
    try:
        source = home.source_home(options.home, env, places)
        if not options.trust_workspace or gate is not None:
            # With a gateway too: the home then has no `.env` that the CLI could read them from.
            env = {**home.variables_of(source, options.env_only), **env}
        auth = choose_auth(env, source.settings)
        given = Given(env) if gate is None else gate.open(env, auth, release)
        if given.gatewayed and options.trust_workspace:
            refuse_other_sign_in(cwd)
        env = given.env
        strange = () if options.trust_workspace else _strange_skills(cwd, release, source, places)
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
        secrets = home.secrets_in_files(source, cwd)
        env = {name: value for name, value in env.items() if name not in terms.drop} | terms.env
        env |= _written(options, release, source, terms, env, places, hides=given.hides)
        return auth, terms, msgspec.structs.replace(given, env=env), secrets
    except SettingsProblem as problem:
        raise Refused("config", str(problem), "Mend that file, or run with home='isolated'.") from None


def _strange_skills(cwd: str, release: Release, source: home.SourceHome, places: Places) -> tuple[Skill, ...]:
    """The skills of the folder that nobody vouches for."""
    if not any(os.path.isdir(os.path.join(cwd, name, "skills")) for name in (".gemini", ".agents")):
        return ()
    from geminids.skills.trust import untrusted_skills  # imported late: few folders have skills

    return untrusted_skills(cwd, release, places, home=source.path)


def _written(
    options: Options,
    release: Release,
    source: home.SourceHome,
    terms: Terms,
    env: Mapping[str, str],
    places: Places,
    *,
    hides: bool,
) -> dict[str, str]:
    """Write the home or the system settings; return the variables that lead the CLI there."""
    found: dict[str, str] = {}
    try:
        if release.private_home:
            settings = merge(source.settings, terms.settings)
            where = home.write_home(
                source, settings, places, files=terms.files, skills=options.skills, hides_key=hides
            )
            found = {"GEMINI_CLI_HOME": str(where), home.SOURCE: str(source.path)}
        if terms.system or not release.private_home:
            system = terms.system if release.private_home else merge(terms.system, terms.settings)
            found["GEMINI_CLI_SYSTEM_SETTINGS_PATH"] = str(home.system_settings_file(system, env, places))
        return found
    except OSError as error:
        raise Refused(
            "config", f"the private home cannot be written: {error}", _where_to(error, source, places)
        ) from None


def _where_to(error: OSError, source: home.SourceHome, places: Places) -> str:
    theirs = str(error.filename or "").startswith(f"{source.path}{os.sep}") and source.name != "isolated"
    if theirs:
        return f"Make {source.path} writable (sessions land there), or run with home='isolated'."
    return f"Make {places.root} writable, or name another folder with GEMINIDS_HOME."
