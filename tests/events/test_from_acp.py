"""Updates of an ACP session become events: laws that hold for any sequence of them, and what each becomes."""

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
from geminids.gemini.protocol.acp.messages import ToolCall, Unknown, Update
from geminids.gemini.protocol.journal.records import decode_message
from geminids.redact import Redactor

SECRET = "hunter2hunter2"


def _made(secrets: tuple[str, ...] = (), **how: Any) -> tuple[EventNumbers, AcpTranslator]:
    numbers = EventNumbers()
    return numbers, AcpTranslator(numbers, Redactor(secrets), "s", "/repo", **how)


def _text(text: str, kind: str = "agent_message_chunk") -> Update:
    return Update(session_id="s", kind=kind, text=text)


def _tool(kind: str, call_id: str, **fields: Any) -> Update:
    return Update(session_id="s", kind=kind, tool=ToolCall(tool_call_id=call_id, **fields))


def _said(text: str) -> list[dict[str, Any]]:
    return [{"type": "content", "content": {"type": "text", "text": text}}]


_IDS = st.sampled_from(("a__1", "b__2", "run_shell_command__3", ""))
_WORDS = st.text(max_size=8) | st.sampled_from((SECRET, SECRET[:5], SECRET[5:], "[MODE_UPDATE] x"))
_CONTENT = st.one_of(
    st.none(),
    _WORDS.map(_said),
    st.just([{"type": "diff", "path": "a.py", "oldText": None, "newText": "x"}, {"type": "terminal"}, 7]),
)
_STATUS = st.sampled_from((None, "pending", "in_progress", "completed", "failed", "new"))
_CALLS = st.builds(ToolCall, tool_call_id=_IDS, title=st.none() | _WORDS, status=_STATUS, content=_CONTENT)
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


def _take(translator: AcpTranslator, step: tuple[str, Any]) -> list[Event]:
    what, value = step
    if what == "translate":
        return translator.translate(value)
    if what == "asked":
        return translator.asked(value)[1]
    if what == "refused":
        return translator.refused(value, "no")
    if what == "given":
        translator.given(tuple((call_id, "glob", {"error": SECRET}) for call_id in value))
    else:
        translator.answered(value, 0)
    return []


@given(_STEPS, st.booleans())
@settings(max_examples=300)
def test_the_laws_hold_for_any_updates(steps: list[tuple[str, Any]], secretive: bool) -> None:
    """Each start has exactly one end; numbers have no gaps; all can be written; all that was said comes out."""
    numbers, translator = _made((SECRET,) if secretive else ())
    events = [event for step in steps for event in _take(translator, step)] + translator.finish()
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
    if not secretive:
        texts = [step[1].text for step in steps if getattr(step[1], "kind", "") == "agent_message_chunk"]
        assert "".join(event.text for event in events if isinstance(event, Text)) == "".join(texts)
    else:
        whole = [event for event in events if not isinstance(event, Text)]
        assert SECRET not in b"".join(map(encode_event, whole)).decode()
        assert all(SECRET not in event.text for event in events if isinstance(event, Text))
    assert written.count('"type":"') >= len(events)


@given(st.text(alphabet="hunter2 x", max_size=12), st.text(alphabet="hunter2 x", max_size=12), st.data())
def test_a_secret_is_masked_wherever_the_text_is_cut(before: str, after: str, data: st.DataObject) -> None:
    """All that comes out is what the redactor makes of the whole, in whatever pieces it came."""
    whole = before + SECRET + after
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    pieces = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    _, translator = _made((SECRET,))
    events = [event for piece in pieces for event in translator.translate(_text(piece))] + translator.finish()
    assert "".join(event.text for event in events if isinstance(event, Text)) == Redactor((SECRET,)).text(
        whole
    )


def test_secrets_are_masked_in_everything_that_is_told() -> None:
    """Titles, paths, outputs, errors, diffs, thoughts, notices, and the id of a call that never began."""
    numbers, translator = _made((SECRET,))
    translator.given((("write_file__1", "write_file", {}), ("glob__9", "glob", {"error": SECRET})))
    call = ToolCall(
        tool_call_id="write_file__1",
        title=f"Writing {SECRET}",
        status="completed",
        locations=[{"path": f"/repo/{SECRET}"}, {"path": "/repo/b"}],
        content=[{"type": "diff", "path": SECRET, "oldText": SECRET, "newText": "x"}, *_said(f"is {SECRET}")],
    )
    events = [
        *translator.asked(call)[1],
        *translator.translate(Update(session_id="s", kind="tool_call_update", tool=call)),
        *translator.translate(_text(f"**{SECRET}**\n{SECRET}", "agent_thought_chunk")),
        *translator.translate(_tool("tool_call_update", SECRET, status="completed")),
        *translator.translate(Unknown(why="noise", line=SECRET)),
        *translator.finish(),
    ]
    assert SECRET not in b"".join(map(encode_event, events)).decode()
    assert numbers.seq == len(events) == 7 and [type(one) for one in events].count(ToolFinished) == 2


def test_a_tool_from_its_start_to_its_end() -> None:
    """Its name from the id, its title and paths from the CLI; output, changes and status at the end."""
    _, translator = _made()
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
        ({"status": "failed", "content": _said("no such file")}, "failed", "no such file"),
        (
            {"status": "failed", "content": _said("Tool execution denied by policy.")},
            "denied",
            "shell is off",
        ),
        ({"status": "completed", "content": _said("Blocked: command substitution is")}, "denied", "Blocked"),
        ({"status": "completed", "content": _said("fine")}, "ok", None),
        ({"status": "completed"}, "ok", None),
    ],
)
def test_how_a_tool_ended(fields: dict[str, Any], status: str, error: str | None) -> None:
    """A refusal is told as one, with our own reason before the CLI's words; a failure is no refusal."""
    _, translator = _made(why_not=lambda tool, _: "shell is off")
    translator.translate(_tool("tool_call", "run_shell_command__1"))
    (ended,) = translator.translate(_tool("tool_call_update", "run_shell_command__1", **fields))
    assert isinstance(ended, ToolFinished) and ended.status == status
    assert (ended.error or "").startswith(error or "") and bool(ended.error) == bool(error)


def test_a_call_that_is_asked_for_begins_there() -> None:
    """And is refused once: what the CLI says of it afterwards is odd, and no second end."""
    _, translator = _made()
    started, events = translator.asked(ToolCall(tool_call_id="write_file__1", title="Writing to a"))
    assert events == [started]
    (refused,) = translator.refused(started.id, "a person said no")
    assert isinstance(refused, ToolFinished) and (refused.status, refused.error) == (
        "denied",
        "a person said no",
    )
    assert translator.refused(started.id, "again") == []
    (odd,) = translator.translate(_tool("tool_call_update", started.id, status="failed"))
    assert isinstance(odd, Notice) and odd.code == "protocol"


def test_a_call_that_nobody_told_of_comes_from_the_journal() -> None:
    """An unknown tool, and one that a policy denies: start and end at once, and once only."""
    unrecorded: list[str] = []
    _, translator = _made(
        why_not=lambda tool, _: "fetch is denied" if tool == "web_fetch" else None,
        on_unrecorded=unrecorded.append,
    )
    translator.translate(_tool("tool_call", "glob__1", status="completed"))
    results = (
        ("glob__1", "glob", {"output": "x"}),
        ("nonesuch__1", "nonesuch", {"error": 'Tool "nonesuch" not found in registry.'}),
        ("web_fetch__1", "web_fetch", {"error": 'Tool "web_fetch" not found.'}),
    )
    translator.given(results)
    *told, text = translator.translate(_text("so it is"))
    assert [type(event) for event in told] == [ToolStarted, ToolFinished] * 2
    unknown, denied = told[1], told[3]
    assert isinstance(unknown, ToolFinished) and (unknown.id, unknown.status) == ("nonesuch__1", "failed")
    assert isinstance(denied, ToolFinished) and (denied.id, denied.status) == ("web_fetch__1", "denied")
    assert denied.error == 'fetch is denied (Gemini CLI: Tool "web_fetch" not found.)'
    assert unrecorded == ["nonesuch__1", "web_fetch__1"], "the journal has no record of them to wait for"
    assert [event.turn for event in (*told, text)] == [1, 1, 1, 1, 2]
    translator.given(results)
    assert translator.finish() == []


def test_what_was_open_at_the_end_is_cancelled() -> None:
    """So that each start has its end, whatever became of the process."""
    _, translator = _made()
    translator.translate(_tool("tool_call", "glob__1"))
    (ended,) = translator.finish()
    assert isinstance(ended, ToolFinished) and ended.status == "cancelled"


def test_a_call_of_which_only_the_end_is_told() -> None:
    """Bad arguments, and what a rule denies: started and failed or denied, in its place, and told once."""
    _, translator = _made()
    for said, status in (("params must have ...", "failed"), ('"Shell" denied by policy.', "denied")):
        update = _tool("tool_call_update", f"glob__{status}", status="failed", content=_said(said))
        started, ended = translator.translate(update)
        assert isinstance(started, ToolStarted) and isinstance(ended, ToolFinished)
        assert (started.name, ended.id, ended.status, ended.error) == ("glob", started.id, status, said)
        (again,) = translator.translate(update)
        assert isinstance(again, Notice) and again.code == "protocol"
    translator.given([("glob__failed", "glob", {"error": "x"}), ("glob__denied", "glob", {"error": "x"})])
    assert translator.finish() == []


def test_words_that_look_like_a_note_about_the_mode_are_text() -> None:
    """The CLI's own note comes before the answer to the change, when no turn hears it."""
    _, translator = _made()
    (words,) = translator.translate(_text("[MODE_UPDATE] yolo"))
    assert isinstance(words, Text) and words.text == "[MODE_UPDATE] yolo"


@pytest.mark.parametrize(
    ("said", "subject", "text"),
    [
        ("**Plan**\nI think\nso", "Plan", "I think\nso"),
        ("no subject", None, "no subject"),
        ("****\nonly words", None, "only words"),
        ("**a**b**\nc", "a**b", "c"),
        ("", None, ""),
    ],
)
def test_a_thought(said: str, subject: str | None, text: str) -> None:
    """Subject and description, as the CLI joins them."""
    _, translator = _made()
    (thought,) = translator.translate(_text(said, "agent_thought_chunk"))
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
def test_the_name_out_of_an_id(call_id: str, name: str) -> None:
    """Of two tools whose names begin alike, a yes to one must not be a yes to the other."""
    assert tool_name(call_id) == name


@given(st.none() | st.text(max_size=40), st.text(max_size=40))
def test_a_diff_of_any_two_texts(old: str | None, new: str) -> None:
    """It never raises, and says nothing exactly where nothing changes."""
    assert (unified("a", old, new) == "") == ((old or "") == new)


def _journal(kind: str, number: str, **fields: Any) -> Any:
    import msgspec

    message = {"id": number, "type": kind, "timestamp": "2026-11-16T03:27:52.123Z", "content": "", **fields}
    return decode_message(msgspec.json.encode(message))


def test_the_journal_tells_tokens_once_and_truths_once() -> None:
    """The message with all calls of the session is written again with each of them; known ones are passed over."""
    numbers, updates = _made()
    known: set[str] = set()
    books = WarmJournalTranslator(numbers, Redactor(), updates, known)
    tokens = {"input": 10, "output": 2, "cached": 1, "thoughts": 3, "tool": 0, "total": 15}
    answer = _journal("gemini", "m1", model="flash", tokens=tokens)
    (used,), _ = books.translate(answer)
    assert isinstance(used, TokensUsed) and (used.input, used.thinking, used.model) == (10, 3, "flash")
    assert books.translate(answer) == ([], {})
    response = {"functionResponse": {"id": "glob__1", "name": "glob", "response": {"output": "a"}}}
    call = {"id": "glob__1", "name": "glob", "args": {}, "status": "success", "result": [response]}
    for again in (False, True):
        events, truths = books.translate(_journal("gemini", "m2", toolCalls=[call]))
        assert events == [] and set(truths) == (set() if again else {"glob__1"})
    assert known == {"glob__1"}


def test_the_journal_tells_of_calls_that_no_update_told() -> None:
    """By their results, which are messages of the user; odd parts among them are passed over."""
    numbers, updates = _made()
    books = WarmJournalTranslator(numbers, Redactor(), updates, set())
    response = {"id": "nonesuch__1", "name": "nonesuch", "response": {"error": "not found"}}
    odd = [{"functionResponse": 7}, {"functionResponse": {"id": 1}}, {"text": "x"}]
    assert books.translate(_journal("user", "u1", content=[*odd, {"functionResponse": response}])) == ([], {})
    assert [type(event) for event in updates.finish()] == [ToolStarted, ToolFinished]
