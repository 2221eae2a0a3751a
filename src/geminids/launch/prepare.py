"""Collect what a run needs: environment, CLI, folder, sign-in, settings and prompt.

`prepare` refuses every run that cannot work. It opens no socket and writes no file of the run. For
a CLI that it does not know yet, it runs `gemini --version` once and stores the version.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from geminids.config.paths import Places
from geminids.errors import CliMissing, ToolchainError
from geminids.gateway.route import Route
from geminids.gemini import Gemini, find
from geminids.gemini.settings_file import SettingsProblem, merge
from geminids.gemini.skills.find import Skill
from geminids.gemini.skills.record import untrusted_skills
from geminids.ids import new_session_id
from geminids.launch import environment, home
from geminids.launch.auth import Auth, resolve_auth
from geminids.launch.errors import PromptProblem, Refused
from geminids.launch.prompt.compose import check_prompt, compose
from geminids.launch.prompt.media import attach
from geminids.launch.route import decide_route
from geminids.launch.scratch import StagedFiles
from geminids.launch.settings.run_settings import POLICY, USERS_POLICY, RunSettings, read_run_settings
from geminids.launch.workspace import WorkspaceItem
from geminids.options import Options
from geminids.outcome import FailureKind
from geminids.redact import secrets_in_words, secrets_of

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
    """The prompt of a headless run in two forms: as it was given (`prompt`), and as the bytes that
    the CLI reads from stdin (`stdin`). `staged` contains the attached files.
    """

    prompt: str
    stdin: bytes
    flags: tuple[str, ...] = ()
    """CLI flags that allow the CLI to read the attached files."""
    staged: StagedFiles | None = None


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """Everything from which the plan of a run is built, except the address of the gateway.

    `route` says how requests reach the API. `env` does not contain the gateway's variables yet.
    """

    options: Options
    places: Places
    gemini: Gemini
    command: tuple[str, ...]
    """The first part of argv: Node with its arguments, and the CLI."""
    cwd: str
    include_dirs: tuple[str, ...]
    env: dict[str, str]
    auth: Auth
    route: Route
    settings: RunSettings
    home: home.PrivateHome
    policies: tuple[str, ...]
    """The paths of our policy files, and of the user's policy files.

    The CLI's flag `--policy` replaces the user's policies, so we pass the user's files too.
    """
    secrets: frozenset[str]
    session_id: str | None = None
    message: PromptMessage | None = None
    """None for a warm session, which receives its prompts later."""
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
    """Read everything that a run or a warm session needs, and return it.

    Raises `Refused` if the run or session cannot work. `prompt` and `run_id` are used only if
    `transport` is "headless". `asks` is True if the program that uses geminids answers the
    permission requests of the warm session. `budget` is True if the run shares a budget with other
    runs.
    """
    environ = os.environ if environ is None else environ
    places = Places.of(environ) if places is None else places
    warm = transport == "warm"
    text = None if warm else _prompt_text(prompt, options, run_id)
    if os.name == "nt":
        raise Refused("cli_unsupported", "geminids runs only on Linux and macOS", "Use WSL.")
    env = environment.base_environment(environ, options, _env_file(options))
    if options.is_scripted:
        env = environment.offline_environment(env)
    gemini = _find_gemini(options, env, places)
    _check_release(gemini)
    # Resolve links as Node does, so that we search the same parent folders as the CLI.
    cwd = os.path.realpath(options.cwd)
    try:
        source = home.source_home(options.home, env, places)
        resolved = resolve_auth(options, env, source, cwd)
        route = decide_route(options, resolved, budget=budget)
        if route.kind == "refused":
            raise Refused(route.failure, route.reason, route.hint)
        settings = read_run_settings(
            options,
            gemini.release,
            source,
            cwd,
            resolved.env,
            resolved.auth.selected_type,
            () if options.trust_workspace else _untrusted_skills(cwd, source, places),
            warm=warm,
            asks=warm and asks,
        )
    except SettingsProblem as problem:
        raise Refused("config", str(problem), "Fix the file, or run with `home='isolated'`.") from None
    if warm:
        _check_trust(options, settings)
    private = home.plan_home(
        source,
        merge(source.settings, settings.settings),
        places,
        files=settings.files,
        skills=home.skill_links(source.path, options.skills),
        hides_key=route.hides_credentials,
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
        env=resolved.env,
        auth=resolved.auth,
        route=route,
        settings=settings,
        home=private,
        policies=tuple(_without_comma(path, "the policy") for path in _policies(private, settings)),
        secrets=secrets_of(resolved.env) | home.secrets_in_files(source, cwd) | _server_secrets(options),
    )
    return context if text is None else _for_headless(context, prompt, text)


def _for_headless(context: Context, prompt: str, text: str) -> Context:
    """Return a copy of `context` with the values that only a headless run needs.

    These values are the prompt with its files, the session id and the path of the telemetry file.
    `prompt` is the prompt alone; `text` is the prompt with the instructions and the template.
    """
    options = context.options
    _check_command(text, context.settings, has_files=bool(options.images or options.videos or options.files))
    return msgspec.structs.replace(
        context,
        message=_message(prompt, text, options, context.cwd, context.places),
        session_id=options.session_id or _new_session_id(options, context.gemini),
        telemetry=os.path.abspath(options.telemetry) if options.telemetry is not None else None,
    )


def probe_gemini(options: Options) -> None:
    """Find the CLI and store its version. So `prepare` need not run `gemini --version` later.

    Errors are ignored here, because `prepare` reports them.
    """
    try:
        find(
            options.gemini, environ=environment.base_environment(os.environ, options, {}), places=Places.of()
        )
    except (ToolchainError, OSError):
        pass  # `prepare` reports it


def why_not_warm(options: Options) -> str | None:
    """Return why a single run with these options cannot use a warm process, or None if it can."""
    if options.resume is not None:
        return "if a warm process loads a stored session, the session could be damaged"
    if options.session_id is not None:
        return "a warm process chooses the id of a new session itself"
    if options.telemetry is not None:
        return "a warm process writes one telemetry file for all its runs"
    return None


def takes_effect_if_trusted(item: WorkspaceItem) -> bool:
    """Whether an item of a folder, such as a hook, affects a session if the folder is trusted.

    A `.env` file has no effect, because a setting makes the CLI ignore it. A `.gemini/.env` file
    has an effect, because no setting makes the CLI ignore it.
    """
    return item.kind != "env file" or ".gemini" in item.file


def _server_secrets(options: Options) -> frozenset[str]:
    """Return the secrets in the options of the caller's MCP servers."""
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
        hint = "Use a readable UTF-8 file with one NAME=value per line."
        raise Refused("bad_option", f"`env_file`: {error}", hint) from None


def _find_gemini(options: Options, env: Mapping[str, str], places: Places) -> Gemini:
    try:
        return find(options.gemini, environ=env, places=places)
    except OSError as error:
        hint = "Set GEMINIDS_HOME to another folder."
        raise Refused("config", f"the folder {places.root} cannot be used: {error.strerror}", hint) from None
    except ToolchainError as error:
        kind: FailureKind = "cli_missing" if isinstance(error, CliMissing) else "cli_unsupported"
        raise Refused(kind, _with_searched(error), error.hint or "Run `geminids install`.") from None


def _with_searched(error: ToolchainError) -> str:
    """Return the error's message, with the places that were searched for the CLI.

    At most three places are named. Places that the message already contains are omitted.
    """
    looked = [place for place in error.looked if place not in error.message]
    more = f"; and {len(looked) - 3} more places" if len(looked) > 3 else ""
    return f"{error.message} (searched {'; '.join(looked[:3])}{more})" if looked else error.message


def _check_release(gemini: Gemini) -> None:
    refused = gemini.release.why_refused
    if refused is None:
        return
    named = {"option": "the option `gemini`", "GEMINI_CLI_PATH": "GEMINI_CLI_PATH"}.get(gemini.origin)
    # `geminids install` does not replace a CLI that the caller chose. So the hint says which option
    # or variable to change.
    hint = f"Run: geminids install, and change {named}, which is set to {gemini.entry}."
    raise Refused("cli_unsupported", refused, hint if named else "Run: geminids install")


def _untrusted_skills(cwd: str, source: home.SourceHome, places: Places) -> tuple[Skill, ...]:
    """Return the skills in the folder `cwd` that are not trusted.

    A skill is trusted if it was added with `geminids skills add` and has not changed since.
    """
    if not any(os.path.isdir(os.path.join(cwd, name, "skills")) for name in (".gemini", ".agents")):
        return ()
    return untrusted_skills(cwd, places, home=source.path)


def _check_trust(options: Options, settings: RunSettings) -> None:
    """Raise `Refused` if a warm session cannot use the approval mode in an untrusted folder.

    Only the mode `default` works if the folder contains something, such as hooks, that would affect
    the session if the folder were trusted.
    """
    if options.trust_workspace or options.approval == "default":
        return
    if any(map(takes_effect_if_trusted, settings.neutralised)):
        raise Refused(
            "untrusted_folder",
            f"a warm process cannot use `approval={options.approval!r}` in an untrusted folder with its own settings",
            "Use a headless run, trust the folder with `trust_workspace`, or use `approval='default'`.",
            headless_can=True,
        )


def _policies(private: home.PrivateHome, settings: RunSettings) -> Sequence[str]:
    ours = [str(private.path / name) for name in (POLICY, USERS_POLICY) if name in settings.files]
    return (*ours, *settings.policies)


def _without_comma(path: str, kind: str) -> str:
    """Return the path unchanged. Raises `Refused` if the path contains a comma.

    The CLI would split the path at the comma. `kind` describes the path in the error message.
    """
    if "," in path:
        hint = "Gemini CLI would read this as two paths: use a path without a comma."
        raise Refused("config", f"{kind} {path} has a comma in its path", hint)
    return path


def _new_session_id(options: Options, gemini: Gemini) -> str | None:
    """Return a random id for a new session, so that the id is known before the CLI's first output.

    Return None if the run resumes a session, because that session has an id already. Also return
    None if Node has no compile cache; the CLI then chooses the id.

    With `--session-id`, the CLI starts 0.1 s later: its start-up cleanup holds a lock, and the CLI
    tries to take that lock again only after 100 ms (projectRegistry.ts). The compile cache saves
    more time than that. So an id is set only if Node has a compile cache.
    """
    fast = gemini.node is not None and gemini.node.has_compile_cache
    return new_session_id() if fast and options.resume is None else None


def _prompt_text(prompt: str, options: Options, run_id: str) -> str:
    """Build the text of the prompt from instructions, template and prompt.

    Raises `Refused` if the text cannot be built or sent.
    """
    try:
        text = compose(prompt, options, run_id)
        check_prompt(text)
    except PromptProblem as problem:
        raise Refused(problem.kind, str(problem), problem.hint) from None
    return text


def _message(prompt: str, text: str, options: Options, cwd: str, places: Places) -> PromptMessage:
    """Attach the files of the options to the prompt, and build the bytes for the CLI's stdin.

    `prompt` is the prompt alone; `text` is the prompt with the instructions and the template.
    Raises `Refused` if the prompt or a file cannot be sent.
    """
    try:
        if not (options.images or options.videos or options.files):
            return PromptMessage(prompt=prompt, stdin=check_prompt(text))
        media = attach(options, cwd, places)
        stdin = check_prompt(text + media.suffix, attached=media.units)
    except PromptProblem as problem:
        raise Refused(problem.kind, str(problem), problem.hint) from None
    return PromptMessage(prompt=prompt, stdin=stdin, flags=media.flags, staged=media.staged)


def _check_command(text: str, settings: RunSettings, *, has_files: bool) -> None:
    """Raise `Refused` if the prompt calls a slash command of an untrusted folder, or if files are
    attached to a slash command.

    The text of a command may contain `!{shell}`, which runs a shell command. Gemini CLI does not
    read the `@path` of a file in the arguments of a command: the model would receive only the path.
    """
    name = next(iter(text[1:].split(maxsplit=1)), "") if text.startswith("/") else ""
    # A path such as `/usr/bin` is no command.
    if name and has_files and "/" not in name:
        raise Refused(
            "bad_prompt",
            f"files cannot be attached to the slash command /{name}: Gemini CLI would send only their paths",
            "Send the prompt as plain text with `literal`, or without the files.",
        )
    if name and any(_normalized(name).endswith(_normalized(command)) for command in settings.commands):
        raise Refused(
            "bad_prompt",
            f"/{name} is a custom command of this folder (.gemini/commands), but the folder is not trusted",
            "Trust the folder with `trust_workspace`, or send the prompt as plain text with `literal`.",
        )


def _normalized(command: str) -> str:
    """Normalize the name of a slash command as the CLI does, so that two names can be compared.

    The CLI replaces special characters and shortens long parts of a name (FileCommandLoader.ts). If
    the user has a command with the same name, the CLI puts `workspace.` before the name of the
    folder's command (SlashCommandResolver.ts). So callers compare only the end of a name.
    """
    parts = (part if len(part) <= 50 else f"{part[:47]}..." for part in command.split(":"))
    return "".join(c if c.isalnum() and c.isascii() else "_" for c in ":".join(parts))
