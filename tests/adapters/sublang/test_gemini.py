"""Gemini CLI behind SubLang's interface, with a stand-in for the CLI."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from geminids import Options
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
        return [one async for one in run_agent(GeminiAdapter(base), "hello", AgentOptions(**options))]


async def test_a_run(stand_in: Any) -> None:
    """`init` with what the call denies, the text in pieces and whole, and a `done` with the CLI's session."""
    events = await _run(stand_in('out(INIT + say("Hel") + say("lo") + DONE)'), disallowed_tools=("glob",))
    # The stand-in has no sign-in, so its run is not behind the gateway.
    assert [one.type for one in events if one.type != "geminids:notice"] == [
        "init",
        "text_delta",
        "text_delta",
        "text",
        "done",
    ]
    assert events[0].payload.capabilities.disallowed_tools == ("glob",)
    done = events[-1].payload
    assert (done.status, done.result, done.resume_token) == ("success", "Hello", "s-1")
    assert {one.agent for one in events} == {"gemini"}


async def test_an_abort(stand_in: Any) -> None:
    """The CLI is stopped, and the `done` is its own: interrupted, with its session."""
    base = stand_in('out(INIT + say("half")); time.sleep(60)')
    events = await _run(base, abort=Deadline(1.5))
    done = events[-1].payload
    assert (events[-1].type, done.status, done.resume_token) == ("done", "interrupted", "s-1")
    assert events[-1].metadata.reason == "aborted by the caller"  # type: ignore[union-attr]


async def test_a_crash(stand_in: Any) -> None:
    """An exit without a result is an error, also with code 0."""
    for code in (0, 7):
        events = await _run(stand_in(f"out(INIT); sys.exit({code})"))
        assert [one.payload.code for one in events if one.type == "error"] == ["GEMINI_EXIT_ERROR"]
        assert events[-1].payload.status == "error"


async def test_breaking_off(stand_in: Any) -> None:
    """No process is left (the tests look for that), whoever stops reading."""
    events = run_agent(GeminiAdapter(stand_in('out(INIT + say("half")); time.sleep(60)')), "hello")
    assert (await anext(events)).type == "init"
    await events.aclose()  # type: ignore[attr-defined]


def test_a_loop_that_ends_meanwhile(stand_in: Any, anyio_backend: str) -> None:
    """The program is over while the run goes on: its processes are ended all the same (the tests look for that)."""
    base = stand_in('out(INIT + say("half")); time.sleep(60)')

    async def main() -> None:
        events = run_agent(GeminiAdapter(base), "hello")
        await anext(events)
        kept.append(events)

    kept: list[Any] = []
    anyio.run(main, backend=anyio_backend)


async def test_bad_options_raise_at_once() -> None:
    """Before there is an event, with the option and the index in it; `run_agent` tells it as an error."""
    with pytest.raises(OptionsError, match=r"allowed_tools\[0\]"):
        GeminiAdapter().run("hello", AgentOptions(allowed_tools=("",)))
    error, done = await _run(Options(), allowed_tools=("",))
    assert error.payload.code == "ADAPTER_ERROR"
    assert "allowed_tools[0]" in error.payload.message
    assert done.payload.status == "error"


async def test_is_available(stand_in: Any, tmp_path: Any) -> None:
    """Whether `--version` works in time and the release is not too old, and why not."""
    assert GeminiAdapter(stand_in("")).is_available()
    none = GeminiAdapter(Options(gemini=str(tmp_path / "none")))
    assert not none.is_available()
    assert "none" in none.availability().reason
    old = tmp_path / "old"
    old.write_text("#!/bin/sh\necho 0.9.0\n")
    old.chmod(0o755)
    ok, why = GeminiAdapter(Options(gemini=str(old))).availability()
    assert (ok, "geminids install" in why) == (False, True)


async def test_who_decides(tmp_path: Any) -> None:
    """Paths first, then the caller; nobody there is a no. Where no path is named, the caller alone."""

    async def yes(asked: PermissionAsked) -> Any:
        return "allow"

    def ask(tool: str, path: str) -> PermissionAsked:
        at: dict[str, Any] = {"at": 1, "seq": 1, "attempt": 1, "turn": 1}
        return PermissionAsked(
            **at, id="c", tool=tool, kind="other", title="", cwd=str(tmp_path), paths=(path,)
        )

    async def decided(adapter: GeminiAdapter, write: Any, question: PermissionAsked) -> Any:
        policy = PermissionPolicy(file_write=write, writable_paths=("src",))
        decide: Any = adapter._decider(AgentOptions(permissions=policy), Options(cwd=str(tmp_path)))
        return await decide(question)

    alone, asking = GeminiAdapter(), GeminiAdapter(on_permission=yes)
    sync = GeminiAdapter(on_permission=lambda asked: "deny")
    inside, outside, shell = (
        ask("write_file", "src/a"),
        ask("replace", "a"),
        ask("run_shell_command", "src/a"),
    )
    assert [await decided(alone, "allow", one) for one in (inside, outside, shell)] == [
        "allow",
        "deny",
        "deny",
    ]
    assert [await decided(asking, "ask", one) for one in (inside, outside, shell)] == [
        "allow",
        "deny",
        "allow",
    ]
    assert await decided(sync, "ask", inside) == "deny"
    nothing = AgentOptions(permissions=PermissionPolicy(writable_paths=("src",)))
    assert alone._decider(nothing, Options()) is None
    assert asking._decider(AgentOptions(), Options()) is yes
