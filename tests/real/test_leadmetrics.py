"""Leadmetrics' adapter on the real CLI: a run, its session resumed and lost, its probe; spans of a live run."""

from __future__ import annotations

import shutil
from typing import Any

import anyio
import pytest

from geminids import open_run
from geminids.adapters import leadmetrics
from geminids.adapters.leadmetrics import (
    AdapterAgent,
    AdapterExecutionContext,
    AdapterExecutionResult,
    AdapterRuntime,
)

pytestmark = pytest.mark.real


def _config(world: Any, **more: Any) -> dict[str, Any]:
    options = world.options()
    given = {
        "cwd": options.cwd,
        "command": world.version,
        "model": "flash",
        "env": options.env,
        "graceSec": 2,
    }
    return {**given, **more}


def _execute(
    world: Any, prompt: str, result: AdapterExecutionResult | None = None, **more: Any
) -> AdapterExecutionResult:
    """A run, and where there was one before, with what an orchestrator has stored of it."""
    params = {"sessionId": result.session_id, "cwd": str(world.cwd)} if result else None
    context = AdapterExecutionContext(
        run_id="run-1",
        agent=AdapterAgent(id="a"),
        config=_config(world, **more),
        runtime=AdapterRuntime(session_params=params),
        context={"prompt": prompt},
    )
    return anyio.run(leadmetrics.execute, context)


def test_a_session_is_resumed_and_a_lost_one_begun_anew(world: Any) -> None:
    """The second run knows the first; when the session is gone, the third begins another and says so."""
    world.gateway.when("remember", text="the word is pear")
    first = _execute(world, "remember")
    assert first.success, first.error
    world.gateway.when("which word", text="pear")
    second = _execute(world, "which word", first)
    assert (second.success, second.session_id) == (True, first.session_id), second.error
    asked = world.gateway.requests[-1].body
    assert "the word is pear" in str(asked)
    kept = _execute(world, "nobody hears this", second, command="/no/such/gemini")
    assert (kept.success, kept.session_id, kept.clear_session) == (False, first.session_id, False)
    shutil.rmtree(world.home / ".gemini" / "tmp")
    world.gateway.when("and now", text="anew")
    third = _execute(world, "and now", second)
    assert (third.success, third.output, third.clear_session) == (True, "anew", False), third.error
    assert third.session_id not in (None, first.session_id)
    assert "the word is pear" not in str(world.gateway.requests[-1].body)


def test_a_session_that_is_too_long_is_begun_anew(world: Any) -> None:
    """The API takes its tokens no more: the same prompt, in a new session."""
    world.gateway.when("remember", text="much")
    first = _execute(world, "remember")
    message = "The input token count (2000000) exceeds the maximum number of tokens allowed (1048576)."
    world.gateway.when("go on", status=400, error=message, error_status="INVALID_ARGUMENT")
    world.gateway.when("go on", text="gone on")
    second = _execute(world, "go on", first)
    assert (second.success, second.output) == (True, "gone on"), second.error
    assert second.session_id not in (None, first.session_id)


def test_the_probe(world: Any) -> None:
    """The environment is good, and the agent says hello."""
    world.gateway.when("Respond with", text="hello")

    async def look() -> leadmetrics.AdapterEnvironmentTestResult:
        return await leadmetrics.test_environment(_config(world))

    found = anyio.run(look)
    assert found.checks[-1].code == "gemini_hello_probe_passed", found
    assert found.status != "fail"


def test_spans_of_a_live_run(world: Any) -> None:
    """The run's span begins before its process, which has its `TRACEPARENT`; a tool of the run reads it."""
    pytest.importorskip("opentelemetry.sdk", reason="opentelemetry-sdk is not installed")
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    from geminids.dialects.otel import Spans, traceparent_env

    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    world.gateway.when("trace", calls=[("run_shell_command", {"command": "echo $TRACEPARENT > seen.txt"})])
    world.gateway.when("trace", text="done")

    async def run() -> bool:
        spans = Spans(provider.get_tracer("test"))
        env = traceparent_env(spans.start())
        async with open_run("trace", world.options(approval="yolo", env=env)) as run:
            while (batch := await run.next_batch()) is not None:
                spans.feed(batch)
        spans.finish()
        return run.result.ok

    assert anyio.run(run)
    told = {span.name.split()[0]: span for span in exporter.get_finished_spans()}
    assert set(told) == {"invoke_agent", "generate_content", "execute_tool"}
    agent = told["invoke_agent"]
    assert (
        f"{agent.context.trace_id:032x}-{agent.context.span_id:016x}" in (world.cwd / "seen.txt").read_text()
    )
    for span in told.values():
        assert (
            (agent.start_time or 0) <= (span.start_time or 0) <= (span.end_time or 0) <= (agent.end_time or 0)
        )
