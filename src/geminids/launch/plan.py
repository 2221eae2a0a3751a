"""Options become a plan: what is run, where, with which environment and which words on stdin."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from geminids.config.places import Places
from geminids.errors import ToolchainError
from geminids.gateway.route import Route
from geminids.ids import new_session_id
from geminids.launch import environment
from geminids.launch.auth import Auth
from geminids.launch.compose import with_media, words_of
from geminids.launch.ground import Connect, make_ground, placeholder
from geminids.launch.permissions import Verdicts
from geminids.launch.refused import Refused
from geminids.launch.scratch import Scratch, sweep
from geminids.launch.terms import POLICY, USERS_POLICY, Terms
from geminids.launch.workspace import Found
from geminids.options import Options
from geminids.toolchain import Gemini, Release, find

__all__ = [
    "Plan",
    "Refused",
    "flags_of",
    "folder_flags",
    "look_ahead",
    "make_plan",
    "minted_id",
    "policy_flags",
]


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """All that a spawn needs. `secrets` are the values that must never be shown; `scratch` is closed by the run."""

    argv: tuple[str, ...]
    cwd: str
    env: dict[str, str]
    stdin: bytes
    prompt: str
    """What the caller said, before templates, instructions and files were put around it."""
    session_id: str | None
    gemini: Gemini
    auth: Auth
    route: Route
    secrets: frozenset[str]
    scratch: Scratch
    verdicts: Verdicts
    resumed: Path | None = None
    """The file of the session that is resumed, where it is known."""
    neutralised: tuple[Found, ...] = ()
    """What the folder would have brought with it, and does not."""

    @property
    def release(self) -> Release:
        return self.gemini.release


def make_plan(
    prompt: str,
    options: Options,
    *,
    run_id: str = "",
    environ: Mapping[str, str] | None = None,
    places: Places | None = None,
    connect: Connect = placeholder,
    resumed: Path | None = None,
    dry: bool = False,
    budget: bool = False,
) -> Plan:
    """Plan a run and write out the home that it needs; raises `Refused` where it cannot work.

    `connect` opens the gateway. `dry`: create nothing in a folder of the user's. `budget`: see `make_ground`.
    """
    environ = os.environ if environ is None else environ
    places = Places.of(environ) if places is None else places
    sweep(places)
    scratch = Scratch(places)
    try:
        plan = _planned(prompt, options, run_id, environ, places, connect, scratch, dry, budget)
        return msgspec.structs.replace(plan, resumed=resumed)
    except BaseException:
        scratch.close()
        raise


def _planned(
    prompt: str,
    options: Options,
    run_id: str,
    environ: Mapping[str, str],
    places: Places,
    connect: Connect,
    scratch: Scratch,
    dry: bool,
    budget: bool,
) -> Plan:
    words = words_of(prompt, options, run_id)
    ground = make_ground(options, environ, places, connect, dry=dry, budget=budget)
    gemini, terms, env = ground.gemini, ground.terms, ground.env
    stdin, opened = with_media(words, options, ground.cwd, scratch)
    _check_command(words, terms)
    if options.telemetry is not None:
        env |= environment.telemetry_environment(_telemetry_file(options.telemetry, dry=dry))
    session_id = options.session_id or minted_id(options, gemini)
    return Plan(
        argv=(
            *gemini.command(places),
            *flags_of(options, session_id),
            *opened,
            *policy_flags(terms, env),
            *terms.flags,
        ),
        cwd=ground.cwd,
        env=env,
        stdin=stdin,
        prompt=prompt,
        session_id=session_id,
        gemini=gemini,
        auth=ground.auth,
        route=ground.route,
        secrets=ground.secrets,
        scratch=scratch,
        verdicts=terms.verdicts,
        neutralised=terms.neutralised,
    )


def _telemetry_file(path: str, *, dry: bool) -> str:
    """The file that the CLI writes its telemetry to, private from the start: prompts may be in it."""
    if not dry:
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
        except OSError as error:
            hint = "Name a file in a folder that you can write to."
            raise Refused("bad_option", f"telemetry: {path}: {error.strerror}", hint) from None
    return os.path.abspath(path)


def _check_command(words: str, terms: Terms) -> None:
    """A slash command of the folder's is text of the folder's, and may hold `!{shell}`."""
    name = next(iter(words[1:].split(maxsplit=1)), "") if words.startswith("/") else ""
    if name and any(_loosely(name).endswith(_loosely(command)) for command in terms.commands):
        raise Refused(
            "bad_prompt",
            f"/{name} is a command of this folder's (.gemini/commands), which is not trusted",
            "Trust the folder with trust_workspace, or take the prompt as text with literal.",
        )


def _loosely(command: str) -> str:
    """Names that the CLI takes for one another: it changes odd characters, cuts long parts, and puts `workspace.`
    before the name where the user has such a command too (FileCommandLoader.ts, SlashCommandResolver.ts)."""
    parts = (part if len(part) <= 50 else f"{part[:47]}..." for part in command.split(":"))
    return "".join(c if c.isalnum() and c.isascii() else "_" for c in ":".join(parts))


def look_ahead(options: Options) -> None:
    """Find the CLI now, which asks an unknown one for its version: planning then starts no process."""
    try:
        find(
            options.gemini, environ=environment.base_environment(os.environ, options, {}), places=Places.of()
        )
    except (ToolchainError, OSError):
        pass  # the plan will say it


def policy_flags(terms: Terms, env: Mapping[str, str]) -> Sequence[str]:
    """`--policy` for ours and, since that replaces the user's policies, for theirs."""
    ours = [
        os.path.join(env["GEMINI_CLI_HOME"], name) for name in (POLICY, USERS_POLICY) if name in terms.files
    ]
    return [f"--policy={_listed(path, 'the policy')}" for path in (*ours, *terms.policies)]


def _listed(path: str, what: str) -> str:
    """A path for a flag that takes a list with commas."""
    if "," in path:
        raise Refused(
            "config", f"{what} {path} has a comma in its path", "Gemini CLI takes it for two: move it."
        )
    return path


def minted_id(options: Options, gemini: Gemini) -> str | None:
    """An id for a new session, so that lock and records exist before the first byte.

    Where the compile cache makes up for it: `--session-id` costs 0.1 s, since the CLI then asks for a lock that
    its own start-up cleanup holds, and tries again after 100 ms (projectRegistry.ts).
    """
    fast = gemini.node is not None and gemini.node.has_compile_cache
    return new_session_id() if fast and options.resume is None else None


def flags_of(options: Options, session_id: str | None) -> Sequence[str]:
    flags = ["--output-format=stream-json", f"--approval-mode={options.approval}"]
    if options.model is not None:
        flags.append(f"--model={options.model}")
    if options.resume is not None:
        flags.append(f"--resume={options.resume}")
    if session_id is not None:
        flags.append(f"--session-id={session_id}")
    return [*flags, *folder_flags(options)]


def folder_flags(options: Options) -> Sequence[str]:
    """`--include-directories` for each further folder."""
    folders = [_listed(os.path.abspath(folder), "the folder") for folder in options.include_dirs]
    return [f"--include-directories={folder}" for folder in folders]
