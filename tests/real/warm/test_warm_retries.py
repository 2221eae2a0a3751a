"""Retries, fallback models and schemas on the warm transport, in a single run and in a chat."""

from __future__ import annotations

import os
import signal
from typing import Any

import anyio
import msgspec
import psutil
import pytest

import geminids
from geminids import Finished, Notice, PermissionAsked, PermissionDecided, Started, Text

pytestmark = pytest.mark.real

PER_DAY = {
    "@type": "type.googleapis.com/google.rpc.QuotaFailure",
    "violations": [{"quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier"}],
}
TOUCH = ("run_shell_command", {"command": "echo once >> made.txt"})
# Not gemini-2.5-flash: 0.54.4 sends requests for it to gemini-3.5-flash.
FALLBACK = "gemini-2.5-flash-lite"
OPTIONS: dict[str, Any] = {"model": "gemini-2.5-pro", "approval": "default"}


class Person(msgspec.Struct):
    name: str
    age: int


GOOD = '{"name": "Ada", "age": 36}'


def run_or_chat(
    world: Any, how: str, answer: Any = "allow", **fields: Any
) -> tuple[geminids.Result, list[Any]]:
    """Ask "hello" in a single run or in a chat. Every permission request gets the same answer."""
    schema = fields.pop("schema", None)
    options = world.options(**{**OPTIONS, **fields})
    events: list[Any] = []

    async def main() -> geminids.Result:
        if how == "run":
            run = geminids.open_run("hello", options, schema=schema, on_permission=lambda asked: answer)
            async with run:
                events.extend([event async for event in run])
            return run.result
        fields = {} if schema is None else {"schema": schema}
        async with (
            geminids.Pool(options, on_permission=lambda asked: answer) as pool,
            pool.chat() as chat,
            chat.send("hello", **fields) as turn,
        ):
            events.extend([event async for event in turn])
        return turn.result

    return anyio.run(main), events


def events_of_type(events: list[Any], kind: type) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


def made_lines(world: Any) -> list[str]:
    """Return the lines that the `TOUCH` command has written: one for each time it ran."""
    file = world.cwd / "made.txt"
    return file.read_text().split() if file.exists() else []


def requested_models(world: Any) -> list[str]:
    return [request.model for request in world.gateway.requests if request.method == "stream"]


def check_order(events: list[Any], attempts: int) -> None:
    """The events of all attempts have one numbering without gaps. Each attempt has one warm
    `Started`, and the run has one `Finished`."""
    assert sorted(event.seq for event in events) == list(range(len(events)))
    assert [event.attempt for event in events_of_type(events, Started)] == list(range(1, attempts + 1))
    assert len(events_of_type(events, Finished)) == 1
    assert {event.transport for event in events_of_type(events, Started)} == {"warm"}


@pytest.mark.parametrize("how", ["run", "chat"])
def test_a_retry_asks_for_permission(world: Any, how: str) -> None:
    """After an API error, the second attempt sends the prompt again, and its tool call needs
    permission."""
    world.gateway.reply(status=503, error="overloaded")
    world.gateway.reply(calls=[TOUCH])
    world.gateway.reply(text="done")
    result, events = run_or_chat(world, how, retries=2)
    assert (result.outcome, result.answer, result.attempts) == ("success", "done", 2), result.failure
    check_order(events, 2)
    assert [asked.attempt for asked in events_of_type(events, PermissionAsked)] == [2]
    assert [one.decision for one in result.decisions] == ["allow"]
    assert made_lines(world) == ["once"]
    assert result.usage is not None and result.usage.requests == 3
    last = [one for one in world.gateway.requests if one.method == "stream"][-1]
    assert str(last.user_texts).count("hello") == 1, "the failed prompt is not in the conversation twice"


@pytest.mark.parametrize("how", ["run", "chat"])
def test_a_denial_in_the_second_attempt(world: Any, how: str) -> None:
    """A call that is denied in the second attempt has no effect on disk, and the result records the
    denial."""
    world.gateway.reply(status=503, error="overloaded")
    world.gateway.reply(calls=[TOUCH])
    world.gateway.reply(text="not done")
    result, events = run_or_chat(world, how, answer="deny", retries=2)
    assert (result.answer, result.attempts) == ("not done", 2), result.failure
    assert [event.decision for event in events_of_type(events, PermissionDecided)] == ["deny"]
    assert [one.decision for one in result.decisions] == ["deny"]
    assert made_lines(world) == []


@pytest.mark.parametrize("how", ["run", "chat"])
def test_a_fallback_model_asks_for_permission(world: Any, how: str) -> None:
    """When the daily quota of a model is used up, the second attempt uses the fallback model, and
    its tool call needs permission."""
    world.gateway.reply(status=429, error="Resource exhausted", details=[PER_DAY])
    world.gateway.reply(calls=[TOUCH])
    world.gateway.reply(text="done")
    result, events = run_or_chat(world, how, fallback_models=(FALLBACK,))
    assert (result.outcome, result.answer, result.attempts) == ("success", "done", 2), result.failure
    check_order(events, 2)
    assert requested_models(world) == ["gemini-2.5-pro", FALLBACK, FALLBACK]
    assert [start.model for start in events_of_type(events, Started)] == ["gemini-2.5-pro", FALLBACK]
    assert [asked.attempt for asked in events_of_type(events, PermissionAsked)] == [2]
    assert made_lines(world) == ["once"]


@pytest.mark.parametrize("how", ["run", "chat"])
def test_a_correction_asks_for_permission(world: Any, how: str) -> None:
    """If the first answer does not match the schema, a tool call of the correcting attempt needs
    permission too. The corrected answer is returned."""
    world.gateway.reply(text='{"name": "Ada"}')
    world.gateway.reply(calls=[TOUCH])
    world.gateway.reply(text=GOOD)
    result, events = run_or_chat(world, how, schema=Person)
    assert (result.ok, result.value, result.attempts) == (True, Person("Ada", 36), 2), result.failure
    check_order(events, 2)
    assert [asked.attempt for asked in events_of_type(events, PermissionAsked)] == [2]
    assert made_lines(world) == ["once"]
    last = [one for one in world.gateway.requests if one.method == "stream"][-1]
    assert "'age' is a required property" in str(last.user_texts), "the model receives what is wrong"
    assert "hello" in str(last.user_texts), "it is the same conversation"


@pytest.mark.parametrize("how", ["run", "chat"])
def test_a_tool_call_is_not_repeated(world: Any, how: str) -> None:
    """If the API fails after a tool call, the next attempt continues the conversation instead of
    sending the prompt again. The tool runs once."""
    world.gateway.reply(calls=[TOUCH])
    world.gateway.reply(status=503, error="overloaded")
    world.gateway.reply(text="done")
    result, events = run_or_chat(world, how, retries=2)
    assert (result.outcome, result.answer, result.attempts) == ("success", "done", 2), result.failure
    assert made_lines(world) == ["once"]
    last = [one for one in world.gateway.requests if one.method == "stream"][-1]
    assert "You were interrupted" in last.last_user_text
    assert "echo once" in repr(last.contents), "the request has the earlier tool call"
    assert len(result.decisions) == 1
    assert any(notice.code == "next_attempt" for notice in events_of_type(events, Notice))


@pytest.mark.parametrize("how", ["run", "chat"])
def test_without_retries_a_failure_stands(world: Any, how: str) -> None:
    """Without retries a failed run has one attempt and sends the prompt once."""
    world.gateway.reply(status=503, error="overloaded")
    world.gateway.reply(text="never sent")
    result, events = run_or_chat(world, how, max_attempts=1)
    assert (result.outcome, result.attempts) == ("failed", 1)
    assert len(requested_models(world)) == 1
    check_order(events, 1)


def test_the_next_turn_has_the_chats_own_model(world: Any) -> None:
    """A fallback model and a schema apply to one turn only. The next turn uses the chat's own model
    and continues the conversation."""
    world.gateway.reply(status=429, error="Resource exhausted", details=[PER_DAY])
    world.gateway.reply(text="from flash")
    world.gateway.reply(text=GOOD)
    world.gateway.reply(text="plain")

    async def main() -> list[geminids.Result]:
        options = world.options(**OPTIONS, fallback_models=(FALLBACK,))
        async with geminids.Pool(options) as pool, pool.chat() as chat:
            first = await chat.ask("hello")
            return [first, await chat.ask("who?", schema=Person), await chat.ask("and now?")]

    first, second, third = anyio.run(main)
    assert (first.answer, first.value, first.attempts) == ("from flash", None, 2), first.failure
    assert second.value == Person("Ada", 36), second.failure
    assert (third.answer, third.value) == ("plain", None)
    assert requested_models(world) == ["gemini-2.5-pro", FALLBACK, "gemini-2.5-pro", "gemini-2.5-pro"]
    last = [one for one in world.gateway.requests if one.method == "stream"][-1]
    assert "hello" in str(last.user_texts) and "JSON Schema" not in last.last_user_text


@pytest.mark.parametrize("how", ["run", "chat"])
def test_a_stop_while_waiting_for_the_next_attempt(world: Any, how: str) -> None:
    """A stop during the pause between attempts ends the run as interrupted, and no further request
    is sent."""
    world.gateway.reply(
        status=429,
        error="slow down",
        details=[{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "200s"}],
    )
    options = world.options(**OPTIONS, retries=2)

    async def stop_during_pause(stream: Any) -> geminids.Result:
        with anyio.fail_after(60):
            async for event in stream:
                if isinstance(event, Notice) and event.code == "next_attempt":
                    stream.stop("enough")
        result: geminids.Result = stream.result
        return result

    async def main() -> geminids.Result:
        if how == "run":
            async with geminids.open_run("hello", options, on_permission=lambda asked: "allow") as run:
                return await stop_during_pause(run)
        async with geminids.Pool(options) as pool, pool.chat() as chat, chat.send("hello") as turn:
            return await stop_during_pause(turn)

    result = anyio.run(main)
    assert (result.outcome, result.reason, result.attempts) == ("interrupted", "enough", 1)
    assert len(requested_models(world)) == 1


@pytest.mark.parametrize("how", ["run", "chat"])
def test_a_process_that_dies_is_replaced(world: Any, how: str) -> None:
    """If the process dies during an attempt, the next attempt sends the prompt to a new process.
    The conversation has the prompt once."""
    world.gateway.reply(text=["some words", " more words"], stall=True)
    world.gateway.reply(text="second")
    options = world.options(**OPTIONS, retries=2)

    async def kill_first_process(stream: Any) -> geminids.Result:
        pid = 0
        with anyio.fail_after(60):
            async for event in stream:
                pid = event.pid if isinstance(event, Started) and event.attempt == 1 else pid
                if isinstance(event, Text) and event.attempt == 1 and psutil.pid_exists(pid):
                    os.kill(pid, signal.SIGKILL)
        result: geminids.Result = stream.result
        return result

    async def main() -> geminids.Result:
        if how == "run":
            async with geminids.open_run("hello", options, on_permission=lambda asked: "allow") as run:
                return await kill_first_process(run)
        async with geminids.Pool(options) as pool, pool.chat() as chat, chat.send("hello") as turn:
            return await kill_first_process(turn)

    result = anyio.run(main)
    assert (result.outcome, result.answer, result.attempts) == ("success", "second", 2), result.failure
    last = [one for one in world.gateway.requests if one.method == "stream"][-1]
    assert str(last.user_texts).count("hello") == 1


def test_a_queued_prompt_uses_the_model_set_before_it(world: Any) -> None:
    """A prompt that waits for the previous turn uses the model that was set before the prompt was
    sent."""
    world.gateway.when("first", text="a", delay=1)
    world.gateway.when("second", text="b")

    async def main() -> None:
        async with geminids.Pool(world.options(**OPTIONS)) as pool, pool.chat() as chat:
            first = chat.send("first")
            with anyio.fail_after(30):
                while not world.gateway.requests:
                    await anyio.sleep(0.01)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(chat.set_model, FALLBACK)
                await anyio.lowlevel.checkpoint()
                second = chat.send("second")
            async with first, second:
                assert [event async for event in second]

    anyio.run(main)
    assert requested_models(world) == ["gemini-2.5-pro", FALLBACK]


def test_a_deadline_in_the_pause_is_a_time_out(world: Any) -> None:
    """A deadline during the pause between attempts ends the turn as timed out, not as
    interrupted."""
    world.gateway.reply(status=503, error="overloaded")

    async def main() -> geminids.Result:
        options = world.options(**OPTIONS, retries=2)
        async with geminids.Pool(options) as pool, pool.chat() as chat, chat.send("hello") as turn:
            async for event in turn:
                if isinstance(event, Notice) and event.code == "next_attempt":
                    turn.stop("timed out after 9 s", by_deadline=True)
        return turn.result

    result = anyio.run(main)
    assert (result.outcome, result.reason) == ("timed_out", "timed out after 9 s")


def test_the_reason_names_the_time_out_of_the_turn(world: Any) -> None:
    """The reason of a timed-out turn names the turn's full time-out, not the time that was left
    after the session had opened."""
    world.gateway.reply(text="first")
    world.gateway.reply(stall=True)

    async def main() -> list[geminids.Result]:
        async with geminids.Pool(world.options(**OPTIONS)) as pool, pool.chat() as chat:
            return [await chat.ask("hello"), await chat.ask("again", timeout=2)]

    _, result = anyio.run(main)
    assert (result.outcome, result.reason) == ("timed_out", "timed out after 2 s")
