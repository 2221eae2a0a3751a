"""Options become a plan: what is run, where, with which environment and which words on stdin."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from geminids.config.places import Places
from geminids.errors import CliMissing, ToolchainError
from geminids.launch import environment, home
from geminids.launch.auth import Auth, choose_auth
from geminids.launch.prompt import PromptProblem, check_prompt
from geminids.launch.settings import SettingsProblem, merge, our_settings
from geminids.options import Options
from geminids.outcome import Failure, FailureKind
from geminids.redact import secrets_of
from geminids.toolchain import Gemini, Release, find

__all__ = ["Plan", "Refused", "look_ahead", "make_plan"]


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """All that a spawn needs. `secrets` are the values that must never be shown."""

    argv: tuple[str, ...]
    cwd: str
    env: dict[str, str]
    stdin: bytes
    session_id: str | None
    gemini: Gemini
    auth: Auth
    secrets: frozenset[str]

    @property
    def release(self) -> Release:
        return self.gemini.release


class Refused(Exception):
    """A run that cannot be started, told before anything is: its failure says why and what to do."""

    def __init__(self, kind: FailureKind, message: str, hint: str) -> None:
        super().__init__(message)
        self.failure = Failure(kind=kind, message=message, retryable=False, hint=hint)


def make_plan(
    prompt: str,
    options: Options,
    *,
    environ: Mapping[str, str] | None = None,
    places: Places | None = None,
    gateway_env: Mapping[str, str] | None = None,
) -> Plan:
    """Plan a run and write out the home that it needs; raises `Refused` where it cannot work."""
    if os.name == "nt":
        raise Refused("cli_unsupported", "runs need Linux or macOS so far", "Run it under WSL.")
    environ = os.environ if environ is None else environ
    places = Places.of(environ) if places is None else places
    try:
        stdin = check_prompt(prompt, literal=options.literal)
    except PromptProblem as problem:
        raise Refused("bad_prompt", str(problem), problem.hint) from None
    env = environment.base_environment(environ, options, _env_file(options))
    if gateway_env is not None:
        env = environment.offline_environment(env, gateway_env)
    gemini = _find(options, env, places)
    _check_release(options, gemini.release)
    cwd = _working_folder(options)
    auth, env, in_files = _with_home(options, gemini.release, env, places)
    env = environment.headless_environment(env)
    return Plan(
        argv=(*gemini.command(places), *_flags(options)),
        cwd=cwd,
        env=env,
        stdin=stdin,
        session_id=options.session_id,
        gemini=gemini,
        auth=auth,
        secrets=secrets_of(env) | in_files,
    )


def look_ahead(options: Options) -> None:
    """Find the CLI now, which asks an unknown one for its version: planning then starts no process."""
    try:
        find(
            options.gemini, environ=environment.base_environment(os.environ, options, {}), places=Places.of()
        )
    except (ToolchainError, OSError):
        pass  # the plan will say it


def _env_file(options: Options) -> dict[str, str]:
    if options.env_file is None:
        return {}
    try:
        return environment.read_env_file(Path(options.env_file).read_text("utf-8"), options.env_file)
    except (OSError, UnicodeDecodeError, environment.EnvFileProblem) as error:
        raise Refused("bad_option", f"env_file: {error}", "Write one NAME=value a line.") from None


def _find(options: Options, env: Mapping[str, str], places: Places) -> Gemini:
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
    if options.home != "user":
        needed.append("private_home")
    missing = [what for name in needed if (what := release.lacks(name))]
    if missing:
        hint = "Install a newer release with `geminids install` and name it with `gemini=`, or do without."
        raise Refused("cli_unsupported", "; ".join(missing), hint)


def _working_folder(options: Options) -> str:
    cwd = os.path.abspath(options.cwd)
    try:
        if options.make_cwd:
            os.makedirs(cwd, exist_ok=True)
    except OSError as error:
        raise Refused(
            "bad_option", f"cwd: {cwd} cannot be made: {error.strerror}", "Name another folder."
        ) from None
    return cwd


def _with_home(
    options: Options, release: Release, env: dict[str, str], places: Places
) -> tuple[Auth, dict[str, str], frozenset[str]]:
    """Choose the sign-in and write the settings where this release reads them; tell what secrets lie there."""
    try:
        source = home.source_home(options.home, env, places)
    except SettingsProblem as problem:
        raise Refused("config", str(problem), "Mend that file, or run with home='isolated'.") from None
    auth = choose_auth(env, source.settings)
    ours = our_settings(options, auth.selected_type)
    secrets = home.secrets_in_files(source, os.path.abspath(options.cwd))
    try:
        if release.private_home:
            where = home.write_home(source, merge(source.settings, ours), places)
            return auth, {**env, "GEMINI_CLI_HOME": str(where), home.SOURCE: str(source.path)}, secrets
        file = home.system_settings_file(ours, places)
        return auth, {**env, "GEMINI_CLI_SYSTEM_SETTINGS_PATH": str(file)}, secrets
    except OSError as error:
        raise Refused(
            "config", f"the private home cannot be written: {error}", _where_to(error, source, places)
        ) from None


def _where_to(error: OSError, source: home.SourceHome, places: Places) -> str:
    theirs = str(error.filename or "").startswith(f"{source.path}{os.sep}") and source.name != "isolated"
    if theirs:
        return f"Make {source.path} writable (sessions land there), or run with home='isolated'."
    return f"Make {places.root} writable, or name another folder with GEMINIDS_HOME."


def _flags(options: Options) -> Sequence[str]:
    # --flag=value throughout: a value that begins with a dash stays a value.
    flags = ["--output-format=stream-json", f"--approval-mode={options.approval}"]
    if options.model is not None:
        flags.append(f"--model={options.model}")
    if options.resume is not None:
        flags.append(f"--resume={options.resume}")
    if options.session_id is not None:
        # Only where it was asked for: the CLI takes 0.1 s more to see that it is new (0.83 s became 0.96 s).
        flags.append(f"--session-id={options.session_id}")
    return flags
