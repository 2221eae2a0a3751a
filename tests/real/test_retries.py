"""A run that failed is tried again where that helps, and nowhere else; what it did is not done twice."""

from __future__ import annotations

import os
import signal
import threading
import time
import uuid
from typing import Any

import pytest

import geminids
from complete import of
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


def through(world: Any, url: str, **fields: Any) -> geminids.Options:
    env = {"GOOGLE_GEMINI_BASE_URL": url, "GEMINI_API_KEY": KEY}
    return world.options(**{"env": env, "retries": 3, **fields})  # type: ignore[no-any-return]


def tried(world: Any, script: Any, **fields: Any) -> tuple[list[Any], FakeGoogle]:
    with FakeGoogle(script) as google:
        return list(geminids.stream_sync("hello", through(world, google.url, **fields))), google


def told(events: list[Any]) -> list[str]:
    return [notice.message for notice in of(events, Notice, code="next_attempt")]


@pytest.mark.parametrize("gateway", ["on", pytest.param("off", marks=deep)])
def test_500_twice_then_fine(world: Any, gateway: str) -> None:
    """Three attempts, each with its Started; the text is the last one's, and so is the answer."""
    events, google = tried(world, [Reply(status=500), Reply(status=500), Reply(text="fine")], gateway=gateway)
    end = events[-1]
    assert (end.outcome, end.answer, end.attempts) == ("success", "fine", 3), end.failure
    assert [start.attempt for start in of(events, Started)] == [1, 2, 3]
    assert [event.seq for event in events] == list(range(len(events)))
    assert len(google.asked) == 3, "the CLI's own attempts do not multiply ours"
    assert len(told(events)) == 2
    assert "".join(text.text for text in of(events, Text) if text.attempt == 3) == end.text


def test_429_with_its_time(make_world: Any) -> None:
    """`retry_after` is waited for."""
    world = make_world("0.61.0")
    script = [Reply(status=429, error="Resource exhausted", details=[WAIT]), Reply(text="fine")]
    events, google = tried(world, script, gateway="off")
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
def test_what_waiting_does_not_help(make_world: Any, reply: Reply, kind: str) -> None:
    """A day's quota and a bad key fail at once."""
    events, google = tried(make_world("0.61.0"), [reply])
    assert (events[-1].failure.kind, events[-1].attempts) == (kind, 1)
    assert len(google.asked) == 1
    assert told(events) == []


@deep
def test_another_model_where_the_days_quota_is_gone(make_world: Any) -> None:
    """At once, and the notice names it."""
    script = [Reply(status=429, error="Resource exhausted", details=[PER_DAY]), Reply(text="fine")]
    events, google = tried(make_world("0.61.0"), script, fallback_models=("flash-lite",))
    assert events[-1].answer == "fine"
    assert "flash-lite" in google.asked[1].path
    assert "with model flash-lite" in told(events)[0]


@deep
def test_the_api_is_down_for_ten_seconds(make_world: Any) -> None:
    """The run comes through as soon as it is back."""
    world = make_world("0.61.0")
    google = FakeGoogle([Reply(text="fine")])
    url = google.url
    google.close()
    back: list[FakeGoogle] = []

    def come_back() -> None:
        time.sleep(10)
        back.append(FakeGoogle([Reply(text="fine")], port=google.port).__enter__())

    thread = threading.Thread(target=come_back)
    thread.start()
    began = time.monotonic()
    result = geminids.ask_sync("hello", through(world, url, retries=8))
    took = time.monotonic() - began
    thread.join()
    back[0].close()
    assert (result.outcome, result.answer) == ("success", "fine"), result.failure
    assert 10 <= took < 45


def crashed(world: Any) -> list[Any]:
    """The CLI is killed while its shell tool runs, whose work is done."""

    def script(request: Request) -> Reply | None:
        if request.method != "stream":
            return None
        if "You were cut off" in str(request.user_texts[-1]):
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
        for event in geminids.stream_sync("hello", through(world, google.url, approval="yolo")):
            events.append(event)
            if isinstance(event, Started) and not pid:
                pid.append(event.pid)
                threading.Thread(target=kill).start()
    assert (world.cwd / "ran.txt").read_text() == "ran\n", "whatever becomes of the run"
    return events


def goes_on(events: list[Any]) -> None:
    end = events[-1]
    assert (end.outcome, end.answer, end.attempts) == ("success", "I see what was done.", 2), end.failure
    _, second = of(events, Started)
    assert second.session_id == end.session_id
    assert "resumes session" in told(events)[0]


def test_a_crash_in_a_tool_does_not_run_it_twice(world: Any) -> None:
    """The session is gone on with: the tool has run once, and the model hears that it was cut off."""
    goes_on(crashed(world))


@deep
def test_a_crash_in_a_tool_on_the_oldest_release(make_world: Any) -> None:
    """There too."""
    goes_on(crashed(make_world("0.54.4")))


def acts_then_fails(replies: list[Any]) -> list[Any]:
    """A tool has run, and then the API fails: the next attempt goes on."""
    call = Call("run_shell_command", {"command": "echo ran >> ran.txt"})
    return [Reply(calls=[call]), Reply(status=500), *replies]


@pytest.mark.parametrize("gateway", ["on", pytest.param("off", marks=deep)])
def test_what_all_attempts_cost(make_world: Any, gateway: str) -> None:
    """The tokens are those that the API has told, of the attempt that failed too; a file is put in once."""
    world = make_world("0.61.0")
    (world.cwd / "notes.txt").write_text("NOTED")
    fields = {"approval": "yolo", "template": "TASK {{prompt}} @notes.txt", "gateway": gateway}
    events, google = tried(world, acts_then_fails([Reply(text="fine")]), **fields)
    end = events[-1]
    assert (end.outcome, end.attempts) == ("success", 2), end.failure
    counted = google.counted()
    assert end.usage.input == counted["promptTokenCount"]
    assert end.usage.output == counted["candidatesTokenCount"]
    assert (world.cwd / "ran.txt").read_text() == "ran\n"
    texts = [str(text) for text in google.asked[-1].request.user_texts]
    assert "You were cut off" in texts[-1]
    assert "TASK" not in texts[-1] and "NOTED" not in texts[-1], "what was put around the prompt was said"
    assert sum("TASK" in text for text in texts) == 1


@deep
def test_a_budget_is_that_of_all_attempts(make_world: Any) -> None:
    """Not of each: what the first has spent, the second has not."""
    call = Reply(calls=[Call("run_shell_command", {"command": "echo ran >> ran.txt"})])
    replies = [call, Reply(status=500), call, call, call, call]
    events, google = tried(make_world("0.61.0"), replies, approval="yolo", max_requests=4)
    end = events[-1]
    assert (end.outcome, end.attempts) == ("over_budget", 2), end.failure
    assert len(google.asked) <= 5
    assert len(told(events)) == 1, "no attempt follows a budget that is spent"


@deep
@pytest.mark.parametrize("named", ["session_id", "resume"])
def test_a_session_that_the_caller_has_named(make_world: Any, named: str) -> None:
    """Is the session of every attempt."""
    world = make_world("0.61.0")
    session = str(uuid.uuid4())
    if named == "resume":
        with FakeGoogle([Reply(text="Zarathustra")]) as google:
            session = geminids.ask_sync("before", through(world, google.url)).session_id or ""
    events, google = tried(world, [Reply(status=500), Reply(text="fine")], **{named: session})
    end = events[-1]
    assert (end.outcome, end.attempts, end.session_id) == ("success", 2, session), end.failure
    assert ("Zarathustra" in google.asked[-1].body.decode()) == (named == "resume")


@deep
def test_a_command_is_not_run_twice(make_world: Any) -> None:
    """A command of the user's runs its shell before the model is asked, and no event tells of it: the failure stands
    where the CLI has kept nothing of it to go on with."""
    world = make_world("0.61.0")
    folder = world.home / ".gemini" / "commands"
    folder.mkdir(parents=True)
    (folder / "deploy.toml").write_text('prompt = "Look: !{echo ran >> ran.txt}"\n')
    with FakeGoogle([Reply(status=500), Reply(text="fine")]) as google:
        events: list[Any] = list(geminids.stream_sync("/deploy", through(world, google.url, approval="yolo")))
    assert (events[-1].failure.kind, events[-1].attempts) == ("server", 1)
    assert "has no messages to resume from" in told(events)[-1]
    assert (world.cwd / "ran.txt").read_text() == "ran\n"


def test_stopped_between_two_attempts(make_world: Any) -> None:
    """Whoever stops the run while it waits is heard at once."""
    world = make_world("0.61.0")
    import anyio

    async def main(google: FakeGoogle) -> tuple[geminids.Result, float]:
        async with geminids.open_run("hello", through(world, google.url, gateway="off")) as run:
            async for event in run:
                if isinstance(event, Notice) and event.code == "next_attempt":
                    began = time.monotonic()
                    run.stop("enough")
            return run.result, time.monotonic() - began

    with FakeGoogle([Reply(status=429, error="slow", details=[{**WAIT, "retryDelay": "60s"}])]) as google:
        result, took = anyio.run(main, google)
    assert (result.outcome, result.reason) == ("interrupted", "enough")
    assert took < 2
