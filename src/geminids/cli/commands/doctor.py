"""`geminids doctor`: would a run work here, and what to do where not."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Sequence

    from geminids.doctor import Check
    from geminids.process.tree import Ended

__all__ = ["doctor"]

_MARKS = {"ok": "✓", "info": "i", "warning": "!", "error": "✗", "skipped": "–"}
_PLAIN = {"ok": "+", "info": "i", "warning": "!", "error": "x", "skipped": "-"}
_COLOURS = {"ok": "green", "info": "blue", "warning": "yellow", "error": "red", "skipped": "bright_black"}
_WIDTH = max(map(len, ("cli_version", "sessions_home")))


@click.command()
@click.option("--live", is_flag=True, help="Make one real run with a tiny prompt.")
@click.option("--live-timeout", type=click.FloatRange(0, min_open=True), default=60.0, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object: ok, and the checks.")
@click.option("--cwd", help="The folder that the agent would work in.  [default: .]")
@click.option("--gemini", help="A managed release (0.61.0) or the path of a CLI.")
@click.option("--home", help="user, isolated, or a folder.  [default: user]")
@click.option(
    "--offline",
    is_flag=True,
    default=None,
    help="For runs with the built-in scripted model: no key is needed.",
)
@click.option("--end-orphans", is_flag=True, help="End processes that dead hosts have left, without asking.")
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
    """Check whether a run would work here, and say what to do where not.

    Exit codes: 0 a run would work, 1 it would not, 2 bad usage.
    """
    import functools

    import anyio

    from geminids.config.loader import load_options
    from geminids.doctor import Check, check_environment, would_work
    from geminids.errors import OptionsError
    from geminids.options import Options

    if end_orphans:
        _tell_ended(_end_orphans())
    given = {"cwd": cwd, "gemini": gemini, "home": home, "offline": offline}
    flags: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    problem: OptionsError | None = None
    try:
        options = load_options(flags=flags).options  # as `run` does
    except OptionsError as error:
        problem, options = error, Options(**flags)
    visit = functools.partial(check_environment, options, live=live, live_timeout=live_timeout)
    found = anyio.run(visit)
    reported = {check.code for check in found if check.level == "error"}
    unreported = [name for name, _ in problem.problems if name not in reported] if problem else []
    if unreported and "options" not in reported:
        found = (Check("options", "error", str(problem), "A run refuses to start with these."), *found)
    ok = would_work(found)
    if as_json:
        _print_json(ok, found)
    else:
        _print(ok, found)
        if _may_ask() and any(check.code == "orphans" and check.level == "warning" for check in found):
            _offer()
    return 0 if ok else 1


def _print_json(ok: bool, found: Sequence[Check]) -> None:
    import msgspec

    click.echo(msgspec.json.encode({"ok": ok, "checks": found}))


def _print(ok: bool, found: Sequence[Check]) -> None:
    coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    def paint(text: str, colour: str | None = None, *, dim: bool | None = None) -> str:
        return click.style(text, fg=colour, dim=dim) if coloured else text

    marks = _MARKS if _can_say("".join(_MARKS.values())) else _PLAIN
    indent = " " * (_WIDTH + 4)
    for check in found:
        first, *more = check.detail.split("\n")
        _say(f"{paint(marks[check.level], _COLOURS[check.level])} {check.code:<{_WIDTH}}  {first}")
        for line in more:
            _say(f"{indent}{line}")
        if check.hint:
            _say(paint(f"{indent}{check.hint}", dim=True))
    wrong = sum(check.level == "error" for check in found)
    problems = "1 problem" if wrong == 1 else f"{wrong} problems"
    last = "A run would work here." if ok else f"A run would not work here: {problems}."
    _say(paint(last, "green" if ok else "red"))


def _say(line: str) -> None:
    if not _can_say(line):
        encoding = sys.stdout.encoding or "ascii"
        line = line.encode(encoding, "replace").decode(encoding)
    click.echo(line)


def _can_say(text: str) -> bool:
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _may_ask() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def _offer() -> None:
    if click.confirm("End the processes that dead hosts have left?", default=False):
        _tell_ended(_end_orphans())


def _end_orphans() -> list[Ended]:
    from geminids.process.orphans import end_orphans, find_orphans

    return end_orphans(find_orphans().orphans)


def _tell_ended(ended: Sequence[Ended]) -> None:
    # To stderr: with --json, stdout has the object alone.
    for one in ended:
        click.echo(f"ended {one.pid} ({one.signal}): {one.command}", err=True)
    if not ended:
        click.echo("no process of a dead host was there to end", err=True)
