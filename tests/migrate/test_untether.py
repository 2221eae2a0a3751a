"""Programs of Untether users, written from its document, run on the real CLI through the adapter."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from geminids.adapters.untether import (
    Action,
    ActionEvent,
    CompletedEvent,
    GeminiRunner,
    ResumeToken,
    StartedEvent,
    UntetherEvent,
    tool_kind_and_title,
)
from geminids.errors import OptionsError
from geminids.process.marker import MARKER
from geminids.process.tree import marked

pytestmark = [pytest.mark.real, pytest.mark.anyio]

PAGE = Path(__file__).parents[2] / "docs" / "migrate" / "untether.md"


@pytest.fixture(params=["asyncio", pytest.param("trio", marks=pytest.mark.deep)])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    backend: str = request.param
    return backend


@pytest.fixture
def release() -> str:
    """Only the newest release, which this page is about."""
    return "0.61.0"


async def _collect(
    runner: GeminiRunner, prompt: str, resume: ResumeToken | None = None
) -> list[UntetherEvent]:
    events = [event async for event in runner.run(prompt, resume)]
    _check(events)
    return events


def _check(events: list[UntetherEvent]) -> None:
    """Check what holds for every run: one `completed`, last; at most one `started`; each tool that
    completes has started before."""
    assert [isinstance(event, CompletedEvent) for event in events] == [False] * (len(events) - 1) + [True]
    assert sum(isinstance(event, StartedEvent) for event in events) <= 1
    started = {event.action.id for event in _actions(events, "started")}
    assert all(event.action.id in started for event in _actions(events, "completed"))
    assert all(event.engine == "gemini" for event in events)


def _actions(events: list[UntetherEvent], phase: str) -> list[ActionEvent]:
    """Return the events of tool calls in this phase."""
    return [
        event
        for event in events
        if isinstance(event, ActionEvent) and event.phase == phase and event.action.kind != "warning"
    ]


def _warnings(events: list[UntetherEvent]) -> list[ActionEvent]:
    return [event for event in events if isinstance(event, ActionEvent) and event.action.kind == "warning"]


def _started(events: list[UntetherEvent]) -> StartedEvent:
    (started,) = [event for event in events if isinstance(event, StartedEvent)]
    return started


def _completed(events: list[UntetherEvent]) -> CompletedEvent:
    last = events[-1]
    assert isinstance(last, CompletedEvent)
    return last


# Sections 1 and 4: the events of a run.


async def test_the_events_of_a_run(world: Any) -> None:
    """A run gives `started`, the start and the end of each tool, and `completed`, with every field of
    the document."""
    usage = {"input": 1000, "cached": 300, "output": 20}
    call = ("run_shell_command", {"command": "echo hello"})
    world.gateway.reply(text="Let me see. ", calls=[call], usage=usage)
    world.gateway.reply(text="Done.", usage=usage)
    events = await _collect(GeminiRunner(world.options(approval="yolo")), "Do it.")
    assert [type(event) for event in events] == [StartedEvent, ActionEvent, ActionEvent, CompletedEvent]
    started, begun, ended, completed = events
    assert isinstance(started, StartedEvent) and isinstance(completed, CompletedEvent)
    assert isinstance(begun, ActionEvent) and isinstance(ended, ActionEvent)

    session = started.resume.value
    assert started.resume == ResumeToken(engine="gemini", value=session)
    assert started.meta is not None
    assert (started.meta["model"], started.meta["permissionMode"]) == ("flash", "full access")
    assert started.meta["pid"] > 0

    action = begun.action
    assert (action.kind, action.title) == ("command", "echo hello")
    assert action.detail == {
        "tool_name": "run_shell_command",
        "input": {"command": "echo hello"},
        "tool_id": action.id,
    }
    assert (begun.phase, begun.ok) == ("started", None)
    assert (ended.phase, ended.ok, ended.action.id) == ("completed", True, action.id)
    assert "hello" in ended.action.detail["output_preview"]

    assert (completed.ok, completed.error) == (True, None)
    assert completed.answer == "Let me see. Done."
    assert completed.resume == started.resume
    assert completed.usage is not None
    assert completed.usage["usage"] == {"input_tokens": 2000, "output_tokens": 40, "cache_read_tokens": 600}
    assert completed.usage["total_cost_usd"] == 0, "a script answered"
    assert completed.usage["duration_ms"] > 0


async def test_a_failed_tool_is_not_ok(world: Any) -> None:
    """A tool that fails is completed with `ok` false and its error. The run goes on."""
    world.gateway.reply(calls=[("read_file", {"file_path": "none.txt"})])
    world.gateway.reply(text="There is no such file.")
    events = await _collect(GeminiRunner(world.options()), "Read it.")
    (ended,) = _actions(events, "completed")
    assert (ended.ok, ended.action.title) == (False, "read: none.txt")
    assert "none.txt" in (ended.message or "")
    assert _completed(events).ok


async def test_the_preview_has_500_characters(world: Any) -> None:
    """The preview is the beginning of what the model received, cut after 500 characters."""
    text = "".join(f"{number:04d}" for number in range(500))
    (world.cwd / "long.txt").write_text(text)
    world.gateway.reply(calls=[("read_file", {"file_path": "long.txt"})])
    world.gateway.reply(text="Read.")
    (ended,) = _actions(await _collect(GeminiRunner(world.options()), "Read it."), "completed")
    assert ended.action.detail["output_preview"] == text[:500]


# Section 5: kinds and titles.

# The document's table, with its tool names.
DOCUMENT_TOOLS = [
    ("Bash", {"command": "echo hello"}, "command", "echo hello"),
    ("read_file", {"file_path": "a.txt"}, "tool", "read: a.txt"),
    ("edit_file", {"path": "a.txt"}, "file_change", "edit: a.txt"),
    ("write_file", {"filePath": "b.txt"}, "file_change", "write: b.txt"),
    ("web_search", {"query": "pears"}, "tool", "websearch: pears"),
    ("web_fetch", {"url": "https://example.org"}, "tool", "webfetch: https://example.org"),
    ("list_dir", {"path": "src"}, "tool", "ls: src"),
    ("find_files", {"pattern": "*.txt"}, "tool", "glob: *.txt"),
    ("search_files", {"pattern": "hello"}, "tool", "grep: hello"),
    ("MyTool", {"path": "x"}, "tool", "mytool"),
]
# The names of the real CLI. Each call works in the folder of the test.
REAL_TOOLS = [
    ("run_shell_command", {"command": "echo hello"}, "command", "echo hello"),
    ("read_file", {"file_path": "a.txt"}, "tool", "read: a.txt"),
    (
        "replace",
        {"file_path": "a.txt", "old_string": "hello", "new_string": "bye", "instruction": "x"},
        "file_change",
        "edit: a.txt",
    ),
    ("write_file", {"file_path": "b.txt", "content": "b"}, "file_change", "write: b.txt"),
    ("list_directory", {"dir_path": "."}, "tool", "ls: ."),
    ("glob", {"pattern": "*.txt"}, "tool", "glob: *.txt"),
    ("grep_search", {"pattern": "hello"}, "tool", "grep: hello"),
]


@pytest.mark.parametrize(("name", "parameters", "kind", "title"), DOCUMENT_TOOLS + REAL_TOOLS)
async def test_the_table_of_kinds_and_titles(
    name: str, parameters: dict[str, Any], kind: str, title: str
) -> None:
    """`tool_kind_and_title` gives the document's kind and title, for its names and the CLI's."""
    assert tool_kind_and_title(name, parameters) == (kind, title)


async def _run_calls(world: Any, calls: list[tuple[str, dict[str, Any]]]) -> list[UntetherEvent]:
    (world.cwd / "a.txt").write_text("hello\n")
    for call in calls:
        world.gateway.reply(calls=[call])
    world.gateway.reply(text="Done.")
    return await _collect(GeminiRunner(world.options(approval="yolo")), "Use your tools.")


async def test_the_tools_of_the_cli(world: Any) -> None:
    """Each tool of the real CLI is an action with the document's kind and title. It takes effect, and
    a change of a file names the file."""
    events = await _run_calls(world, [(name, parameters) for name, parameters, _, _ in REAL_TOOLS])
    begun, ended = _actions(events, "started"), _actions(events, "completed")
    expected = [(kind, title) for _, _, kind, title in REAL_TOOLS]
    assert [(event.action.kind, event.action.title) for event in begun] == expected
    assert [(event.action.kind, event.action.title) for event in ended] == expected
    assert [event.ok for event in ended] == [True] * len(REAL_TOOLS)
    assert ((world.cwd / "a.txt").read_text(), (world.cwd / "b.txt").read_text()) == ("bye\n", "b")
    changes = {event.action.title: event.action.detail.get("changes") for event in ended}
    assert changes["edit: a.txt"] == [{"path": "a.txt", "kind": "update"}]
    assert changes["write: b.txt"] == [{"path": "b.txt", "kind": "update"}]
    assert [title for title, change in changes.items() if change] == ["edit: a.txt", "write: b.txt"]


async def test_the_web_tools_of_the_cli(world: Any) -> None:
    """The web tools are of kind `tool`. The title of a fetch has the URL from the CLI's prompt."""
    search = ("google_web_search", {"query": "pears"})
    fetch = ("web_fetch", {"prompt": "Sum up http://127.0.0.1:9/x, please"})
    world.gateway.reply(calls=[fetch])
    world.gateway.reply(calls=[search])
    for _ in range(2):  # the request of the search, then the end
        world.gateway.reply(text="Done.")
    events = await _collect(GeminiRunner(world.options(approval="yolo")), "Use your tools.")
    assert [(event.action.kind, event.action.title) for event in _actions(events, "started")] == [
        ("tool", "webfetch: http://127.0.0.1:9/x"),
        ("tool", "websearch: pears"),
    ]


async def test_a_tool_that_the_cli_does_not_have(world: Any) -> None:
    """A call of a tool that the CLI does not have is an action that fails, with the document's kind
    and title."""
    events = await _run_calls(world, [("Bash", {"command": "touch made"}), ("Unknown", {})])
    ended = _actions(events, "completed")
    assert [(event.action.kind, event.action.title, event.ok) for event in ended] == [
        ("command", "touch made", False),
        ("tool", "unknown", False),
    ]
    assert not (world.cwd / "made").exists()


# Section 4.6: errors, and one `completed` always.


@pytest.mark.parametrize("status", [400, pytest.param(401, marks=pytest.mark.deep), 403])
async def test_a_refused_key_has_no_usage(world: Any, status: int) -> None:
    """If the API refuses the key, `usage` is None and not zeros, and `error` says why."""
    world.gateway.when("hello", status=status, error="API key not valid. Please pass a valid API key.")
    completed = _completed(await _collect(GeminiRunner(world.options()), "hello"))
    assert (completed.ok, completed.usage, completed.answer) == (False, None, "")
    assert "API key not valid" in (completed.error or "")


async def test_text_before_an_error_is_kept(world: Any) -> None:
    """If a run fails after some text, `answer` has that text, and the session can be resumed."""
    world.gateway.reply(
        text="First. ", calls=[("glob", {"pattern": "*"})], usage={"input": 1000, "output": 20}
    )
    world.gateway.reply(status=400, error="nothing doing")
    events = await _collect(GeminiRunner(world.options()), "hello")
    completed = _completed(events)
    assert (completed.ok, completed.answer, completed.resume) == (False, "First. ", _started(events).resume)
    assert completed.usage is not None and completed.usage["usage"]["input_tokens"] == 1000


@pytest.mark.parametrize("body", ["sys.exit(3)", "out(INIT + say('half'))\nos.kill(os.getpid(), 9)"])
async def test_a_crash_is_completed_too(fake_cli: Any, body: str) -> None:
    """A CLI that dies gives one `completed` that is not `ok`, with the text until then."""
    completed = _completed(await _collect(GeminiRunner(fake_cli(body)), "hello"))
    assert (completed.ok, completed.answer) == (False, "half" if "half" in body else "")
    assert completed.error


async def test_a_killed_cli_has_a_short_error(world: Any) -> None:
    """The error of a killed run has no line that every run has, and its warning is one line: a chat
    shows both."""
    world.gateway.reply(calls=[("run_shell_command", {"command": "sleep 60"})])
    events: list[UntetherEvent] = []
    async for event in GeminiRunner(world.options(approval="yolo")).run("hello"):
        events.append(event)
        if isinstance(event, ActionEvent) and event.phase == "started":
            os.kill((_started(events).meta or {})["pid"], signal.SIGKILL)
    completed = _completed(events)
    (warning,) = _warnings(events)
    assert warning.message == warning.action.title == "gemini failed (rc=-9, SIGKILL)."
    assert completed.error is not None and completed.error.startswith(f"{warning.message}\nsession: ")
    assert "YOLO" not in completed.error and "Ripgrep" not in completed.error


async def test_a_missing_cli_is_completed_too(tmp_path: Path) -> None:
    """Without a CLI, the run is one `completed` that says what is missing."""
    runner = GeminiRunner(gemini=str(tmp_path / "none"), cwd=str(tmp_path))
    (completed,) = await _collect(runner, "hello")
    assert isinstance(completed, CompletedEvent)
    assert (completed.ok, completed.answer, completed.resume, completed.usage) == (False, "", None, None)
    assert "none" in (completed.error or "")


async def test_an_error_event_is_not_the_end(fake_cli: Any) -> None:
    """An `error` event is a warning, and the run goes on to its result."""
    body = "out(INIT + line('error', severity='error', message='a hiccup') + say('Done.') + DONE)"
    events = await _collect(GeminiRunner(fake_cli(body)), "hello")
    (warning,) = _warnings(events)
    assert (warning.action.title, warning.level, warning.phase) == ("a hiccup", "error", "completed")
    assert (_completed(events).ok, _completed(events).answer) == (True, "Done.")


async def test_an_error_event_before_a_crash_is_the_error(fake_cli: Any) -> None:
    """If the CLI dies after an `error` event, its message is the first line of `error`."""
    body = "out(INIT + line('error', message='API key invalid or expired'))\nsys.exit(1)"
    completed = _completed(await _collect(GeminiRunner(fake_cli(body)), "hello"))
    assert not completed.ok
    assert (completed.error or "").splitlines()[0] == "API key invalid or expired"


@pytest.mark.parametrize("ends", ["break", "cancel"])
async def test_a_consumer_that_stops_early(world: Any, ends: str) -> None:
    """A consumer that leaves the loop and closes the iterator, or that is cancelled while it waits,
    ends the CLI and its tools, and frees the session."""
    command = "echo $$ > tool.pid; sleep 300"
    world.gateway.reply(calls=[("run_shell_command", {"command": command})])
    runner = GeminiRunner(world.options(approval="yolo"))
    tokens: list[ResumeToken] = []

    async def tool_runs() -> None:
        file = world.cwd / "tool.pid"
        with anyio.fail_after(90):
            while not (file.exists() and file.read_text().endswith("\n")):
                await anyio.sleep(0.02)

    async def consume() -> None:
        events = runner.run("hello")
        async for event in events:
            if isinstance(event, StartedEvent):
                tokens.append(event.resume)
            if isinstance(event, ActionEvent) and ends == "break":
                await tool_runs()
                break
        await events.aclose()  # type: ignore[attr-defined]

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(consume)
        if ends == "cancel":
            await tool_runs()
            tasks.cancel_scope.cancel()
    assert marked(os.environ[MARKER]) == []
    (token,) = tokens
    with anyio.fail_after(10):
        async with runner.lock_for(token) as lock:
            assert lock.held


async def test_invalid_options_are_refused_at_once() -> None:
    """An invalid option is reported when the runner is created, before anything starts."""
    with pytest.raises(OptionsError, match="timeout"):
        GeminiRunner(timeout=-1)


# Section 4.7: other events.


async def test_unknown_events_and_malformed_lines(fake_cli: Any, caplog: pytest.LogCaptureFixture) -> None:
    """An unknown event is only logged, at debug level. A malformed line is a warning. The run goes on
    after both."""
    body = (
        "out(INIT + line('mystery', value=1) + say('Do') + '{\"type\":\"message\",\"role\"\\n'"
        " + 'just words\\n' + say('ne.') + DONE)"
    )
    with caplog.at_level("DEBUG", "geminids.dialects"):
        events = await _collect(GeminiRunner(fake_cli(body)), "hello")
    assert (_completed(events).ok, _completed(events).answer) == (True, "Done.")
    titles = [warning.action.title for warning in _warnings(events)]
    assert titles == ['{"type":"message","role"', "just words"]
    levels = [record.levelname for record in caplog.records if record.name == "geminids.dialects"]
    assert levels == ["DEBUG", "WARNING", "WARNING"]


# Section 2: resume tokens and resume lines.

_TOKEN = ResumeToken(engine="gemini", value="abc123def")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("`gemini --resume abc123def`", "abc123def"),
        ("gemini --resume abc123def", "abc123def"),
        ("gemini —resume abc123def", "abc123def"),
        ("  \t `gemini —resume abc_1-2`  ", "abc_1-2"),
        ("GEMINI --Resume abc123def", "abc123def"),
        ("Done.\n\n`gemini --resume first`\n`gemini --resume last`\nBye", "last"),
        ("type gemini --resume abc123def to go on", None),
        ("codex --resume abc123def", None),
        ("gemini --resume", None),
        ("", None),
        (None, None),
    ],
)
async def test_resume_lines(text: str | None, value: str | None) -> None:
    """A resume line is a whole line, with or without back-ticks and leading blanks, with two dashes or
    an em dash. The last one of a text wins."""
    token = GeminiRunner().extract_resume(text)
    assert token == (None if value is None else ResumeToken(engine="gemini", value=value))


async def test_a_resume_line_leads_back() -> None:
    """`format_resume` writes the document's line, which is a resume line with the same token. Other
    lines and other engines are not accepted."""
    runner = GeminiRunner()
    line = runner.format_resume(_TOKEN)
    assert line == "`gemini --resume abc123def`"
    assert runner.extract_resume(line) == _TOKEN
    assert runner.is_resume_line(line) and runner.is_resume_line(f"  {line}\n")
    assert not any(map(runner.is_resume_line, ["", "Done.", f"{line}\nDone.", f"see {line}"]))
    other = ResumeToken(engine="codex", value="abc123def")
    for refused in (runner.format_resume, runner.lock_for, runner.lock_key):
        with pytest.raises(ValueError, match="codex"):
            refused(other)
    with pytest.raises(ValueError, match="codex"):
        await anext(aiter(runner.run("hello", other)))


async def test_a_chat_goes_on_in_its_session(world: Any) -> None:
    """A run with the token from the text of a chat continues the session."""
    world.gateway.reply(text="The word is pear.")
    runner = GeminiRunner(world.options())
    first = _completed(await _collect(runner, "Choose a word."))
    assert first.resume is not None
    message = f"{first.answer}\n\n{runner.format_resume(first.resume)}"
    world.gateway.reply(text="It is pear.")
    events = await _collect(runner, "Which word?", runner.extract_resume(message))
    assert _started(events).resume == first.resume
    assert (_completed(events).answer, _completed(events).resume) == ("It is pear.", first.resume)
    assert "The word is pear." in json.dumps(world.gateway.requests[-1].body)


async def test_a_session_that_does_not_exist(world: Any) -> None:
    """A run with the token of an unknown session is one `completed` without a token, and no request
    is sent."""
    completed = _completed(await _collect(GeminiRunner(world.options()), "hello", _TOKEN))
    assert (completed.ok, completed.resume) == (False, None)
    assert "abc123def" in (completed.error or "")
    assert world.gateway.requests == []


async def test_a_run_without_a_session_has_no_token(world: Any) -> None:
    """A run that fails before the CLI has opened a session has no token: there is no session to
    resume."""
    options = world.options(env={"GEMINI_API_KEY": "", "GEMINI_CLI_USE_COMPUTE_ADC": ""})
    completed = _completed(await _collect(GeminiRunner(options), "hello"))
    assert (completed.ok, completed.resume) == (False, None)
    assert "auth" in (completed.error or "")


async def test_a_busy_session_keeps_its_token(world: Any) -> None:
    """A run that is refused because another run uses the session keeps the token in its `completed`,
    so that the chat does not lose the session."""
    world.gateway.reply(text="one")
    token = _completed(await _collect(GeminiRunner(world.options()), "hello")).resume
    assert token is not None
    runner = GeminiRunner(world.options(when_busy="fail"))
    async with runner.lock_for(token):
        completed = _completed(await _collect(runner, "again", token))
    assert (completed.ok, completed.resume) == (False, token)
    assert "session_busy" in (completed.error or "")


async def test_a_failed_tool_has_a_preview_with_permissions(world: Any) -> None:
    """A tool that fails has a preview of its error, also when a callback answers permissions."""
    world.gateway.reply(calls=[("read_file", {"file_path": "missing.txt"})])
    world.gateway.reply(text="done")
    runner = GeminiRunner(world.options(), on_permission=lambda request: "allow")
    events = await _collect(runner, "hello")
    (completed,) = [
        event for event in events if isinstance(event, ActionEvent) and event.phase == "completed"
    ]
    assert completed.ok is False
    assert completed.action.detail["output_preview"] == completed.message[:500]  # type: ignore[index]


# Section 3: one run of a session at a time.

_HOST = """
import sys, anyio, msgspec
from geminids.adapters.untether import GeminiRunner, ResumeToken
from geminids.dialects.untether import encode_untether_event
from geminids import Options

async def main():
    runner = GeminiRunner(msgspec.json.decode(sys.argv[1], type=Options))
    resume = ResumeToken("gemini", sys.argv[3]) if sys.argv[3:] else None
    async for event in runner.run(sys.argv[2], resume):
        sys.stdout.buffer.write(encode_untether_event(event) + b"\\n")
        sys.stdout.flush()

anyio.run(main)
"""
Host = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def host(world: Any) -> Iterator[Host]:
    """Return a function that starts a process with a runner, which prints its events."""
    import msgspec

    started: list[subprocess.Popen[bytes]] = []

    def start(prompt: str, *session: str) -> subprocess.Popen[bytes]:
        options = msgspec.json.encode(world.options(approval="yolo")).decode()
        argv = [sys.executable, "-c", _HOST, options, prompt, *session]
        started.append(subprocess.Popen(argv, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL))
        return started[-1]

    yield start
    for process in started:
        process.terminate()
        process.communicate(timeout=30)


def _read_until(process: subprocess.Popen[bytes], holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    assert process.stdout is not None
    for line in process.stdout:
        event: dict[str, Any] = json.loads(line)
        if holds(event):
            return event
    raise AssertionError("the process ended without that event")


async def test_two_processes_take_turns(world: Any, host: Host) -> None:
    """A new run holds the lock of its session as soon as `started` is there. A run that resumes the
    session in another process waits, says for which run, and starts when the first has ended. The
    model of the second run receives the answer of the first."""
    world.gateway.when(
        "first", calls=[("run_shell_command", {"command": "until test -e go; do sleep 0.02; done"})]
    )
    world.gateway.when("first", text="answer one")
    world.gateway.when("second", text="answer two")
    first = host("first")
    started = _read_until(first, lambda event: event["type"] == "started")
    session = started["resume"]["value"]
    second = host("second", session)
    waiting = _read_until(second, lambda event: event["type"] == "action")
    assert waiting["action"]["kind"] == "warning"
    assert session in waiting["message"] and f"process {first.pid}" in waiting["message"]
    before = len(world.gateway.requests)
    (world.cwd / "go").touch()
    ended = _read_until(first, lambda event: event["type"] == "completed")
    resumed = _read_until(second, lambda event: event["type"] == "started")
    last = _read_until(second, lambda event: event["type"] == "completed")
    assert (ended["answer"], last["answer"]) == ("answer one", "answer two")
    assert resumed["resume"]["value"] == last["resume"]["value"] == session
    assert len(world.gateway.requests) == before + 2
    assert "answer one" in json.dumps(world.gateway.requests[-1].body)


async def test_the_lock_of_a_session(world: Any) -> None:
    """A program can hold the lock of a session itself. A run that resumes the session waits meanwhile
    and sends no request."""
    world.gateway.reply(text="one")
    world.gateway.reply(text="two")
    runner = GeminiRunner(world.options())
    token = _completed(await _collect(runner, "hello")).resume
    assert token is not None
    assert runner.lock_key(token) == f"gemini:{token.value}"
    events: list[UntetherEvent] = []
    waits = anyio.Event()

    async def resume() -> None:
        async for event in runner.run("again", token):
            events.append(event)
            waits.set()

    async with anyio.create_task_group() as tasks, runner.lock_for(token):
        tasks.start_soon(resume)
        await waits.wait()
        assert len(world.gateway.requests) == 1
    _check(events)
    (warning,) = _warnings(events)
    assert token.value in (warning.message or "")
    assert (_completed(events).answer, len(world.gateway.requests)) == ("two", 2)
    with pytest.raises(ValueError, match="newest"):
        runner.lock_for(ResumeToken("gemini", "latest", is_continue=True))


# Section 7: configuration.


def _fields(world: Any) -> dict[str, Any]:
    options = world.options()
    return {"cwd": options.cwd, "gemini": options.gemini, "env": options.env}


@pytest.mark.parametrize("by", ["command", "toml"])
async def test_the_configured_model(world: Any, monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    """A runner without options uses the model from `config set gemini.model` or from the TOML file. A
    model that is given to the runner wins."""
    file = world.root / "config.toml"
    monkeypatch.setenv("GEMINIDS_CONFIG", str(file))
    if by == "command":
        argv = [sys.executable, "-m", "geminids", "config", "set", "gemini.model", "gemini-2.5-pro"]
        await anyio.run_process(argv)
        assert 'model = "gemini-2.5-pro"' in file.read_text()
    else:
        file.write_text('[gemini]\nmodel = "gemini-2.5-pro"   # optional; passed as --model\n')
    given: dict[str, Any] = {"model": "gemini-2.5-flash"}
    for model, fields in (("gemini-2.5-pro", {}), ("gemini-2.5-flash", given)):
        world.gateway.reply(text="Done.")
        events = await _collect(GeminiRunner(**_fields(world), **fields), "hello")
        assert _completed(events).ok
        assert (_started(events).meta or {})["model"] == model
        assert world.gateway.requests[-1].model == model


async def test_a_configuration_that_is_wrong(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong configuration file gives one `completed` that names the file and the value."""
    file = world.root / "config.toml"
    file.write_text("[gemini]\ntimeout = -1\n")
    monkeypatch.setenv("GEMINIDS_CONFIG", str(file))
    (completed,) = await _collect(GeminiRunner(**_fields(world)), "hello")
    assert isinstance(completed, CompletedEvent) and not completed.ok
    assert "timeout" in (completed.error or "") and str(file) in (completed.error or "")


# The page.


async def test_the_program_of_the_page(world: Any) -> None:
    """The complete program of the page runs as it is: two runs of one session."""
    (program,) = re.findall(r"```python\n(# A complete program.*?)```", PAGE.read_text(), re.DOTALL)
    env = {**os.environ, "HOME": str(world.home), "TMPDIR": str(world.tmp)}
    done = await anyio.run_process([sys.executable, "-c", program], cwd=world.cwd, env=env, check=False)
    assert done.returncode == 0, done.stderr.decode()
    out = done.stdout.decode()
    assert len(set(re.findall(r"`gemini --resume (\S+)`", out))) == 1
    assert re.search(r"^(started|completed) +\w+ +\S", out, re.MULTILINE)
    assert "failed" not in out


async def test_the_page_names_everything() -> None:
    """The page names everything that the adapter exports, and each export of an event is usable."""
    from geminids.adapters import untether

    page = PAGE.read_text()
    assert [name for name in untether.__all__ if f"`{name}" not in page and f" {name}" not in page] == []
    action = Action("t1", "command", "ls", {})
    assert ActionEvent(action=action, phase="started").engine == "gemini"
