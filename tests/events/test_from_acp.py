"""Updates of an ACP session become events: rules for any sequence of updates, and the events of
each kind of update."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geminids import Text, Thought, ToolFinished, ToolStarted, encode_event
from geminids.events.model import Event, Notice, TokensUsed
from geminids.events.numbering import EventNumbers
from geminids.events.translate.acp import AcpTranslator, tool_name, unified
from geminids.events.translate.acp_journal import WarmJournalTranslator
from geminids.gemini.protocol.acp.messages import AcpToolCall, Unknown, Update
from geminids.gemini.protocol.journal.records import decode_message
from geminids.redact import Redactor

SECRET = "hunter2hunter2"


def _make(secrets: tuple[str, ...] = (), **fields: Any) -> tuple[EventNumbers, AcpTranslator]:
    numbers = EventNumbers()
    return numbers, AcpTranslator(numbers, Redactor(secrets), "s", "/repo", **fields)


def _text(text: str, kind: str = "agent_message_chunk") -> Update:
    return Update(session_id="s", kind=kind, text=text)


def _tool(kind: str, call_id: str, **fields: Any) -> Update:
    return Update(session_id="s", kind=kind, tool=AcpToolCall(tool_call_id=call_id, **fields))


def _content(text: str) -> list[dict[str, Any]]:
    return [{"type": "content", "content": {"type": "text", "text": text}}]


_IDS = st.sampled_from(("a__1", "b__2", "run_shell_command__3", ""))
_WORDS = st.text(max_size=8) | st.sampled_from((SECRET, SECRET[:5], SECRET[5:], "[MODE_UPDATE] x"))
_CONTENT = st.one_of(
    st.none(),
    _WORDS.map(_content),
    st.just([{"type": "diff", "path": "a.py", "oldText": None, "newText": "x"}, {"type": "terminal"}, 7]),
)
_STATUS = st.sampled_from((None, "pending", "in_progress", "completed", "failed", "new"))
_CALLS = st.builds(AcpToolCall, tool_call_id=_IDS, title=st.none() | _WORDS, status=_STATUS, content=_CONTENT)
_UPDATES = st.one_of(
    st.builds(Update, session_id=st.just("s"), kind=st.just("agent_message_chunk"), text=_WORDS),
    st.builds(Update, session_id=st.just("s"), kind=st.just("agent_thought_chunk"), text=_WORDS),
    st.builds(
        Update,
        session_id=st.just("s"),
        kind=st.sampled_from(("tool_call", "tool_call_update", "tool_call_update")),
        tool=_CALLS,
    ),
    st.builds(
        Update, session_id=st.just("s"), kind=st.sampled_from(("user_message_chunk", "current_mode_update"))
    ),
    st.builds(Unknown, why=st.sampled_from(("noise", "protocol", "unknown_update")), line=_WORDS),
)
_STEPS = st.lists(
    st.one_of(
        _UPDATES.map(lambda update: ("translate", update)),
        _CALLS.map(lambda call: ("asked", call)),
        _IDS.map(lambda call_id: ("refused", call_id)),
        st.lists(_IDS, max_size=2).map(lambda call_ids: ("given", call_ids)),
        _WORDS.map(lambda text: ("answered", text)),
    ),
    max_size=25,
)


def _apply(translator: AcpTranslator, step: tuple[str, Any]) -> list[Event]:
    action, value = step
    if action == "translate":
        return translator.translate(value)
    if action == "asked":
        return translator.begin_asked(value)[1]
    if action == "refused":
        return translator.deny(value, "no")
    if action == "given":
        translator.add_results(tuple((call_id, "glob", {"error": SECRET}) for call_id in value))
    else:
        translator.add_answer(value, 0)
    return []


@given(_STEPS, st.booleans())
@settings(max_examples=300)
def test_the_laws_hold_for_any_updates(steps: list[tuple[str, Any]], has_secret: bool) -> None:
    """For any updates, each tool start has one end, event numbers have no gaps, all events can be
    encoded, no text is lost, and no secret is shown."""
    numbers, translator = _make((SECRET,) if has_secret else ())
    events = [event for step in steps for event in _apply(translator, step)] + translator.finish()
    assert [event.seq for event in events] == list(range(numbers.seq))
    running: set[str] = set()
    for event in events:
        if isinstance(event, ToolStarted):
            assert event.id not in running
            running.add(event.id)
        elif isinstance(event, ToolFinished):
            running.remove(event.id)
    assert not running and not translator.tools_running
    assert translator.finish() == []
    written = b"".join(map(encode_event, events)).decode()
    if not has_secret:
        texts = [step[1].text for step in steps if getattr(step[1], "kind", "") == "agent_message_chunk"]
        assert "".join(event.text for event in events if isinstance(event, Text)) == "".join(texts)
    else:
        others = [event for event in events if not isinstance(event, Text)]
        assert SECRET not in b"".join(map(encode_event, others)).decode()
        assert all(SECRET not in event.text for event in events if isinstance(event, Text))
    assert written.count('"type":"') >= len(events)


@given(st.text(alphabet="hunter2 x", max_size=12), st.text(alphabet="hunter2 x", max_size=12), st.data())
def test_a_secret_is_masked_wherever_the_text_is_cut(before: str, after: str, data: st.DataObject) -> None:
    """However a text is cut into pieces, the text events join to what the redactor returns for the
    whole text."""
    whole = before + SECRET + after
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    pieces = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    _, translator = _make((SECRET,))
    events = [event for piece in pieces for event in translator.translate(_text(piece))] + translator.finish()
    assert "".join(event.text for event in events if isinstance(event, Text)) == Redactor((SECRET,)).text(
        whole
    )


def test_secrets_are_masked_in_every_event() -> None:
    """Secrets are masked in titles, paths, outputs, errors, diffs, thoughts, notices, and in the id
    of a call that never started."""
    numbers, translator = _make((SECRET,))
    translator.add_results((("write_file__1", "write_file", {}), ("glob__9", "glob", {"error": SECRET})))
    call = AcpToolCall(
        tool_call_id="write_file__1",
        title=f"Writing {SECRET}",
        status="completed",
        locations=[{"path": f"/repo/{SECRET}"}, {"path": "/repo/b"}],
        content=[
            {"type": "diff", "path": SECRET, "oldText": SECRET, "newText": "x"},
            *_content(f"is {SECRET}"),
        ],
    )
    events = [
        *translator.begin_asked(call)[1],
        *translator.translate(Update(session_id="s", kind="tool_call_update", tool=call)),
        *translator.translate(_text(f"**{SECRET}**\n{SECRET}", "agent_thought_chunk")),
        *translator.translate(_tool("tool_call_update", SECRET, status="completed")),
        *translator.translate(Unknown(why="noise", line=SECRET)),
        *translator.finish(),
    ]
    assert SECRET not in b"".join(map(encode_event, events)).decode()
    assert numbers.seq == len(events) == 7 and [type(one) for one in events].count(ToolFinished) == 2


def test_a_tool_from_its_start_to_its_end() -> None:
    """The start of a tool has its name, kind, title and paths. Its end has the status and the
    changes."""
    _, translator = _make()
    locations = [{"path": "/repo/a.py"}]
    (started,) = translator.translate(
        _tool("tool_call", "replace__replace_1794822567391_0", title="a.py: x => y", locations=locations)
    )
    assert isinstance(started, ToolStarted)
    assert (started.name, started.kind, started.title, started.paths) == (
        "replace",
        "edit",
        "Edit a.py",
        ("/repo/a.py",),
    )
    assert started.input is None and translator.tools_running
    diff = [{"type": "diff", "path": "/repo/a.py", "oldText": "x\n", "newText": "y\n"}]
    (ended,) = translator.translate(_tool("tool_call_update", started.id, status="completed", content=diff))
    assert isinstance(ended, ToolFinished) and ended.status == "ok"
    (change,) = ended.changes
    assert (change.kind, change.diff) == ("edited", "--- before\n+++ /repo/a.py\n@@ -1 +1 @@\n-x\n+y\n")


@pytest.mark.parametrize(
    ("fields", "status", "error"),
    [
        ({"status": "failed", "content": _content("no such file")}, "failed", "no such file"),
        (
            {"status": "failed", "content": _content("Tool execution denied by policy.")},
            "denied",
            "shell is off",
        ),
        (
            {"status": "completed", "content": _content("Blocked: command substitution is")},
            "denied",
            "Blocked",
        ),
        ({"status": "completed", "content": _content("fine")}, "ok", None),
        ({"status": "completed"}, "ok", None),
    ],
)
def test_the_status_of_a_tool(fields: dict[str, Any], status: str, error: str | None) -> None:
    """A call that a policy denies is reported as `denied`, with our reason first. A failed call is
    not a denial."""
    _, translator = _make(why_not=lambda tool, _: "shell is off")
    translator.translate(_tool("tool_call", "run_shell_command__1"))
    (ended,) = translator.translate(_tool("tool_call_update", "run_shell_command__1", **fields))
    assert isinstance(ended, ToolFinished) and ended.status == status
    assert (ended.error or "").startswith(error or "") and bool(ended.error) == bool(error)


def test_a_call_starts_with_its_permission_request() -> None:
    """A call starts with its permission request and ends as `denied` when it is refused. Later
    refusals and updates do not end it again."""
    _, translator = _make()
    started, events = translator.begin_asked(AcpToolCall(tool_call_id="write_file__1", title="Writing to a"))
    assert events == [started]
    (refused,) = translator.deny(started.id, "a person refused")
    assert isinstance(refused, ToolFinished) and (refused.status, refused.error) == (
        "denied",
        "a person refused",
    )
    assert translator.deny(started.id, "again") == []
    (notice,) = translator.translate(_tool("tool_call_update", started.id, status="failed"))
    assert isinstance(notice, Notice) and notice.code == "protocol"


def test_a_call_without_updates_comes_from_the_journal() -> None:
    """A call of an unknown or denied tool has no ACP updates. It is reported from the journal, with
    start and end, and only once."""
    unrecorded: list[str] = []
    _, translator = _make(
        why_not=lambda tool, _: "fetch is denied" if tool == "web_fetch" else None,
        on_unrecorded=unrecorded.append,
    )
    translator.translate(_tool("tool_call", "glob__1", status="completed"))
    results = (
        ("glob__1", "glob", {"output": "x"}),
        ("nonesuch__1", "nonesuch", {"error": 'Tool "nonesuch" not found in registry.'}),
        ("web_fetch__1", "web_fetch", {"error": 'Tool "web_fetch" not found.'}),
    )
    translator.add_results(results)
    *calls, text = translator.translate(_text("so it is"))
    assert [type(event) for event in calls] == [ToolStarted, ToolFinished] * 2
    unknown, denied = calls[1], calls[3]
    assert isinstance(unknown, ToolFinished) and (unknown.id, unknown.status) == ("nonesuch__1", "failed")
    assert isinstance(denied, ToolFinished) and (denied.id, denied.status) == ("web_fetch__1", "denied")
    assert denied.error == 'fetch is denied (Gemini CLI: Tool "web_fetch" not found.)'
    assert unrecorded == ["nonesuch__1", "web_fetch__1"], "the journal has no record of these calls"
    assert [event.turn for event in (*calls, text)] == [1, 1, 1, 1, 2]
    translator.add_results(results)
    assert translator.finish() == []


def test_an_open_tool_is_cancelled_at_the_end() -> None:
    """A tool that still runs at the end of the session is reported as `cancelled`."""
    _, translator = _make()
    translator.translate(_tool("tool_call", "glob__1"))
    (ended,) = translator.finish()
    assert isinstance(ended, ToolFinished) and ended.status == "cancelled"


def test_a_call_without_a_start() -> None:
    """A call whose first update is its end is reported with a start and an end. A second such
    update is a notice."""
    _, translator = _make()
    for text, status in (("params must have ...", "failed"), ('"Shell" denied by policy.', "denied")):
        update = _tool("tool_call_update", f"glob__{status}", status="failed", content=_content(text))
        started, ended = translator.translate(update)
        assert isinstance(started, ToolStarted) and isinstance(ended, ToolFinished)
        assert (started.name, ended.id, ended.status, ended.error) == ("glob", started.id, status, text)
        (again,) = translator.translate(update)
        assert isinstance(again, Notice) and again.code == "protocol"
    translator.add_results(
        [("glob__failed", "glob", {"error": "x"}), ("glob__denied", "glob", {"error": "x"})]
    )
    assert translator.finish() == []


def test_text_like_a_mode_update_is_text() -> None:
    """Text that looks like the CLI's [MODE_UPDATE] note is passed on. The real note comes only
    between turns."""
    _, translator = _make()
    (event,) = translator.translate(_text("[MODE_UPDATE] yolo"))
    assert isinstance(event, Text) and event.text == "[MODE_UPDATE] yolo"


@pytest.mark.parametrize(
    ("chunk", "subject", "text"),
    [
        ("**Plan**\nI think\nso", "Plan", "I think\nso"),
        ("no subject", None, "no subject"),
        ("****\nonly words", None, "only words"),
        ("**a**b**\nc", "a**b", "c"),
        ("", None, ""),
    ],
)
def test_a_thought(chunk: str, subject: str | None, text: str) -> None:
    """A thought chunk is split into its subject and its text."""
    _, translator = _make()
    (thought,) = translator.translate(_text(chunk, "agent_thought_chunk"))
    assert isinstance(thought, Thought) and (thought.subject, thought.text) == (subject, text)


@pytest.mark.parametrize(
    ("call_id", "name"),
    [
        ("read_file__read_file_1794822567391_0", "read_file"),
        ("glob__call-7", "glob"),
        ("glob__call__7", "glob"),
        ("glob_1794822567391_0", "glob"),
        ("read_many_files-1794822567391-1", "read_many_files"),
        ("mcp_srv_issue__read__mcp_srv_issue__read_1794822567391_0", "mcp_srv_issue__read"),
        ("mcp_srv_issue__read__call-7", "mcp_srv_issue__read"),
        ("mcp_srv_issue__delete__call-8", "mcp_srv_issue__delete"),
        ("__x", "__x"),
        ("", ""),
        ("odd", "odd"),
    ],
)
def test_the_tool_name_in_a_call_id(call_id: str, name: str) -> None:
    """`tool_name` finds the whole name in a call id, so that permission for one tool does not apply
    to another whose name begins alike."""
    assert tool_name(call_id) == name


@given(st.none() | st.text(max_size=40), st.text(max_size=40))
def test_a_diff_of_any_two_texts(old: str | None, new: str) -> None:
    """`unified` never raises, and the diff is empty exactly if the two texts are equal."""
    assert (unified("a", old, new) == "") == ((old or "") == new)


def _journal_message(kind: str, number: str, **fields: Any) -> Any:
    import msgspec

    message = {"id": number, "type": kind, "timestamp": "2026-11-16T03:27:52.123Z", "content": "", **fields}
    return decode_message(msgspec.json.encode(message))


def test_the_journal_reports_each_fact_once() -> None:
    """The CLI writes a message again for each new call. Tokens and tool results that are already
    known are not reported again."""
    numbers, updates = _make()
    known: set[str] = set()
    journal = WarmJournalTranslator(numbers, Redactor(), updates, known)
    tokens = {"input": 10, "output": 2, "cached": 1, "thoughts": 3, "tool": 0, "total": 15}
    answer = _journal_message("gemini", "m1", model="flash", tokens=tokens)
    (used,), _ = journal.translate(answer)
    assert isinstance(used, TokensUsed) and (used.input, used.thinking, used.model) == (10, 3, "flash")
    assert journal.translate(answer) == ([], {})
    response = {"functionResponse": {"id": "glob__1", "name": "glob", "response": {"output": "a"}}}
    call = {"id": "glob__1", "name": "glob", "args": {}, "status": "success", "result": [response]}
    for again in (False, True):
        events, truths = journal.translate(_journal_message("gemini", "m2", toolCalls=[call]))
        assert events == [] and set(truths) == (set() if again else {"glob__1"})
    assert known == {"glob__1"}


def test_the_journal_reports_calls_without_updates() -> None:
    """Tool results in a message of the user report calls that had no updates. Invalid parts of the
    message are ignored."""
    numbers, updates = _make()
    journal = WarmJournalTranslator(numbers, Redactor(), updates, set())
    response = {"id": "nonesuch__1", "name": "nonesuch", "response": {"error": "not found"}}
    invalid_parts = [{"functionResponse": 7}, {"functionResponse": {"id": 1}}, {"text": "x"}]
    assert journal.translate(
        _journal_message("user", "u1", content=[*invalid_parts, {"functionResponse": response}])
    ) == ([], {})
    assert [type(event) for event in updates.finish()] == [ToolStarted, ToolFinished]
