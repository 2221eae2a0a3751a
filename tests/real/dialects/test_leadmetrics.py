"""The Leadmetrics adapter with the real CLI: resumed and lost sessions, the probe, and spans of a
live run."""

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
    config = {
        "cwd": options.cwd,
        "command": world.version,
        "model": "flash",
        "env": options.env,
        "graceSec": 2,
    }
    return {**config, **more}


def _execute(
    world: Any, prompt: str, result: AdapterExecutionResult | None = None, **more: Any
) -> AdapterExecutionResult:
    """Run the adapter. With an earlier result, pass the session data that an orchestrator has
    stored."""
    params = {"sessionId": result.session_id, "cwd": str(world.cwd)} if result else None
    context = AdapterExecutionContext(
        run_id="run-1",
        agent=AdapterAgent(id="a"),
        config=_config(world, **more),
        runtime=AdapterRuntime(session_params=params),
        context={"prompt": prompt},
    )
    return anyio.run(leadmetrics.execute, context)


def test_a_session_is_resumed_and_a_lost_one_replaced(world: Any) -> None:
    """The second run resumes the session of the first. A run whose CLI is missing fails and keeps
    the session id. If the session is lost, the next run starts a new one and has
    `clear_session`."""
    world.gateway.when("remember", text="the word is pear")
    first = _execute(world, "remember")
    assert first.success, first.error
    world.gateway.when("which word", text="pear")
    second = _execute(world, "which word", first)
    assert (second.success, second.session_id) == (True, first.session_id), second.error
    request = world.gateway.requests[-1].body
    assert "the word is pear" in str(request)
    failed = _execute(world, "not sent", second, command="/no/such/gemini")
    assert (failed.success, failed.session_id, failed.clear_session) == (False, first.session_id, False)
    shutil.rmtree(world.home / ".gemini" / "tmp")
    world.gateway.when("and now", text="new session")
    third = _execute(world, "and now", second)
    assert (third.success, third.output, third.clear_session) == (True, "new session", True), third.error
    assert third.session_id not in (None, first.session_id)
    assert "the word is pear" not in str(world.gateway.requests[-1].body)


def test_a_session_that_is_too_long_is_replaced(world: Any) -> None:
    """A session that is too long for the API is replaced, and the prompt is sent again."""
    world.gateway.when("remember", text="much")
    first = _execute(world, "remember")
    message = "The input token count (2000000) exceeds the maximum number of tokens allowed (1048576)."
    world.gateway.when("continue", status=400, error=message, error_status="INVALID_ARGUMENT")
    world.gateway.when("continue", text="continued")
    second = _execute(world, "continue", first)
    assert (second.success, second.output) == (True, "continued"), second.error
    assert second.session_id not in (None, first.session_id)


def test_the_probe(world: Any) -> None:
    """The probe reports a working environment and an agent that answers."""
    world.gateway.when("Respond with", text="hello")

    async def probe() -> leadmetrics.AdapterEnvironmentTestResult:
        return await leadmetrics.test_environment(_config(world))

    report = anyio.run(probe)
    assert report.checks[-1].code == "gemini_hello_probe_passed", report
    assert report.status != "fail"


def test_spans_of_a_live_run(world: Any) -> None:
    """The run's span begins before its process and contains the other spans. A tool of the run sees
    its `TRACEPARENT`."""
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
    spans = {span.name.split()[0]: span for span in exporter.get_finished_spans()}
    assert set(spans) == {"invoke_agent", "generate_content", "execute_tool"}
    agent = spans["invoke_agent"]
    assert (
        f"{agent.context.trace_id:032x}-{agent.context.span_id:016x}" in (world.cwd / "seen.txt").read_text()
    )
    for span in spans.values():
        assert (
            (agent.start_time or 0) <= (span.start_time or 0) <= (span.end_time or 0) <= (agent.end_time or 0)
        )
