"""A chat that continues headless: budgets, busy sessions, new sessions and retries work there
too."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest

import geminids
from geminids import Notice, Pool, Started

pytestmark = pytest.mark.real


@pytest.fixture
def untrusted(world: Any) -> Any:
    """A world whose folder has its own settings. A chat there with an approval mode other than
    `default` is headless."""
    folder = world.cwd / ".gemini"
    folder.mkdir()
    (folder / "settings.json").write_text('{"mcpServers": {"x": {"command": "true"}}}')
    return world


async def send(chat: geminids.Chat, prompt: str) -> tuple[geminids.Result, list[Any]]:
    async with chat.send(prompt) as turn:
        events = [event async for event in turn]
    return turn.result, events


def send_all(
    pool_fields: dict[str, Any], chat_fields: dict[str, Any], *prompts: str
) -> list[tuple[geminids.Result, list[Any]]]:
    """Open a pool and one chat, and send the prompts one after the other."""

    async def main() -> list[tuple[geminids.Result, list[Any]]]:
        options = pool_fields.pop("options")
        async with Pool(options, **pool_fields) as pool, pool.chat(**chat_fields) as chat:
            return [await send(chat, prompt) for prompt in prompts]

    return anyio.run(main)


def notice_codes(events: list[Any]) -> list[str]:
    return [event.code for event in events if isinstance(event, Notice)]


def transports(events: list[Any]) -> set[str]:
    return {event.transport for event in events if isinstance(event, Started)}


def test_the_budget_of_the_chat_holds(untrusted: Any) -> None:
    """A chat with a budget of one request does not send a second one."""
    for _ in range(3):
        untrusted.gateway.reply(text="one")
    options = untrusted.options(approval="yolo", max_requests=1)
    (first, events), (second, _), (third, _) = send_all({"options": options}, {}, "a", "b", "c")
    assert transports(events) == {"headless"}
    assert [first.outcome, second.outcome, third.outcome] == ["success", "over_budget", "over_budget"]
    assert len(untrusted.gateway.requests) == 1


def test_the_budget_of_a_resumed_chat_holds(world: Any) -> None:
    """A chat that resumes a session headless does not send more requests than its budget allows."""
    world.gateway.reply(text="first")
    before = world.ask("remember me")
    for _ in range(2):
        world.gateway.reply(text="one")
    pool = {"options": world.options(max_requests=1), "go_on": "resume"}
    (first, events), (second, _) = send_all(pool, {"resume": before.session_id}, "a", "b")
    assert transports(events) == {"headless"}
    assert [first.outcome, second.outcome] == ["success", "over_budget"]


def test_a_retry_of_a_first_turn(untrusted: Any) -> None:
    """The retry of a chat's first turn starts a new session, because there is none to resume. Each
    attempt sends one request."""
    untrusted.gateway.reply(status=503, error="overloaded")
    untrusted.gateway.reply(text="second")
    [(result, events)] = send_all({"options": untrusted.options(approval="yolo", retries=2)}, {}, "hello")
    assert (result.outcome, result.answer, result.attempts) == ("success", "second", 2), result.failure
    assert transports(events) == {"headless"}
    assert len(untrusted.gateway.requests) == 2
    assert result.cost is not None and result.usage is not None and result.usage.requests == 2


def test_a_turn_after_one_that_failed(untrusted: Any) -> None:
    """A turn after a failed first turn starts a new session."""
    untrusted.gateway.reply(status=400, error="bad")
    untrusted.gateway.reply(text="second")
    options = untrusted.options(approval="yolo", max_attempts=1)
    (first, _), (second, _) = send_all({"options": options}, {}, "a", "b")
    assert first.outcome == "failed"
    assert (second.outcome, second.answer) == ("success", "second"), second.failure


def test_a_busy_session_is_waited_for(world: Any) -> None:
    """A chat turn whose session is busy reports that, waits, and continues in that session."""
    result, events = send_beside_another_run(world, when_busy="wait")
    assert (result.outcome, result.answer) == ("success", "second"), result.failure
    assert "session_busy" in notice_codes(events)


def test_a_busy_session_can_be_a_failure(world: Any) -> None:
    """With `when_busy="fail"`, a chat turn in a busy session fails, and its prompt is not sent."""
    result, _ = send_beside_another_run(world, when_busy="fail")
    assert (result.outcome, result.failure and result.failure.kind) == ("failed", "session_busy")
    assert not any("and now" in str(request.user_texts) for request in world.gateway.requests)


def test_a_stop_while_waiting_for_a_busy_session(world: Any) -> None:
    """A chat turn that waits for a busy session can be stopped. It ends as interrupted with the
    caller's reason, and its prompt is not sent."""
    result, _ = send_beside_another_run(world, stop_turn=True, when_busy="wait")
    assert (result.outcome, result.reason) == ("interrupted", "enough"), result.failure
    assert not any("and now" in str(request.user_texts) for request in world.gateway.requests)


def send_beside_another_run(
    world: Any, *, stop_turn: bool = False, **fields: Any
) -> tuple[geminids.Result, list[Any]]:
    """Send a headless chat turn while another run uses its session. When the turn reports the busy
    session, stop the turn (`stop_turn`) or the other run."""
    world.gateway.reply(text="first")
    before = world.ask("remember me")
    world.gateway.when("slow", stall=True)
    world.gateway.when("and now", text="second")

    async def main() -> tuple[geminids.Result, list[Any]]:
        async with geminids.open_run("slow", world.options(resume=before.session_id)) as run:
            with anyio.fail_after(60):
                while not any("slow" in str(request.user_texts) for request in world.gateway.requests):
                    await anyio.sleep(0.02)
            pool = Pool(world.options(**fields), go_on="resume")
            async with pool, pool.chat(resume=before.session_id) as chat, chat.send("and now") as turn:
                events = []
                async for event in turn:
                    events.append(event)
                    if isinstance(event, Notice) and event.code == "session_busy":
                        turn.stop("enough") if stop_turn else run.stop()
            return turn.result, events

    return anyio.run(main)


@pytest.mark.parametrize("resume", ["11111111-1111-4111-8111-111111111111", "latest"])
def test_a_fresh_session_in_place_of_a_lost_one(world: Any, resume: str) -> None:
    """With `fresh`, a chat whose session is missing starts a new one. A notice reports that, and
    `clear_session` is set."""
    world.gateway.reply(text="hi")
    pool = {"options": world.options(fresh=True), "go_on": "resume"}
    [(result, events)] = send_all(pool, {"resume": resume}, "hello")
    assert (result.outcome, result.answer, result.clear_session) == ("success", "hi", True), result.failure
    assert "fresh_session" in notice_codes(events)


@pytest.mark.parametrize("approval", ["default", "yolo"])
def test_the_request_log_names_the_folder(
    untrusted: Any, approval: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On both transports the request log has the full path of the folder, because `geminids usage`
    groups by it."""
    untrusted.gateway.reply(empty=True)  # the CLI discards this answer, so that only the request log has it
    untrusted.gateway.reply(text="hi")
    monkeypatch.chdir(untrusted.cwd)
    [(result, _)] = send_all({"options": untrusted.options(approval=approval, cwd=".")}, {}, "hello")
    assert result.ok, result.failure
    lines = (untrusted.places.root / "request-log" / "requests.jsonl").read_text().splitlines()
    assert {json.loads(line)["project"] for line in lines if "project" in line} == {str(untrusted.cwd)}
