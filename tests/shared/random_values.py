"""Hypothesis strategies for every field of every event: odd texts, huge numbers, and None if
allowed."""

from __future__ import annotations

from typing import Any, get_args

from hypothesis import strategies as st

from geminids.events.model import (
    By,
    Change,
    Choice,
    Decision,
    EndedProcess,
    Event,
    Finished,
    Level,
    ModelUsage,
    Notice,
    PermissionAsked,
    PermissionDecided,
    Retry,
    Role,
    Started,
    Text,
    Thought,
    TokensUsed,
    ToolFinished,
    ToolKind,
    ToolStarted,
    ToolStatus,
    Transport,
    Usage,
)
from geminids.outcome import FAILURE_KINDS, OUTCOMES, Failure

__all__ = ["FIELDS", "counts", "moments"]

# The first and the last millisecond that `datetime` supports (years 1 to 9999).
_FIRST, _LAST = -62_135_596_800_000, 253_402_300_799_999
# The sum of many such counts still fits into a 64-bit integer.
_HUGE = 2**55

_odd_texts = (
    "",
    "\n",
    "\r\n",
    "\x00",
    "\u2028",
    "\x1b[31m",
    '"',
    "\\",
    "</script>",
    "🙂" * 3,
    "é",
    "\ufeff",
    "a" * 5000,
)
texts = st.one_of(st.sampled_from(_odd_texts), st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
# Only a few ids, so that calls, results and parents often have the same id.
ids = st.one_of(st.sampled_from(("a", "b", "c", "read_file_1")), texts)
names = st.one_of(
    st.sampled_from(
        (
            "read_file",
            "write_file",
            "replace",
            "edit",
            "run_shell_command",
            "shell",
            "glob",
            "google_web_search",
            "web_fetch",
            "invoke_agent",
            "write_todos",
            "save_memory",
            "mcp_x_y",
        )
    ),
    texts,
)
counts = st.one_of(st.sampled_from((0, 1, 7, 1000, _HUGE)), st.integers(0, 10**6))
signed = st.one_of(counts, st.integers(-(2**31), -1))
moments = st.one_of(
    st.integers(1_794_800_000_000, 1_794_900_000_000), st.sampled_from((0, _FIRST, _LAST, -1))
)
maybe_count, maybe_text, maybe_id = (st.none() | strategy for strategy in (counts, texts, ids))
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
_argument_names = st.sampled_from(
    ("file_path", "path", "command", "content", "old_string", "new_string", "query", "url")
)
inputs = st.none() | st.dictionaries(_argument_names | texts, texts | values, max_size=4)
changes = st.lists(
    st.builds(
        Change, path=texts, kind=st.sampled_from(("created", "edited", "deleted", "moved")), diff=maybe_text
    ),
    max_size=2,
).map(tuple)
paths = st.lists(texts, max_size=2).map(tuple)


def _any_choice(literal: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(get_args(literal))


_failures = st.builds(
    Failure,
    kind=st.sampled_from(FAILURE_KINDS),
    message=texts,
    retryable=st.booleans(),
    hint=texts,
    retry_after=st.none() | st.floats(0, 1e9),
    http_status=st.none() | st.integers(100, 599),
    exit_code=st.none() | st.integers(-64, 255),
    stderr_tail=maybe_text,
)
_model_usages = st.builds(
    ModelUsage,
    model=texts,
    **dict.fromkeys(("input", "cached", "output", "thinking", "tool", "total"), maybe_count),
    unknown=st.integers(0, 1),
)
usages = st.none() | st.builds(
    Usage,
    **dict.fromkeys(("input", "cached", "output", "thinking", "tool", "total", "requests"), maybe_count),
    unknown=st.integers(0, 1),
    models=st.lists(_model_usages, max_size=2).map(tuple),
)
_decisions = st.lists(
    st.builds(
        Decision,
        id=ids,
        tool=names,
        what=texts,
        decision=_any_choice(Choice),
        by=_any_choice(By),
        reason=maybe_text,
        at=moments,
        waited_ms=counts,
    ),
    max_size=2,
).map(tuple)
_ended = st.lists(
    st.builds(
        EndedProcess, pid=st.integers(1, 99999), command=texts, signal=st.sampled_from(("TERM", "KILL"))
    ),
    max_size=2,
).map(tuple)

# The fields of each event type, without the fields that all events have.
FIELDS: dict[type[Event], dict[str, st.SearchStrategy[Any]]] = {
    Started: {
        "run_id": st.just("run-0123456789abcdef") | texts,
        "session_id": maybe_id,
        "model": maybe_text,
        "cwd": texts,
        "cli_version": maybe_text,
        "transport": _any_choice(Transport),
        "pid": st.integers(0, 99999),
        "approval": st.sampled_from((None, "default", "auto_edit", "yolo", "plan", "")),
        "prompt": maybe_text,
    },
    Text: {"text": texts},
    Thought: {"subject": maybe_text, "text": texts, "parent": maybe_id},
    ToolStarted: {
        "id": ids,
        "name": names,
        "kind": _any_choice(ToolKind),
        "title": texts,
        "input": inputs,
        "paths": paths,
        "parent": maybe_id,
    },
    ToolFinished: {
        "id": ids,
        "name": names,
        "input": inputs,
        "status": _any_choice(ToolStatus),
        "output": maybe_text,
        "error": maybe_text,
        "exit_code": st.none() | st.integers(-64, 255),
        "changes": changes,
        "duration_ms": maybe_count,
        "parent": maybe_id,
    },
    PermissionAsked: {
        "id": ids,
        "tool": names,
        "kind": _any_choice(ToolKind),
        "title": texts,
        "command": maybe_text,
        "details": maybe_text,
        "cwd": maybe_text,
        "changes": changes,
        "paths": paths,
        "options": st.lists(_any_choice(Choice), max_size=3).map(tuple),
        "always": maybe_text,
        "parent": maybe_id,
    },
    PermissionDecided: {
        "id": ids,
        "tool": names,
        "decision": _any_choice(Choice),
        "by": _any_choice(By),
        "reason": maybe_text,
    },
    TokensUsed: {
        "model": maybe_text,
        "role": _any_choice(Role),
        **dict.fromkeys(("input", "cached", "output", "thinking", "tool"), maybe_count),
        "request": st.none() | st.integers(1, 9),
        "requested_model": maybe_text,
        "status": st.sampled_from((None, 200, 429, 503)),
        "repeat": st.booleans(),
        "duration_ms": st.none() | st.integers(0, 10**6),
    },
    Notice: {
        "level": _any_choice(Level),
        "code": st.sampled_from(
            (
                "retry",
                "stall",
                "loop",
                "noise",
                "stderr",
                "session",
                "cli",
                "transport",
                "discarded",
                "max_tokens",
            )
        )
        | texts,
        "message": texts,
        "retry": st.none()
        | st.builds(Retry, attempt=maybe_count, http_status=st.none() | st.integers(100, 599)),
        "request": st.none() | st.integers(1, 9),
    },
    Finished: {
        "run_id": st.just("run-0123456789abcdef") | texts,
        "outcome": st.sampled_from(OUTCOMES),
        "failure": st.none() | _failures,
        "reason": maybe_text,
        "text": texts,
        "answer": texts,
        "session_id": maybe_id,
        "clear_session": st.booleans(),
        "usage": usages,
        "attempts": st.integers(0, 9),
        "exit_code": st.none() | st.integers(-64, 255),
        "duration_ms": signed,
        "ended": _ended,
        "complete": st.booleans(),
        "decisions": _decisions,
        "finish_reason": st.sampled_from((None, "STOP", "MAX_TOKENS", "SAFETY", "OTHER")),
        "discarded": st.lists(st.integers(1, 9), max_size=2).map(tuple),
    },
}
