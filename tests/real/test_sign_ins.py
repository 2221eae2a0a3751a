"""Every sign-in on every transport: the scripted API's own count is the judge of requests, tokens, models and cost."""

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
from complete import lawful, of
from fake_google import Asked
from geminids import Notice, TokensUsed, ToolFinished
from geminids.gateway import Call, Reply, Request
from geminids.gateway import Usage as Counted
from host_program import Task, host
from sign_ins import SIGN_INS, SignIn, assert_equal, paid, signed_in

pytestmark = pytest.mark.real
deep = pytest.mark.deep

OLDEST = "0.54.4"
HUNT = Path(__file__).parents[1] / "shared" / "key_hunt.py"


def table(*quick: tuple[str, str], transports: Iterable[str]) -> pytest.MarkDecorator:
    """All pairs of sign-in and transport; those that are not `quick` run in the deep set."""
    rows = [(name, transport) for name in SIGN_INS for transport in transports]
    return pytest.mark.parametrize(
        ("name", "transport"),
        [pytest.param(*row, marks=() if row in quick else deep, id="-".join(row)) for row in rows],
    )


def converse(request: Request) -> Reply | None:
    """A shell command, a file, then the answer. No two requests use the same tokens, in whichever chat."""
    if request.method != "stream":
        return None
    step = len(request.turn_results)
    # The number of the chat is in its prompts, the number of the turn at their end.
    chat, turn = request.last_user_text.split()[1::2]
    n = 1000 * int(chat) + 100 * int(turn) + step
    if step == 0:
        call = Call("run_shell_command", {"command": f"echo of chat {chat}"})
        return Reply(calls=[call], usage=Counted(input=20_000 + n, output=21, cached=0, thinking=0, tool=0))
    if step == 1:
        call = Call("read_file", {"file_path": "a.txt"})
        return Reply(calls=[call], usage=Counted(input=21_000 + n, cached=15_000 + n, thinking=33, output=7))
    usage = Counted(input=22_000 + n, cached=16_000, thinking=5 + n, tool=444, output=90)
    return Reply(text=f"answer {chat} {turn}", usage=usage)


def run_headless(options: geminids.Options) -> list[list[Any]]:
    return [list(geminids.stream_sync("chat 0 turn 0", options))]


def run_warm(options: geminids.Options) -> list[list[Any]]:
    """One chat with two turns."""

    async def talk() -> list[list[Any]]:
        async with geminids.Pool(options) as pool, pool.chat() as chat:
            return [[event async for event in chat.send(f"chat 0 turn {turn}")] for turn in range(2)]

    return anyio.run(talk)


def run_two_chats(options: geminids.Options) -> list[list[Any]]:
    """Two chats of one pool at once, with two turns each; the turns of the first chat come first."""
    turns: dict[tuple[int, int], list[Any]] = {}

    async def talk(pool: geminids.Pool, number: int) -> None:
        async with pool.chat() as chat:
            for turn in range(2):
                prompt = f"chat {number} turn {turn}"
                turns[number, turn] = [event async for event in chat.send(prompt)]

    async def both() -> None:
        async with geminids.Pool(options) as pool, anyio.create_task_group() as tasks:
            for number in range(2):
                tasks.start_soon(talk, pool, number)

    anyio.run(both)
    return [turns[key] for key in sorted(turns)]


TRANSPORTS = {"headless": run_headless, "warm": run_warm, "two_chats": run_two_chats}


def of_turn(asked: Sequence[Asked], prompt: str) -> list[Asked]:
    """The requests of one turn of one chat: by what the user said last."""
    return [one for one in asked if one.request.last_user_text == prompt]


def check_table(world: Any, sign_in: SignIn, transport: str) -> None:
    (world.cwd / "a.txt").write_text("hello")
    with sign_in.serve(converse, world.root) as google:
        turns = TRANSPORTS[transport](signed_in(world, google, approval="yolo"))
        asked = paid(google)
        assert all(sign_in.holds_the_key(google, one) for one in asked)
    numbers: dict[str, list[int | None]] = {}
    for events in turns:
        lawful(events)
        prompt = next(event for event in events if isinstance(event, geminids.Started)).prompt or ""
        finished = events[-1]
        assert (finished.outcome, finished.answer) == (
            "success",
            prompt.replace("chat", "answer").replace("turn ", ""),
        ), finished.failure
        assert_equal(sign_in, events, of_turn(asked, prompt))
        assert [tool.status for tool in of(events, ToolFinished)] == ["ok", "ok"]
        numbers.setdefault(prompt.partition(" turn")[0], []).extend(
            used.request for used in of(events, TokensUsed)
        )
    # No request of one chat was attributed to another one, and none is missing.
    assert sum(len(of(events, TokensUsed)) for events in turns) == len(asked) == 3 * len(turns)
    assert all(counted == list(range(1, len(counted) + 1)) for counted in numbers.values()), numbers


@table(
    ("key", "headless"),
    ("vertex_key", "two_chats"),
    ("adc", "warm"),
    ("account", "headless"),
    transports=tuple(TRANSPORTS),
)
def test_the_events_equal_what_the_api_served(make_world: Any, name: str, transport: str) -> None:
    """Requests, tokens by kind, models and cost of each turn are the API's, request by request."""
    check_table(make_world("0.61.0"), SIGN_INS[name], transport)


@deep
@table(transports=("headless", "two_chats"))
def test_the_oldest_release(make_world: Any, name: str, transport: str) -> None:
    """The same with the oldest supported release."""
    check_table(make_world(OLDEST), SIGN_INS[name], transport)


def six(request: Request) -> Reply | None:
    """A tool in each of five requests, then an answer."""
    if request.method != "stream":
        return None
    step = len(request.turn_results)
    usage = Counted(input=1_000 + step, output=10, cached=0, thinking=step)
    if step == 5:
        return Reply(text="done", usage=usage)
    return Reply(calls=[Call("glob", {"pattern": f"*.x{step}"})], usage=usage)


PROMPTS = {"headless": ["hello"], "warm": ["hello"], "two_chats": ["hello 1", "hello 2"]}


def one_turn(
    options: geminids.Options, transport: str, of_prompt: Callable[[str], dict[str, Any]] = lambda prompt: {}
) -> dict[str, list[Any]]:
    """The events of one run, or of one turn in each chat, by prompt. Two chats work at the same time. `of_prompt`
    returns options of that run or chat."""
    prompts = PROMPTS[transport]
    if transport == "headless":
        return {
            prompt: list(geminids.stream_sync(prompt, options, **of_prompt(prompt))) for prompt in prompts
        }
    turns: dict[str, list[Any]] = {}

    async def talk(pool: geminids.Pool, prompt: str) -> None:
        async with pool.chat(**of_prompt(prompt)) as chat:
            turns[prompt] = [event async for event in chat.send(prompt)]

    async def all_chats() -> None:
        async with geminids.Pool(options) as pool, anyio.create_task_group() as tasks:
            for prompt in prompts:
                tasks.start_soon(talk, pool, prompt)

    anyio.run(all_chats)
    return turns


@table(("vertex_key", "headless"), ("account", "warm"), ("key", "two_chats"), transports=tuple(PROMPTS))
def test_a_budget_of_three_requests_sends_three(make_world: Any, name: str, transport: str) -> None:
    """The agent wants six requests. Three are sent, and they are the ones that are reported. Each chat has its own
    budget."""
    world, sign_in = make_world("0.61.0"), SIGN_INS[name]
    with sign_in.serve(six, world.root) as google:
        turns = one_turn(signed_in(world, google, max_requests=3), transport)
        asked = paid(google)
    assert len(asked) == 3 * len(turns)
    for prompt, events in turns.items():
        assert events[-1].outcome == "over_budget", events[-1]
        assert "3 of 3 requests" in events[-1].reason
        assert_equal(sign_in, events, of_turn(asked, prompt))


@table(("adc", "headless"), ("account", "warm"), ("key", "two_chats"), transports=tuple(PROMPTS))
def test_record_then_replay_without_the_server(make_world: Any, name: str, transport: str) -> None:
    """A recorded run is replayed when its API is gone: the same answer and tokens, and it costs nothing. Each chat has
    a file of its own."""
    world, sign_in = make_world("0.61.0"), SIGN_INS[name]

    def cassette(prompt: str) -> Path:
        return Path(world.root / f"{prompt}.jsonl")

    with sign_in.serve(six, world.root) as google:
        options = signed_in(world, google)
        recorded = one_turn(options, transport, lambda prompt: {"record": str(cassette(prompt))})
        asked = paid(google)
        env = google.env
    for prompt, events in recorded.items():
        assert_equal(sign_in, events, of_turn(asked, prompt))
        stored = cassette(prompt).read_bytes()
        assert not [secret for secret in _secrets(env) if secret.encode() in stored]
    replayed = one_turn(options, transport, lambda prompt: {"replay": str(cassette(prompt))})
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
        for one in of(events, TokensUsed)
    ]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can close a process to its own user")
@table(
    ("vertex_key", "headless"),
    ("adc", "warm"),
    ("account", "headless"),
    ("key", "two_chats"),
    transports=PROMPTS,
)
def test_no_tool_finds_the_credential(make_world: Any, name: str, transport: str) -> None:
    """An unprivileged host that called `protect_host()`: the key, the access token and the refresh token are in no
    tool's environment, arguments, files or memory. An account login stays with the CLI, and a notice says so."""
    world, sign_in = make_world("0.61.0"), SIGN_INS[name]
    (world.root / "google").mkdir()
    with sign_in.serve(None, world.root / "google") as google:
        needles = _needles(sign_in, google)
        google._function = hunting(needles)
        options = signed_in(world, google, approval="yolo")
        task = Task(
            options=options, prompts=tuple(PROMPTS[transport]), warm=transport != "headless", protect=True
        )
        report = host(task, powerless=True)
        assert all(sign_in.holds_the_key(google, one) for one in paid(google))
    for events in report.events:
        assert events, report.stderr
        assert (events[-1].outcome, events[-1].answer) == ("success", "done"), events[-1]
    hunts = [json.loads(file.read_text().removeprefix("HUNT")) for file in sorted(world.cwd.glob("*hunt-*"))]
    assert len(hunts) == len(needles) * len(task.prompts)
    for hunt in hunts:
        assert hunt["read"]["of the run"] >= 1
        assert hunt["read"]["file"] >= 1
        for kind in ("environ", "fd", "mem"):
            assert hunt["host"] in hunt["closed"][kind]
    notices = [notice for events in report.events for notice in of(events, Notice, code="gateway")]
    if sign_in.name == "account":
        assert "own environment" in hunts[0]["found"]
        assert [(one.level, "login stays with the CLI" in one.message) for one in notices] == [
            ("info", True)
        ] * len(task.prompts)
    else:
        assert [hunt["found"] for hunt in hunts] == [[]] * len(hunts)
        assert notices == []
    assert not [needle for needle in needles if needle in report.stdout + report.stderr]


def _needles(sign_in: SignIn, google: Any) -> list[str]:
    if sign_in.name == "adc":
        return ["ya29.fake-1", "1//made-up-refresh-token", "made-up-secret"]
    return _secrets(google.env)[:1]


def hunting(needles: Sequence[str]) -> Any:
    """A script that has the agent look for these texts, each given in two halves."""

    def words(number: int, needle: str) -> str:
        half = len(needle) // 2
        # One at a time: each has the text in its own memory.
        argv = [
            "flock",
            "hunt.lock",
            sys.executable,
            "-IS",
            str(HUNT),
            needle[:half],
            needle[half:],
            "--memory",
        ]
        return f"{shlex.join(argv)} > $chat-hunt-{number}.json"

    commands = " && ".join(words(number, needle) for number, needle in enumerate(needles))

    def script(request: Request) -> Reply | None:
        if request.method != "stream":
            return None
        if request.turn_results:
            return Reply(text="done")
        command = f"chat={request.last_user_text.replace(' ', '-')}; {commands}"
        return Reply(calls=[Call("run_shell_command", {"command": command})])

    return script
