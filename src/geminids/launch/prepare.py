"""Collect what a run needs: environment, CLI, folder, sign-in, settings and prompt.

`prepare` only reads. It opens no socket and writes no file. It refuses every run that cannot work.
(To find a new CLI, it runs `gemini --version` once; the toolchain caches the version.)
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from geminids.config.paths import Places
from geminids.errors import CliMissing, ToolchainError
from geminids.gateway.route import Route
from geminids.gemini import Gemini, find
from geminids.gemini.settings_file import SettingsProblem, merge
from geminids.ids import new_session_id
from geminids.launch import environment, home
from geminids.launch.auth import Auth
from geminids.launch.errors import PromptProblem, Refused
from geminids.launch.prompt.compose import check_prompt, compose
from geminids.launch.scratch import StagedFiles
from geminids.launch.settings.run_settings import POLICY, USERS_POLICY, RunSettings, read_run_settings
from geminids.launch.sign_in import find_sign_in
from geminids.launch.workspace import WorkspaceItem
from geminids.options import Options
from geminids.outcome import FailureKind
from geminids.redact import secrets_in_words, secrets_of

if TYPE_CHECKING:
    from geminids.gemini.skills.find import Skill

__all__ = [
    "TRUST_WORKSPACE",
    "Context",
    "PromptMessage",
    "Transport",
    "prepare",
    "probe_gemini",
    "takes_effect_if_trusted",
    "why_not_warm",
]

Transport = Literal["headless", "warm"]
TRUST_WORKSPACE = "GEMINI_CLI_TRUST_WORKSPACE"


class PromptMessage(msgspec.Struct, frozen=True, kw_only=True):
    """The caller's prompt, the bytes for stdin made from it, and its files."""

    prompt: str
    stdin: bytes
    flags: tuple[str, ...] = ()
    """Flags that give the CLI access to the files."""
    staged: StagedFiles | None = None


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """The input of a plan.

    `route` says how requests reach the API; `env` has no gateway variables yet.
    """

    options: Options
    places: Places
    gemini: Gemini
    command: tuple[str, ...]
    """The start of argv: Node with its arguments, and the CLI."""
    cwd: str
    include_dirs: tuple[str, ...]
    env: dict[str, str]
    auth: Auth
    route: Route
    settings: RunSettings
    home: home.PrivateHome
    policies: tuple[str, ...]
    """Our policy files and the user's, because `--policy` replaces those."""
    secrets: frozenset[str]
    session_id: str | None = None
    message: PromptMessage | None = None
    """None for a warm session: it gets its prompts later."""
    telemetry: str | None = None


def prepare(
    options: Options,
    *,
    transport: Transport,
    prompt: str = "",
    run_id: str = "",
    asks: bool = False,
    environ: Mapping[str, str] | None = None,
    places: Places | None = None,
    budget: bool = False,
) -> Context:
    """Read everything that a run or a warm session needs; raises `Refused` if it cannot work.

    `prompt` and `run_id` are for the headless transport. `asks`: the caller answers permission
    requests of the warm session. `budget`: the run shares a budget with others.
    """
    environ = os.environ if environ is None else environ
    places = Places.of(environ) if places is None else places
    warm = transport == "warm"
    text = None if warm else _prompt_text(prompt, options, run_id)
    if os.name == "nt":
        raise Refused("cli_unsupported", "geminids runs only on Linux and macOS", "Use WSL.")
    env = environment.base_environment(environ, options, _env_file(options))
    if options.offline:
        env = environment.offline_environment(env)
    gemini = _find_gemini(options, env, places)
    _check_release(gemini)
    # Resolve links, as Node does: otherwise we would look for the parent folders in the wrong
    # place.
    cwd = os.path.realpath(options.cwd)
    try:
        source = home.source_home(options.home, env, places)
        signed = find_sign_in(options, env, source, cwd, budget=budget)
        if signed.route.kind == "refused":
            raise Refused(signed.route.failure, signed.route.reason, signed.route.hint)
        settings = read_run_settings(
            options,
            gemini.release,
            source,
            cwd,
            signed.env,
            signed.auth.selected_type,
            () if options.trust_workspace else _untrusted_skills(cwd, source, places),
            warm=warm,
            asks=warm and asks,
        )
    except SettingsProblem as problem:
        raise Refused("config", str(problem), "Fix that file, or run with home='isolated'.") from None
    if warm:
        _check_trust(options, settings)
    private = home.plan_home(
        source,
        merge(source.settings, settings.settings),
        places,
        files=settings.files,
        skills=home.skill_links(source.path, options.skills),
        hides_key=signed.route.hides_credentials,
    )
    context = Context(
        options=options,
        places=places,
        gemini=gemini,
        command=gemini.planned_command(places, lasting=warm),
        cwd=cwd,
        include_dirs=tuple(
            _without_comma(os.path.abspath(folder), "the folder") for folder in options.include_dirs
        ),
        env=signed.env,
        auth=signed.auth,
        route=signed.route,
        settings=settings,
        home=private,
        policies=tuple(_without_comma(path, "the policy") for path in _policies(private, settings)),
        secrets=secrets_of(signed.env) | home.secrets_in_files(source, cwd) | _server_secrets(options),
    )
    return context if text is None else _for_headless(context, prompt, text)


def _for_headless(context: Context, prompt: str, text: str) -> Context:
    """Add what only a headless run has: the prompt with its files, a session id and telemetry."""
    options = context.options
    _check_command(text, context.settings)
    return msgspec.structs.replace(
        context,
        message=_message(prompt, text, options, context.cwd, context.places),
        session_id=options.session_id or _new_session_id(options, context.gemini),
        telemetry=os.path.abspath(options.telemetry) if options.telemetry is not None else None,
    )


def probe_gemini(options: Options) -> None:
    """Find the CLI and cache its version, so that `prepare` does not start a process for it."""
    try:
        find(
            options.gemini, environ=environment.base_environment(os.environ, options, {}), places=Places.of()
        )
    except (ToolchainError, OSError):
        pass  # `prepare` reports it


def why_not_warm(options: Options) -> str | None:
    """Return why a single run with these options cannot use the warm transport, or None."""
    if options.resume is not None:
        return "a warm process could damage a stored session when it loads it"
    if options.session_id is not None:
        return "a warm process chooses the id of a new session itself"
    if options.telemetry is not None:
        return "a warm process writes one telemetry file for all its runs"
    return None


def takes_effect_if_trusted(item: WorkspaceItem) -> bool:
    """Whether an item of the folder would take effect in a warm session that trusts the folder."""
    # A setting and our own variables make the CLI ignore `.env`; nothing makes it ignore
    # `.gemini/.env`.
    return item.kind != "env file" or ".gemini" in item.file


def _server_secrets(options: Options) -> frozenset[str]:
    """Return the secrets in the options of MCP servers."""
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
        raise Refused("bad_option", f"env_file: {error}", "Write one NAME=value per line.") from None


def _find_gemini(options: Options, env: Mapping[str, str], places: Places) -> Gemini:
    try:
        return find(options.gemini, environ=env, places=places)
    except OSError as error:
        hint = "Set GEMINIDS_HOME to another folder."
        raise Refused("config", f"{places.root} cannot be used: {error.strerror}", hint) from None
    except ToolchainError as error:
        kind: FailureKind = "cli_missing" if isinstance(error, CliMissing) else "cli_unsupported"
        raise Refused(kind, _with_searched(error), error.hint or "Run `geminids install`.") from None


def _with_searched(error: ToolchainError) -> str:
    """Return the message, with the first places searched if it does not name them."""
    looked = [place for place in error.looked if place not in error.message]
    more = f"; and {len(looked) - 3} more places" if len(looked) > 3 else ""
    return f"{error.message} (searched {'; '.join(looked[:3])}{more})" if looked else error.message


def _check_release(gemini: Gemini) -> None:
    refused = gemini.release.why_refused
    if refused is None:
        return
    named = {"option": "the option `gemini`", "GEMINI_CLI_PATH": "GEMINI_CLI_PATH"}.get(gemini.origin)
    hint = "Run: geminids install"
    # An install does not replace a CLI that the caller chose, so say who chose it.
    raise Refused("cli_unsupported", refused, f"{hint}; {named} names {gemini.entry}." if named else hint)


def _untrusted_skills(cwd: str, source: home.SourceHome, places: Places) -> tuple[Skill, ...]:
    """Return the skills of the folder that the user has not added with `geminids skills add`."""
    if not any(os.path.isdir(os.path.join(cwd, name, "skills")) for name in (".gemini", ".agents")):
        return ()
    from geminids.gemini.skills.record import untrusted_skills  # imported late: few folders have skills

    return untrusted_skills(cwd, places, home=source.path)


def _check_trust(options: Options, settings: RunSettings) -> None:
    """Refuse approval modes other than `default` for a warm session in an untrusted folder."""
    if options.trust_workspace or options.approval == "default":
        return
    if any(map(takes_effect_if_trusted, settings.neutralised)):
        raise Refused(
            "untrusted_folder",
            f"a warm process cannot use approval={options.approval} in an untrusted folder with its own settings",
            "Run it headless, trust the folder with trust_workspace, or use approval='default'.",
            headless_can=True,
        )


def _policies(private: home.PrivateHome, settings: RunSettings) -> Sequence[str]:
    ours = [str(private.path / name) for name in (POLICY, USERS_POLICY) if name in settings.files]
    return (*ours, *settings.policies)


def _without_comma(path: str, kind: str) -> str:
    """Return the path, for a flag that takes a list with commas."""
    if "," in path:
        hint = "Gemini CLI would read it as two paths; move or rename it."
        raise Refused("config", f"{kind} {path} has a comma in its path", hint)
    return path


def _new_session_id(options: Options, gemini: Gemini) -> str | None:
    """Create an id for a new session, so that its lock and records exist before the first output.

    Only with the compile cache, which saves more time than this costs: with `--session-id`, the CLI
    starts 0.1 s later, because it needs a lock that its own start-up cleanup holds, and tries again
    after 100 ms (projectRegistry.ts).
    """
    fast = gemini.node is not None and gemini.node.has_compile_cache
    return new_session_id() if fast and options.resume is None else None


def _prompt_text(prompt: str, options: Options, run_id: str) -> str:
    """Build and check the prompt with instructions and template."""
    try:
        text = compose(prompt, options, run_id)
        check_prompt(text)
    except PromptProblem as problem:
        raise Refused(problem.kind, str(problem), problem.hint) from None
    return text


def _message(prompt: str, text: str, options: Options, cwd: str, places: Places) -> PromptMessage:
    """Build the bytes for stdin, and the files of the prompt."""
    try:
        if not (options.images or options.videos or options.files):
            return PromptMessage(prompt=prompt, stdin=check_prompt(text))
        from geminids.launch.prompt.media import attach  # imported late: few runs have files

        media = attach(options, cwd, places)
        stdin = check_prompt(text + media.suffix, attached=media.units)
    except PromptProblem as problem:
        raise Refused(problem.kind, str(problem), problem.hint) from None
    return PromptMessage(prompt=prompt, stdin=stdin, flags=media.flags, staged=media.staged)


def _check_command(text: str, settings: RunSettings) -> None:
    """Refuse a slash command of an untrusted folder: its text may contain `!{shell}`."""
    name = next(iter(text[1:].split(maxsplit=1)), "") if text.startswith("/") else ""
    if name and any(_normalized(name).endswith(_normalized(command)) for command in settings.commands):
        raise Refused(
            "bad_prompt",
            f"/{name} is a command of this folder (.gemini/commands), and the folder is not trusted",
            "Trust the folder with trust_workspace, or send the prompt as plain text with literal.",
        )


def _normalized(command: str) -> str:
    """Map names that the CLI treats as the same command to one text.

    The CLI replaces special characters and shortens long parts. If the user has a command of the
    same name, it puts `workspace.` before the folder's (FileCommandLoader.ts,
    SlashCommandResolver.ts).
    """
    parts = (part if len(part) <= 50 else f"{part[:47]}..." for part in command.split(":"))
    return "".join(c if c.isalnum() and c.isascii() else "_" for c in ":".join(parts))
