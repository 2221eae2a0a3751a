"""A failed run is retried only if a retry can help, and its tool calls are not repeated."""

from __future__ import annotations

import os
import signal
import threading
import time
import uuid
from typing import Any

import pytest

import geminids
from collect_events import select_events
from fake_google import FakeGoogle
from geminids import Notice, Started, Text
from geminids.gateway import Call, Reply, Request

pytestmark = pytest.mark.real

KEY = "AIzaSy-not-a-real-key-0123456789"
deep = pytest.mark.deep
WAIT = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "2s"}
PER_DAY = {
    "@type": "type.googleapis.com/google.rpc.QuotaFailure",
    "violations": [{"quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier"}],
}


def options_for_url(world: Any, url: str, **fields: Any) -> geminids.Options:
    env = {"GOOGLE_GEMINI_BASE_URL": url, "GEMINI_API_KEY": KEY}
    return world.options(**{"env": env, "retries": 3, **fields})  # type: ignore[no-any-return]


def run_script(world: Any, script: Any, **fields: Any) -> tuple[list[Any], FakeGoogle]:
    with FakeGoogle(script) as google:
        return list(geminids.stream_sync("hello", options_for_url(world, google.url, **fields))), google


def retry_messages(events: list[Any]) -> list[str]:
    return [notice.message for notice in select_events(events, Notice, code="next_attempt")]


@pytest.mark.parametrize("gateway", ["on", pytest.param("off", marks=deep)])
def test_two_server_errors_then_success(world: Any, gateway: str) -> None:
    """After two HTTP 500 errors the third attempt succeeds. Each attempt has its own `Started`, and
    the result has the text and answer of the last attempt."""
    events, google = run_script(
        world, [Reply(status=500), Reply(status=500), Reply(text="fine")], gateway=gateway
    )
    end = events[-1]
    assert (end.outcome, end.answer, end.attempts) == ("success", "fine", 3), end.failure
    assert [start.attempt for start in select_events(events, Started)] == [1, 2, 3]
    assert [event.seq for event in events] == list(range(len(events)))
    assert len(google.asked) == 3, "the CLI sends one request per attempt"
    assert len(retry_messages(events)) == 2
    assert "".join(text.text for text in select_events(events, Text) if text.attempt == 3) == end.text


def test_a_retry_waits_for_retry_after(make_world: Any) -> None:
    """After an HTTP 429 with a retry delay of 2 s, the next attempt waits at least 2 s."""
    world = make_world("0.61.0")
    script = [Reply(status=429, error="Resource exhausted", details=[WAIT]), Reply(text="fine")]
    events, google = run_script(world, script, gateway="off")
    assert events[-1].outcome == "success", events[-1].failure
    assert google.asked[1].at - google.asked[0].at >= 2


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (Reply(status=429, error="Resource exhausted", details=[PER_DAY]), "quota_day"),
        pytest.param(
            Reply(status=400, error="API key not valid. Please pass a valid API key."), "auth", marks=deep
        ),
    ],
)
def test_a_failure_that_would_repeat_is_not_retried(make_world: Any, reply: Reply, kind: str) -> None:
    """A run that fails because of an exhausted daily quota or a bad key is not retried."""
    events, google = run_script(make_world("0.61.0"), [reply])
    assert (events[-1].failure.kind, events[-1].attempts) == (kind, 1)
    assert len(google.asked) == 1
    assert retry_messages(events) == []


@deep
def test_a_daily_quota_starts_the_fallback_model(make_world: Any) -> None:
    """When the daily quota of a model is used up, the next attempt uses the fallback model, and a
    notice names that model."""
    script = [Reply(status=429, error="Resource exhausted", details=[PER_DAY]), Reply(text="fine")]
    events, google = run_script(make_world("0.61.0"), script, fallback_models=("flash-lite",))
    assert events[-1].answer == "fine"
    assert "flash-lite" in google.asked[1].path
    assert "with model flash-lite" in retry_messages(events)[0]


@deep
def test_the_api_is_down_for_ten_seconds(make_world: Any) -> None:
    """A run with enough retries succeeds although the API is unreachable for the first ten
    seconds."""
    world = make_world("0.61.0")
    google = FakeGoogle([Reply(text="fine")])
    url = google.url
    google.close()
    restarted: list[FakeGoogle] = []

    def restart() -> None:
        time.sleep(10)
        restarted.append(FakeGoogle([Reply(text="fine")], port=google.port).__enter__())

    thread = threading.Thread(target=restart)
    thread.start()
    began = time.monotonic()
    result = geminids.ask_sync("hello", options_for_url(world, url, retries=8))
    took = time.monotonic() - began
    thread.join()
    restarted[0].close()
    assert (result.outcome, result.answer) == ("success", "fine"), result.failure
    assert 10 <= took < 45


def kill_cli_during_tool(world: Any) -> list[Any]:
    """Kill the CLI while its shell tool runs, after the tool wrote its file. Return the run's
    events."""

    def script(request: Request) -> Reply | None:
        if request.method != "stream":
            return None
        if "You were interrupted" in str(request.user_texts[-1]):
            return Reply(text="I see what was done.")
        command = "echo ran >> ran.txt; echo $PPID > cli.pid; sleep 300"
        return Reply(calls=[Call("run_shell_command", {"command": command})])

    def kill() -> None:
        file = world.cwd / "cli.pid"
        until = time.monotonic() + 60
        while not (file.exists() and file.read_text().endswith("\n")) and time.monotonic() < until:
            time.sleep(0.02)
        os.kill(pid[0], signal.SIGKILL)

    pid: list[int] = []
    events: list[Any] = []
    with FakeGoogle(script) as google:
        for event in geminids.stream_sync("hello", options_for_url(world, google.url, approval="yolo")):
            events.append(event)
            if isinstance(event, Started) and not pid:
                pid.append(event.pid)
                threading.Thread(target=kill).start()
    assert (world.cwd / "ran.txt").read_text() == "ran\n", "the tool ran once"
    return events


def assert_session_resumed(events: list[Any]) -> None:
    end = events[-1]
    assert (end.outcome, end.answer, end.attempts) == ("success", "I see what was done.", 2), end.failure
    _, second = select_events(events, Started)
    assert second.session_id == end.session_id
    assert "resumes session" in retry_messages(events)[0]


def test_a_crash_in_a_tool_does_not_run_it_twice(world: Any) -> None:
    """After a crash during a tool call, the next attempt resumes the session. The tool runs only
    once, and the model receives a message that it was cut off."""
    assert_session_resumed(kill_cli_during_tool(world))


@deep
def test_a_crash_in_a_tool_on_the_oldest_release(make_world: Any) -> None:
    """After a crash during a tool call, the oldest supported release does not repeat the call."""
    assert_session_resumed(kill_cli_during_tool(make_world("0.54.4")))


def tool_then_server_error(replies: list[Any]) -> list[Any]:
    """Script a tool call, then an HTTP 500, then `replies` for the next attempt."""
    call = Call("run_shell_command", {"command": "echo ran >> ran.txt"})
    return [Reply(calls=[call]), Reply(status=500), *replies]


@pytest.mark.parametrize("gateway", ["on", pytest.param("off", marks=deep)])
def test_usage_covers_all_attempts(make_world: Any, gateway: str) -> None:
    """The result counts the tokens of all attempts, as the API reported them. The template and its
    file are sent in the first attempt only."""
    world = make_world("0.61.0")
    (world.cwd / "notes.txt").write_text("NOTED")
    fields = {"approval": "yolo", "template": "TASK {{prompt}} @notes.txt", "gateway": gateway}
    events, google = run_script(world, tool_then_server_error([Reply(text="fine")]), **fields)
    end = events[-1]
    assert (end.outcome, end.attempts) == ("success", 2), end.failure
    counted = google.counted()
    assert end.usage.input == counted["promptTokenCount"]
    assert end.usage.output == counted["candidatesTokenCount"]
    assert (world.cwd / "ran.txt").read_text() == "ran\n"
    texts = [str(text) for text in google.asked[-1].request.user_texts]
    assert "You were interrupted" in texts[-1]
    assert "TASK" not in texts[-1] and "NOTED" not in texts[-1], (
        "the second attempt sends neither the template nor its file"
    )
    assert sum("TASK" in text for text in texts) == 1


@deep
def test_all_attempts_share_one_budget(make_world: Any) -> None:
    """A budget of requests applies to all attempts together, and a run over budget is not
    retried."""
    call = Reply(calls=[Call("run_shell_command", {"command": "echo ran >> ran.txt"})])
    replies = [call, Reply(status=500), call, call, call, call]
    events, google = run_script(make_world("0.61.0"), replies, approval="yolo", max_requests=4)
    end = events[-1]
    assert (end.outcome, end.attempts) == ("over_budget", 2), end.failure
    assert len(google.asked) <= 5
    assert len(retry_messages(events)) == 1, "a run over budget is not retried"


@deep
@pytest.mark.parametrize("option", ["session_id", "resume"])
def test_all_attempts_use_the_callers_session(make_world: Any, option: str) -> None:
    """Every attempt uses the session that the caller names with `session_id` or `resume`."""
    world = make_world("0.61.0")
    session = str(uuid.uuid4())
    if option == "resume":
        with FakeGoogle([Reply(text="Zarathustra")]) as google:
            session = geminids.ask_sync("before", options_for_url(world, google.url)).session_id or ""
    events, google = run_script(world, [Reply(status=500), Reply(text="fine")], **{option: session})
    end = events[-1]
    assert (end.outcome, end.attempts, end.session_id) == ("success", 2, session), end.failure
    assert ("Zarathustra" in google.asked[-1].body.decode()) == (option == "resume")


@deep
def test_a_slash_command_is_not_run_twice(make_world: Any) -> None:
    """A custom slash command runs its shell command before the first request, and no event reports
    it. If the session has no messages to resume from, the run fails instead of running it again."""
    world = make_world("0.61.0")
    folder = world.home / ".gemini" / "commands"
    folder.mkdir(parents=True)
    (folder / "deploy.toml").write_text('prompt = "Look: !{echo ran >> ran.txt}"\n')
    with FakeGoogle([Reply(status=500), Reply(text="fine")]) as google:
        events: list[Any] = list(
            geminids.stream_sync("/deploy", options_for_url(world, google.url, approval="yolo"))
        )
    assert (events[-1].failure.kind, events[-1].attempts) == ("server", 1)
    assert "has no messages to resume from" in retry_messages(events)[-1]
    assert (world.cwd / "ran.txt").read_text() == "ran\n"


def test_a_stop_ends_the_pause_between_attempts(make_world: Any) -> None:
    """`run.stop()` ends the pause before the next attempt at once."""
    world = make_world("0.61.0")
    import anyio

    async def main(google: FakeGoogle) -> tuple[geminids.Result, float]:
        async with geminids.open_run("hello", options_for_url(world, google.url, gateway="off")) as run:
            async for event in run:
                if isinstance(event, Notice) and event.code == "next_attempt":
                    began = time.monotonic()
                    run.stop("enough")
            return run.result, time.monotonic() - began

    with FakeGoogle([Reply(status=429, error="slow", details=[{**WAIT, "retryDelay": "60s"}])]) as google:
        result, took = anyio.run(main, google)
    assert (result.outcome, result.reason) == ("interrupted", "enough")
    assert took < 2
