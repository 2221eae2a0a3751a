"""Tests of the Gemini adapter with SubLang's interface and a fake CLI."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from geminids import Options, PermissionAnswer
from geminids.adapters import run_agent
from geminids.adapters.sublang import AgentEvent, AgentOptions, Deadline, GeminiAdapter, PermissionPolicy
from geminids.errors import OptionsError
from geminids.events.model import PermissionAsked

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


async def _run(base: Options, **options: Any) -> list[AgentEvent]:
    with anyio.fail_after(60):
        return [event async for event in run_agent(GeminiAdapter(base), "hello", AgentOptions(**options))]


async def test_successful_run(fake_cli: Any) -> None:
    """A run yields `init`, the text in pieces and complete, and `done` with the CLI's session.
    `init` lists the tools that the call denies."""
    events = await _run(fake_cli('out(INIT + say("Hel") + say("lo") + DONE)'), disallowed_tools=("glob",))
    # The fake CLI has no sign-in, so the run does not use the gateway, and a notice reports that.
    assert [event.type for event in events if event.type != "geminids:notice"] == [
        "init",
        "text_delta",
        "text_delta",
        "text",
        "done",
    ]
    assert events[0].payload.capabilities.disallowed_tools == ("glob",)
    done = events[-1].payload
    assert (done.status, done.result, done.resume_token) == ("success", "Hello", "s-1")
    assert {event.agent for event in events} == {"gemini"}


async def test_abort(fake_cli: Any) -> None:
    """An abort stops the CLI. The `done` event is "interrupted" and has the session."""
    base = fake_cli('out(INIT + say("half")); time.sleep(60)')
    events = await _run(base, abort_signal=Deadline(1.5))
    done = events[-1].payload
    assert (events[-1].type, done.status, done.resume_token) == ("done", "interrupted", "s-1")
    assert events[-1].metadata.reason == "aborted by the caller"  # type: ignore[union-attr]


async def test_exit_without_a_result(fake_cli: Any) -> None:
    """A CLI that exits without a result is an error, even with exit code 0."""
    for code in (0, 7):
        events = await _run(fake_cli(f"out(INIT); sys.exit({code})"))
        assert [event.payload.code for event in events if event.type == "error"] == ["GEMINI_EXIT_ERROR"]
        assert events[-1].payload.status == "error"


async def test_closing_the_stream_ends_the_process(fake_cli: Any) -> None:
    """Closing the stream early ends the CLI; a fixture checks that no process is left."""
    events = run_agent(GeminiAdapter(fake_cli('out(INIT + say("half")); time.sleep(60)')), "hello")
    assert (await anext(events)).type == "init"
    await events.aclose()  # type: ignore[attr-defined]


def test_event_loop_ends_during_a_run(fake_cli: Any, anyio_backend: str) -> None:
    """If the event loop ends during a run, the CLI is ended; a fixture checks for processes."""
    base = fake_cli('out(INIT + say("half")); time.sleep(60)')

    async def main() -> None:
        events = run_agent(GeminiAdapter(base), "hello")
        await anext(events)
        kept.append(events)

    kept: list[Any] = []
    anyio.run(main, backend=anyio_backend)


async def test_invalid_options() -> None:
    """The adapter raises an error for invalid options before any event.
    `run_agent` reports it as an `error` event."""
    with pytest.raises(OptionsError, match=r"allowed_tools\[0\]"):
        GeminiAdapter().run("hello", AgentOptions(allowed_tools=("",)))
    error, done = await _run(Options(), allowed_tools=("",))
    assert error.payload.code == "ADAPTER_ERROR"
    assert "allowed_tools[0]" in error.payload.message
    assert done.payload.status == "error"


async def test_is_available(fake_cli: Any, tmp_path: Any) -> None:
    """`is_available` checks that the CLI works and is not too old.
    `availability` has the reason."""
    assert GeminiAdapter(fake_cli("")).is_available()
    missing = GeminiAdapter(Options(gemini=str(tmp_path / "none")))
    assert not missing.is_available()
    assert "none" in missing.availability().reason
    old = tmp_path / "old"
    old.write_text("#!/bin/sh\necho 0.9.0\n")
    old.chmod(0o755)
    ok, reason = GeminiAdapter(Options(gemini=str(old))).availability()
    assert (ok, "geminids install" in reason) == (False, True)


async def test_permission_decisions(tmp_path: Any) -> None:
    """Writable paths decide first, then the caller's function; without a
    caller the answer is deny."""

    async def allow(asked: PermissionAsked) -> Any:
        return "allow"

    def make_request(tool: str, path: str) -> PermissionAsked:
        at: dict[str, Any] = {"at": 1, "seq": 1, "attempt": 1, "turn": 1}
        return PermissionAsked(
            **at, id="c", tool=tool, kind="other", title="", cwd=str(tmp_path), paths=(path,)
        )

    async def decision(adapter: GeminiAdapter, write: Any, request: PermissionAsked) -> Any:
        policy = PermissionPolicy(file_write=write, writable_paths=("src",))
        decide: Any = adapter._decider(AgentOptions(permissions=policy), Options(cwd=str(tmp_path)))
        return await decide(request)

    without_caller, with_caller = GeminiAdapter(), GeminiAdapter(on_permission=allow)
    with_sync_caller = GeminiAdapter(on_permission=lambda asked: "deny")
    inside, outside, shell = (
        make_request("write_file", "src/a"),
        make_request("replace", "a"),
        make_request("run_shell_command", "src/a"),
    )
    outside_paths = PermissionAnswer("deny", "rule", "the file is not in permissions.writable_paths")
    assert [await decision(without_caller, "allow", request) for request in (inside, outside, shell)] == [
        PermissionAnswer("allow", "rule", "the file is in permissions.writable_paths"),
        outside_paths,
        PermissionAnswer(
            "deny",
            "rule",
            "run_shell_command needs permission, but the adapter has no on_permission callback",
        ),
    ]
    assert [await decision(with_caller, "ask", request) for request in (inside, outside, shell)] == [
        "allow",
        outside_paths,
        "allow",
    ]
    assert await decision(with_sync_caller, "ask", inside) == "deny"
    no_file_policy = AgentOptions(permissions=PermissionPolicy(writable_paths=("src",)))
    assert without_caller._decider(no_file_policy, Options()) is None
    assert with_caller._decider(AgentOptions(), Options()) is allow
