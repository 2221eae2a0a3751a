"""`geminids doctor`: check whether a run would work on this machine, and show what to fix."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click
import msgspec

from geminids.config.loader import load_options
from geminids.errors import OptionsError
from geminids.options import Options
from geminids.options.flag_names import with_flags

if TYPE_CHECKING:
    from geminids.doctor import Check
    from geminids.process.tree import Ended

__all__ = ["doctor"]

_MARKS = {"ok": "✓", "info": "i", "warning": "!", "error": "✗", "skipped": "–"}
_PLAIN = {"ok": "+", "info": "i", "warning": "!", "error": "x", "skipped": "-"}
_COLOURS = {"ok": "green", "info": "blue", "warning": "yellow", "error": "red", "skipped": "bright_black"}
_WIDTH = max(map(len, ("cli_version", "sessions_home")))


@click.command()
@click.option("--live", is_flag=True, help="Make one real run with a tiny prompt.")
@click.option(
    "--live-timeout",
    type=click.FloatRange(0, min_open=True),
    default=60.0,
    show_default=True,
    help="Seconds that the --live run may take.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object with `ok` and the checks.")
@click.option("--cwd", help="The working folder of the run.  [default: .]")
@click.option("--gemini", help="A version that geminids installed (0.61.0), or the path of a CLI.")
@click.option("--home", help="The home of the CLI: user, isolated, or a folder.  [default: user]")
@click.option(
    "--offline",
    is_flag=True,
    default=None,
    help="Check for runs with the built-in scripted model, which needs no key.",
)
@click.option(
    "--end-orphans", is_flag=True, help="Without asking: end processes left by programs that have died."
)
def doctor(
    live: bool,
    live_timeout: float,
    as_json: bool,
    cwd: str | None,
    gemini: str | None,
    home: str | None,
    offline: bool | None,
    end_orphans: bool,
) -> int:
    """Check whether a run would work here; if not, show what to fix.

    Exit codes: 0 a run would work, 1 it would not, 2 bad usage.
    """
    # Imported late: --help does not need them.
    import anyio

    from geminids.doctor import check_environment, would_work

    if end_orphans:
        _print_ended(_end_orphans())
    values = {"cwd": cwd, "gemini": gemini, "home": home, "offline": offline}
    flags: dict[str, Any] = {name: value for name, value in values.items() if value is not None}
    problem: OptionsError | None = None
    try:
        loaded = load_options(flags=flags)  # as `run` does
        options = loaded.options
        for warning in loaded.warnings:
            click.echo(f"geminids: {warning}", err=True)
    except OptionsError as error:
        problem, options = error, Options(**flags)
    check_all = functools.partial(
        check_environment, options, live=live, live_timeout=live_timeout, problem=problem
    )
    checks = anyio.run(check_all)
    checks = tuple(map(_with_flags, checks))
    ok = would_work(checks)
    if as_json:
        _print_json(ok, checks)
    else:
        _print(ok, checks)
        if _may_ask() and any(check.code == "orphans" and check.level == "warning" for check in checks):
            _offer_to_end_orphans()
    return 0 if ok else 1


def _with_flags(check: Check) -> Check:
    hint = None if check.hint is None else with_flags(check.hint)
    return msgspec.structs.replace(check, detail=with_flags(check.detail), hint=hint)


def _print_json(ok: bool, checks: Sequence[Check]) -> None:
    click.echo(msgspec.json.encode({"ok": ok, "checks": checks}))


def _print(ok: bool, checks: Sequence[Check]) -> None:
    coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    def paint(text: str, colour: str | None = None, *, dim: bool | None = None) -> str:
        return click.style(text, fg=colour, dim=dim) if coloured else text

    marks = _MARKS if _can_encode("".join(_MARKS.values())) else _PLAIN
    indent = " " * (_WIDTH + 4)
    for check in checks:
        first, *more = check.detail.split("\n")
        _print_line(f"{paint(marks[check.level], _COLOURS[check.level])} {check.code:<{_WIDTH}}  {first}")
        for line in more:
            _print_line(f"{indent}{line}")
        if check.hint:
            _print_line(paint(f"{indent}{check.hint}", dim=True))
    errors = sum(check.level == "error" for check in checks)
    problems = "1 problem" if errors == 1 else f"{errors} problems"
    last = "A run would work here." if ok else f"A run would not work here: {problems}."
    _print_line(paint(last, "green" if ok else "red"))


def _print_line(line: str) -> None:
    if not _can_encode(line):
        encoding = sys.stdout.encoding or "ascii"
        line = line.encode(encoding, "replace").decode(encoding)
    click.echo(line)


def _can_encode(text: str) -> bool:
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _may_ask() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def _offer_to_end_orphans() -> None:
    if click.confirm("End the processes left by programs that have died?", default=False):
        _print_ended(_end_orphans())


def _end_orphans() -> list[Ended]:
    from geminids.process.orphans import end_orphans, find_orphans  # imported late: it loads psutil

    return end_orphans(find_orphans().orphans)


def _print_ended(ended: Sequence[Ended]) -> None:
    # Print to stderr, because with --json only the JSON object may be on stdout.
    for process in ended:
        click.echo(f"ended {process.pid} ({process.signal}): {process.command}", err=True)
    if not ended:
        click.echo("found no processes left by programs that have died", err=True)
