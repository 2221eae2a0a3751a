"""How the end of a run reads: outcome, why, what to do, tokens, and how to go on."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from rich.text import Text

from geminids.events.model import EndedProcess, Finished, Started
from geminids.outcome import Failure
from geminids.views.amounts import count, discarded, duration, money, tokens
from geminids.views.sanitize import clean, one_line

__all__ = ["Seen", "amounts", "footer", "resume_words"]

_MARKS = {"success": ("✓", "bold green"), "failed": ("✗", "bold red"), "timed_out": ("✗", "bold red")}
_OTHER_MARK = ("■", "bold yellow")
_MOST_ENDED = 5
_LONGEST_COMMAND = 40
# An id that is longer is a uuid, whose beginning is enough.
_SHORT = 35


@dataclass
class Seen:
    """What the footer needs to know of the events before the last."""

    offline: bool = False
    home: str = "user"
    started: Started | None = None
    answered: bool = False


def footer(event: Finished, seen: Seen) -> Iterator[Text]:
    """The lines; one that must stay in one piece has `no_wrap`."""
    yield _head(event, seen)
    if event.failure is not None or event.outcome != "success":
        yield from _why(event)
    if event.ended:
        yield Text(_ended(event.ended), "yellow")
    yield from amounts(event)
    if event.session_id and seen.answered and not event.clear_session:
        cwd = seen.started.cwd if seen.started else None
        resume = resume_words("run", event.session_id, offline=seen.offline, home=seen.home, cwd=cwd)
        yield Text(f'resume: {resume} "…"', "dim", no_wrap=True)
        yield Text(f"transcript: {_transcript(event.session_id, seen)}", "dim", no_wrap=True)


def amounts(event: Finished) -> Iterator[Text]:
    """Tokens and money of a run, and what of it was for nothing."""
    used = tokens(event.usage) if event.usage is not None else ""
    costs = one_line(money(event.cost)) if event.cost is not None else ""
    if used or (costs and event.cost is not None and event.cost.basis != "unknown"):
        yield Text(" · ".join(filter(None, (used, costs))), "dim")
    if unused := discarded(event.discarded):
        yield Text(unused, "dim")


def _head(event: Finished, seen: Seen) -> Text:
    mark, style = _MARKS.get(event.outcome, _OTHER_MARK)
    kind = f" ({event.failure.kind})" if event.failure else ""
    joint = "in" if event.outcome == "success" else "after"
    line = Text.assemble((f"{mark} {event.outcome.replace('_', ' ')}{kind}", style))
    if seen.started is not None:
        line.append(f" {joint} {duration(event.duration_ms)}")
    if event.attempts > 1:
        line.append(f" · {count(event.attempts, 'attempt', 'attempts')}")
    models = one_line(_models(event, seen))
    if models:
        line.append(f" · {models}")
    if seen.offline and seen.started is not None:
        line.append(" · scripted, no real model", "yellow")
    return line


def _models(event: Finished, seen: Seen) -> str:
    if event.usage is not None and event.usage.models:
        return ", ".join(used.model for used in event.usage.models)
    return (seen.started.model if seen.started else None) or ""


def _why(event: Finished) -> Iterator[Text]:
    failure = event.failure
    reason = clean(event.reason or (failure.message if failure else "")).strip()
    for line in reason.splitlines()[:8]:
        yield Text(line.rstrip())
    if failure is None:
        return
    if failure.hint:
        yield Text(f"→ {one_line(failure.hint)}", "bold")
    facts = _facts(failure)
    if facts:
        yield Text(facts, "dim")


def _facts(failure: Failure) -> str:
    told = []
    if failure.http_status is not None:
        told.append(f"HTTP {failure.http_status}")
    if failure.exit_code is not None:
        told.append(f"exit code {failure.exit_code}")
    if failure.retry_after is not None:
        told.append(f"can be tried again in {duration(failure.retry_after * 1000)}")
    elif failure.retryable:
        told.append("can be tried again")
    return " · ".join(told)


def _ended(processes: tuple[EndedProcess, ...]) -> str:
    shown = [
        _command(one.command) + (" (killed)" if one.signal == "KILL" else "")
        for one in processes[:_MOST_ENDED]
    ]
    if len(processes) > _MOST_ENDED:
        shown.append(f"and {len(processes) - _MOST_ENDED} more")
    return f"ended {count(len(processes), 'process', 'processes')}: {', '.join(shown)}"


def _command(words: str) -> str:
    """The program's own name says more than the folders it lies in."""
    program, space, rest = words.partition(" ")
    return one_line(f"{program.rpartition('/')[2]}{space}{rest}", _LONGEST_COMMAND)


def resume_words(command: str, session_id: str, *, offline: bool, home: str, cwd: str | None) -> str:
    """A command that works when it is pasted: a session belongs to its folder and its home."""
    words = ["geminids", command]
    if offline:
        words.append("--offline")
    if home != "user":
        words += ["--home", home]
    if cwd is not None and not _is_here(cwd):
        words += ["--cwd", cwd]
    return clean(shlex.join([*words, "--resume", session_id]))


def _transcript(session_id: str, seen: Seen) -> str:
    """The command finds a session of any folder, by the beginning of its id."""
    words = ["geminids", "sessions", "show", session_id[:8] if len(session_id) > _SHORT else session_id]
    if seen.home != "user":
        words += ["--home", seen.home]
    return clean(shlex.join(words))


def _is_here(folder: str) -> bool:
    try:
        return os.path.samefile(folder, os.curdir)
    except OSError:
        return False
