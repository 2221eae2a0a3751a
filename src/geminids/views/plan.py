"""Show how a run would start the CLI (its plan), as text or JSON. Secrets are masked."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from geminids.launch.plan import Plan
from geminids.launch.route import route_text
from geminids.options.flag_names import with_flags
from geminids.redact import MASK, Redactor, is_secret_name

__all__ = ["PlanView", "build_view", "plan_text"]


class PlanView(msgspec.Struct, frozen=True, kw_only=True):
    """What `--dry-run` shows: how a run would start the CLI.

    `environment` contains the environment variables whose value for the CLI differs from the value
    in this process. A value of None means that the CLI does not get this variable. `neutralised`
    lists the files in the working folder that the run would ignore.
    """

    release: str | None
    cwd: str
    argv: tuple[str, ...]
    sign_in: str
    route: str
    environment: dict[str, str | None]
    settings: dict[str, object]
    policies: dict[str, str]
    files: tuple[str, ...]
    neutralised: tuple[str, ...]
    prompt: str


def build_view(plan: Plan, environ: Mapping[str, str]) -> PlanView:
    """Convert a plan to the form that `--dry-run` shows, with secrets masked."""
    redactor = Redactor(plan.secrets)
    home, staged = plan.writes.home, plan.writes.staged
    own_files = {str(home.path / name): text for name, text in home.files.items()}
    policy_files = [word.removeprefix("--policy=") for word in plan.argv if word.startswith("--policy=")]
    return PlanView(
        release=plan.gemini.version,
        cwd=plan.cwd,
        argv=tuple(map(redactor.text, plan.argv)),
        sign_in=f"{plan.auth.mode} ({plan.auth.source})",
        route=route_text(plan.route),
        environment=_changes(plan.env, environ, redactor),
        settings=redactor.value({str(home.path / ".gemini" / "settings.json"): home.settings}),
        policies={name: redactor.text(own_files.get(name) or _text(name)) for name in policy_files},
        files=tuple(str(staged.folder / name) for name in staged.files) if staged is not None else (),
        neutralised=tuple(map(str, plan.neutralised)),
        prompt=redactor.text(plan.stdin.decode("utf-8", "replace")),
    )


def _text(name: str) -> str:
    return Path(name).read_text("utf-8") if os.path.isfile(name) else ""


def _changes(env: Mapping[str, str], environ: Mapping[str, str], redactor: Redactor) -> dict[str, str | None]:
    """Return the variables whose value in `env` differs from the value in `environ`. A variable
    that is missing in `env` gets the value None.

    Secrets are masked. A variable with the name of a secret is always masked, because the redactor
    does not search for short secrets.
    """
    changed = {
        name: MASK if is_secret_name(name) and value else redactor.text(value)
        for name, value in env.items()
        if environ.get(name) != value
    }
    removed: dict[str, str | None] = {name: None for name in environ if name not in env}
    return dict(sorted({**changed, **removed}.items()))


def plan_text(view: PlanView) -> str:
    """Format a plan as text, with a title above each section."""
    variables = [
        f"{name} (removed)" if value is None else f"{name}={value}"
        for name, value in view.environment.items()
    ]
    sections = {
        "Gemini CLI": [view.release or "version unknown", *_command(view.argv)],
        "folder": [view.cwd],
        "sign-in": [view.sign_in],
        "requests": [with_flags(view.route)],
        "environment variables that differ from this process": variables,
        **{f"settings {name}": _json(value) for name, value in view.settings.items()},
        **{f"policy {name}": text.splitlines() for name, text in view.policies.items()},
        "files of this run": list(view.files),
        "ignored files in this folder (use --trust-workspace to allow them)": list(view.neutralised),
        "prompt, on stdin": view.prompt.splitlines(),
    }
    return "\n\n".join(
        "\n".join([title, *(f"  {line}".rstrip() for line in lines)])
        for title, lines in sections.items()
        if lines
    )


def _command(argv: tuple[str, ...]) -> list[str]:
    """Format a command in several lines: first the program, then each flag on its own line."""
    first = next((n for n, word in enumerate(argv) if word.startswith("--output-format")), len(argv))
    return [" ".join(argv[:first]), *(f"  {word}" for word in argv[first:])]


def _json(value: object) -> list[str]:
    return json.dumps(value, indent=2, ensure_ascii=False).splitlines()
