"""Format the last lines that the terminal shows for a run (the footer).

The footer shows how the run ended, why, what to do about a failure, tokens and cost, and how to
resume the session.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from rich.text import Text

from geminids.events.model import EndedProcess, Finished, Started
from geminids.options.flag_names import with_flags
from geminids.outcome import Failure
from geminids.views.amounts import count, discarded, duration, money, tokens
from geminids.views.sanitize import clean, one_line

__all__ = ["RunFacts", "amounts", "footer", "resume_command_line"]

_MARKS = {"success": ("✓", "bold green"), "failed": ("✗", "bold red"), "timed_out": ("✗", "bold red")}
_OTHER_MARK = ("■", "bold yellow")
_MAX_ENDED = 5
# The reason of a failed replay contains a diff, which is at most this long.
_MAX_REASON_LINES = 45
_MAX_COMMAND_LENGTH = 40
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass
class RunFacts:
    """What the footer needs besides the event `Finished`: options, and facts from earlier events.

    `answered` is True if the model has sent any text, thought or tool call.
    """

    offline: bool = False
    home: str = "user"
    started: Started | None = None
    answered: bool = False


def footer(event: Finished, facts: RunFacts) -> Iterator[Text]:
    """Yield the lines of the footer. A line that must not be wrapped has `no_wrap` set."""
    yield _head(event, facts)
    if event.outcome != "success":
        yield from _reason(event)
    if event.ended:
        yield Text(_ended_text(event.ended), "yellow")
    yield from amounts(event)
    if event.session_id and facts.answered and not event.clear_session:
        cwd = facts.started.cwd if facts.started else None
        resume = resume_command_line("run", event.session_id, offline=facts.offline, home=facts.home, cwd=cwd)
        yield Text(f'resume: {resume} "…"', "dim", no_wrap=True)
        yield Text(f"transcript: {_transcript(event.session_id, facts)}", "dim", no_wrap=True)


def amounts(event: Finished) -> Iterator[Text]:
    """Yield one line with the tokens and the cost of a run, and one line about answers of the model
    that the CLI did not use.

    A line without content is left out.
    """
    used = tokens(event.usage) if event.usage is not None else ""
    costs = one_line(money(event.cost)) if event.cost is not None else ""
    if used or (costs and event.cost is not None and event.cost.basis != "unknown"):
        yield Text(" · ".join(filter(None, (used, costs))), "dim")
    if unused := discarded(event.discarded):
        yield Text(unused, "dim")


def _head(event: Finished, facts: RunFacts) -> Text:
    mark, style = _MARKS.get(event.outcome, _OTHER_MARK)
    kind = f" ({event.failure.kind})" if event.failure and event.outcome == "failed" else ""
    preposition = "in" if event.outcome == "success" else "after"
    line = Text.assemble((f"{mark} {event.outcome.replace('_', ' ')}{kind}", style))
    if facts.started is not None:
        line.append(f" {preposition} {duration(event.duration_ms)}")
    if event.attempts > 1:
        line.append(f" · {count(event.attempts, 'attempt', 'attempts')}")
    models = one_line(_models(event, facts))
    if models:
        line.append(f" · {models}")
    if facts.offline and facts.started is not None:
        line.append(" · scripted, no real model", "yellow")
    return line


def _models(event: Finished, facts: RunFacts) -> str:
    if event.usage is not None and event.usage.models:
        return ", ".join(used.model for used in event.usage.models)
    return (facts.started.model if facts.started else None) or ""


def _reason(event: Finished) -> Iterator[Text]:
    failure = event.failure
    reason = with_flags(clean(event.reason or (failure.message if failure else ""))).strip()
    lines = reason.splitlines()
    yield from (Text(line.rstrip()) for line in lines[:_MAX_REASON_LINES])
    if len(lines) > _MAX_REASON_LINES:
        yield Text(f"… {count(len(lines) - _MAX_REASON_LINES, 'more line')}", "dim")
    if failure is None:
        return
    if failure.hint and event.outcome != "interrupted":
        yield Text(f"→ {one_line(with_flags(failure.hint))}", "bold")
    details = _details(failure)
    if details:
        yield Text(details, "dim")


def _details(failure: Failure) -> str:
    parts = []
    if failure.http_status is not None:
        parts.append(f"HTTP {failure.http_status}")
    if failure.exit_code is not None:
        parts.append(f"exit code {failure.exit_code}")
    if failure.retry_after is not None:
        parts.append(f"can be retried in {duration(failure.retry_after * 1000)}")
    elif failure.retryable:
        parts.append("can be retried")
    return " · ".join(parts)


def _ended_text(processes: tuple[EndedProcess, ...]) -> str:
    shown = [
        _command(process.command) + (" (killed)" if process.signal == "KILL" else "")
        for process in processes[:_MAX_ENDED]
    ]
    if len(processes) > _MAX_ENDED:
        shown.append(f"and {len(processes) - _MAX_ENDED} more")
    return f"ended {count(len(processes), 'process', 'processes')}: {', '.join(shown)}"


def _command(words: str) -> str:
    """Return a command line without the folder of its program, truncated to 40 characters."""
    program, space, rest = words.partition(" ")
    return one_line(f"{program.rpartition('/')[2]}{space}{rest}", _MAX_COMMAND_LENGTH)


def resume_command_line(command: str, session_id: str, *, offline: bool, home: str, cwd: str | None) -> str:
    """Return a `geminids` command that resumes the session, quoted for a shell.

    `command` is "run" or "chat". The options `--offline`, `--home` and `--cwd` are added if needed.
    A UUID is shortened, so that the command fits in a narrow terminal.
    """
    words = ["geminids", command]
    if offline:
        words.append("--offline")
    if home != "user":
        words += ["--home", home]
    if cwd is not None and not _is_here(cwd):
        words += ["--cwd", cwd]
    return clean(shlex.join([*words, "--resume", _short_id(session_id)]))


def _transcript(session_id: str, facts: RunFacts) -> str:
    """Return the command that shows the transcript of the session."""
    words = ["geminids", "sessions", "show", _short_id(session_id)]
    if facts.home != "user":
        words += ["--home", facts.home]
    return clean(shlex.join(words))


def _short_id(session_id: str) -> str:
    """Return the first eight characters of a UUID, which are random and enough to find the session.
    Return another id unchanged.
    """
    return session_id[:8] if _UUID.fullmatch(session_id) else session_id


def _is_here(folder: str) -> bool:
    try:
        return os.path.samefile(folder, os.curdir)
    except OSError:
        return False
