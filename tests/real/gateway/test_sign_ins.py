"""Every sign-in on every transport: reported requests, tokens, models and cost equal the API's
counts."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

import geminids
from collect_events import check_events, select_events
from fake_google import ReceivedRequest
from geminids import Notice, TokensUsed, ToolFinished
from geminids.gateway import Call, Reply, ReplyUsage, Request
from host_program import Task, run_host
from sign_ins import SIGN_INS, SignIn, assert_usage_equals_api, options_for_server, paid_requests

pytestmark = pytest.mark.real
deep = pytest.mark.deep

OLDEST = "0.54.4"
FIND_SECRET = Path(__file__).parents[2] / "shared" / "find_secret.py"


def sign_in_table(*quick: tuple[str, str], transports: Iterable[str]) -> pytest.MarkDecorator:
    """Parametrize a test with all pairs of sign-in and transport. Pairs not in `quick` are
    `deep`."""
    rows = [(name, transport) for name in SIGN_INS for transport in transports]
    return pytest.mark.parametrize(
        ("name", "transport"),
        [pytest.param(*row, marks=() if row in quick else deep, id="-".join(row)) for row in rows],
    )


def converse(request: Request) -> Reply | None:
    """Reply with a shell command, a file read, then an answer. No two requests of all chats report
    the same token counts."""
    if request.method != "stream":
        return None
    step = len(request.turn_results)
    # A prompt is "chat NUMBER turn NUMBER".
    chat, turn = request.last_user_text.split()[1::2]
    n = 1000 * int(chat) + 100 * int(turn) + step
    if step == 0:
        call = Call("run_shell_command", {"command": f"echo of chat {chat}"})
        return Reply(
            calls=[call], usage=ReplyUsage(input=20_000 + n, output=21, cached=0, thinking=0, tool=0)
        )
    if step == 1:
        call = Call("read_file", {"file_path": "a.txt"})
        return Reply(
            calls=[call], usage=ReplyUsage(input=21_000 + n, cached=15_000 + n, thinking=33, output=7)
        )
    usage = ReplyUsage(input=22_000 + n, cached=16_000, thinking=5 + n, tool=444, output=90)
    return Reply(text=f"answer {chat} {turn}", usage=usage)


def run_headless(options: geminids.Options) -> list[list[Any]]:
    return [list(geminids.stream_sync("chat 0 turn 0", options))]


def run_warm(options: geminids.Options) -> list[list[Any]]:
    """Run one chat with two turns, and return the events of each turn."""

    async def run_chat() -> list[list[Any]]:
        async with geminids.Pool(options) as pool, pool.chat() as chat:
            return [[event async for event in chat.send(f"chat 0 turn {turn}")] for turn in range(2)]

    return anyio.run(run_chat)


def run_two_chats(options: geminids.Options) -> list[list[Any]]:
    """Run two chats of one pool at the same time, with two turns each. Return the events of each
    turn, the first chat's turns first."""
    turns: dict[tuple[int, int], list[Any]] = {}

    async def run_chat(pool: geminids.Pool, number: int) -> None:
        async with pool.chat() as chat:
            for turn in range(2):
                prompt = f"chat {number} turn {turn}"
                turns[number, turn] = [event async for event in chat.send(prompt)]

    async def both() -> None:
        async with geminids.Pool(options) as pool, anyio.create_task_group() as tasks:
            for number in range(2):
                tasks.start_soon(run_chat, pool, number)

    anyio.run(both)
    return [turns[key] for key in sorted(turns)]


TRANSPORTS = {"headless": run_headless, "warm": run_warm, "two_chats": run_two_chats}


def requests_of_turn(asked: Sequence[ReceivedRequest], prompt: str) -> list[ReceivedRequest]:
    """Return the requests of one turn: those whose last user prompt is `prompt`."""
    return [request for request in asked if request.request.last_user_text == prompt]


def check_sign_in(world: Any, sign_in: SignIn, transport: str) -> None:
    (world.cwd / "a.txt").write_text("hello")
    with sign_in.serve(converse, world.root) as google:
        turns = TRANSPORTS[transport](options_for_server(world, google, approval="yolo"))
        asked = paid_requests(google)
        assert all(sign_in.holds_the_key(google, one) for one in asked)
    numbers: dict[str, list[int | None]] = {}
    for events in turns:
        check_events(events)
        prompt = next(event for event in events if isinstance(event, geminids.Started)).prompt or ""
        finished = events[-1]
        assert (finished.outcome, finished.answer) == (
            "success",
            prompt.replace("chat", "answer").replace("turn ", ""),
        ), finished.failure
        assert_usage_equals_api(sign_in, events, requests_of_turn(asked, prompt))
        assert [tool.status for tool in select_events(events, ToolFinished)] == ["ok", "ok"]
        numbers.setdefault(prompt.partition(" turn")[0], []).extend(
            used.request for used in select_events(events, TokensUsed)
        )
    # Each request was attributed to its own chat, and none is missing.
    assert sum(len(select_events(events, TokensUsed)) for events in turns) == len(asked) == 3 * len(turns)
    assert all(counted == list(range(1, len(counted) + 1)) for counted in numbers.values()), numbers


@sign_in_table(
    ("key", "headless"),
    ("vertex_key", "two_chats"),
    ("adc", "warm"),
    ("account", "headless"),
    transports=tuple(TRANSPORTS),
)
def test_the_events_equal_what_the_api_served(make_world: Any, name: str, transport: str) -> None:
    """The events of each turn report the same requests, tokens, models and cost as the API
    served."""
    check_sign_in(make_world("0.61.0"), SIGN_INS[name], transport)


@deep
@sign_in_table(transports=("headless", "two_chats"))
def test_the_events_equal_what_the_api_served_on_the_oldest_release(
    make_world: Any, name: str, transport: str
) -> None:
    """With the oldest supported release, the events also report the same requests, tokens, models
    and cost as the API served."""
    check_sign_in(make_world(OLDEST), SIGN_INS[name], transport)


def six_requests(request: Request) -> Reply | None:
    """Reply with a tool call to each of five requests, then with an answer."""
    if request.method != "stream":
        return None
    step = len(request.turn_results)
    usage = ReplyUsage(input=1_000 + step, output=10, cached=0, thinking=step)
    if step == 5:
        return Reply(text="done", usage=usage)
    return Reply(calls=[Call("glob", {"pattern": f"*.x{step}"})], usage=usage)


PROMPTS = {"headless": ["hello"], "warm": ["hello"], "two_chats": ["hello 1", "hello 2"]}


def run_one_turn(
    options: geminids.Options, transport: str, options_of: Callable[[str], dict[str, Any]] = lambda prompt: {}
) -> dict[str, list[Any]]:
    """Run one headless run, or one turn in each chat at the same time. Return the events by prompt.

    `options_of(prompt)` returns further options for that run or chat."""
    prompts = PROMPTS[transport]
    if transport == "headless":
        return {
            prompt: list(geminids.stream_sync(prompt, options, **options_of(prompt))) for prompt in prompts
        }
    turns: dict[str, list[Any]] = {}

    async def run_chat(pool: geminids.Pool, prompt: str) -> None:
        async with pool.chat(**options_of(prompt)) as chat:
            turns[prompt] = [event async for event in chat.send(prompt)]

    async def all_chats() -> None:
        async with geminids.Pool(options) as pool, anyio.create_task_group() as tasks:
            for prompt in prompts:
                tasks.start_soon(run_chat, pool, prompt)

    anyio.run(all_chats)
    return turns


@sign_in_table(
    ("vertex_key", "headless"), ("account", "warm"), ("key", "two_chats"), transports=tuple(PROMPTS)
)
def test_a_budget_of_three_requests_sends_three(make_world: Any, name: str, transport: str) -> None:
    """With `max_requests=3`, an agent that needs six requests sends three, and exactly these are
    reported. Each chat has its own budget."""
    world, sign_in = make_world("0.61.0"), SIGN_INS[name]
    with sign_in.serve(six_requests, world.root) as google:
        turns = run_one_turn(options_for_server(world, google, max_requests=3), transport)
        asked = paid_requests(google)
    assert len(asked) == 3 * len(turns)
    for prompt, events in turns.items():
        assert events[-1].outcome == "over_budget", events[-1]
        assert "3 of 3 requests" in events[-1].reason
        assert_usage_equals_api(sign_in, events, requests_of_turn(asked, prompt))


@sign_in_table(("adc", "headless"), ("account", "warm"), ("key", "two_chats"), transports=tuple(PROMPTS))
def test_record_then_replay_without_the_server(make_world: Any, name: str, transport: str) -> None:
    """A recorded run can be replayed after its API has stopped. It has the same answer and tokens
    and costs nothing. Each chat has its own file, which contains no credential."""
    world, sign_in = make_world("0.61.0"), SIGN_INS[name]

    def cassette(prompt: str) -> Path:
        return Path(world.root / f"{prompt}.jsonl")

    with sign_in.serve(six_requests, world.root) as google:
        options = options_for_server(world, google)
        recorded = run_one_turn(options, transport, lambda prompt: {"record": str(cassette(prompt))})
        asked = paid_requests(google)
        env = google.env
    for prompt, events in recorded.items():
        assert_usage_equals_api(sign_in, events, requests_of_turn(asked, prompt))
        stored = cassette(prompt).read_bytes()
        assert not [secret for secret in _secrets(env) if secret.encode() in stored]
    replayed = run_one_turn(options, transport, lambda prompt: {"replay": str(cassette(prompt))})
    for prompt, events in replayed.items():
        finished = events[-1]
        assert (finished.outcome, finished.answer) == ("success", "done"), finished.failure
        assert _tokens(events) == _tokens(recorded[prompt])
        assert (finished.cost.usd, finished.cost.basis) == (0, "exact")


def _secrets(env: dict[str, str]) -> list[str]:
    names = ("GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_CLOUD_ACCESS_TOKEN")
    return [env[name] for name in names if env.get(name)] + ["ya29.", "made-up-refresh-token"]


def _tokens(events: list[Any]) -> list[Any]:
    return [
        (one.request, one.model, one.input, one.cached, one.output, one.thinking)
        for one in select_events(events, TokensUsed)
    ]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can close a process to its own user")
@sign_in_table(
    ("vertex_key", "headless"),
    ("adc", "warm"),
    ("account", "headless"),
    ("key", "two_chats"),
    transports=PROMPTS,
)
def test_no_tool_finds_the_credential(make_world: Any, name: str, transport: str) -> None:
    """A tool of an unprivileged host that called `protect_host()` cannot find the credential in any
    environment, arguments, files or memory. Exception: an account login stays with the CLI, which a
    notice reports."""
    world, sign_in = make_world("0.61.0"), SIGN_INS[name]
    (world.root / "google").mkdir()
    with sign_in.serve(None, world.root / "google") as google:
        secrets = _secrets_of(sign_in, google)
        google._function = search_script(secrets)
        options = options_for_server(world, google, approval="yolo")
        task = Task(
            options=options, prompts=tuple(PROMPTS[transport]), warm=transport != "headless", protect=True
        )
        report = run_host(task, unprivileged=True)
        assert all(sign_in.holds_the_key(google, one) for one in paid_requests(google))
    for events in report.events:
        assert events, report.stderr
        assert (events[-1].outcome, events[-1].answer) == ("success", "done"), events[-1]
    searches = [
        json.loads(file.read_text().removeprefix("HUNT")) for file in sorted(world.cwd.glob("*hunt-*"))
    ]
    assert len(searches) == len(secrets) * len(task.prompts)
    for search in searches:
        assert search["read"]["of the run"] >= 1
        assert search["read"]["file"] >= 1
        for kind in ("environ", "fd", "mem"):
            assert search["host"] in search["closed"][kind]
    notices = [notice for events in report.events for notice in select_events(events, Notice, code="gateway")]
    if sign_in.name == "account":
        assert "own environment" in searches[0]["found"]
        assert [(one.level, "the CLI keeps the account login" in one.message) for one in notices] == [
            ("info", True)
        ] * len(task.prompts)
    else:
        assert [search["found"] for search in searches] == [[]] * len(searches)
        assert notices == []
    assert not [secret for secret in secrets if secret in report.stdout + report.stderr]


def _secrets_of(sign_in: SignIn, google: Any) -> list[str]:
    if sign_in.name == "adc":
        return ["ya29.fake-1", "1//made-up-refresh-token", "made-up-secret"]
    return _secrets(google.env)[:1]


def search_script(secrets: Sequence[str]) -> Any:
    """Return a script whose agent searches for each of these texts with find_secret.py. The program
    receives a text in two halves, so that it does not find itself."""

    def search_command(number: int, secret: str) -> str:
        half = len(secret) // 2
        # One search at a time: a running search has the text in its own memory.
        argv = [
            "flock",
            "hunt.lock",
            sys.executable,
            "-IS",
            str(FIND_SECRET),
            secret[:half],
            secret[half:],
            "--memory",
        ]
        return f"{shlex.join(argv)} > $chat-hunt-{number}.json"

    commands = " && ".join(search_command(number, secret) for number, secret in enumerate(secrets))

    def script(request: Request) -> Reply | None:
        if request.method != "stream":
            return None
        if request.turn_results:
            return Reply(text="done")
        command = f"chat={request.last_user_text.replace(' ', '-')}; {commands}"
        return Reply(calls=[Call("run_shell_command", {"command": command})])

    return script
