"""What the real CLI does unseen is reported: the role of each request, repeats, fallbacks, loop recovery, compression,
discarded answers; each request is counted once, and the sum is what the API served."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest

import geminids
from fake_google import FakeGoogle, Fault
from geminids import Notice, TokensUsed
from geminids.gateway import Call, Reply, Request
from geminids.gateway.script.scripted import fill
from through_gateway import KEY, through

pytestmark = pytest.mark.real
deep = pytest.mark.deep

Answer = Reply | Fault
Script = Callable[[Request], Answer | None]

LOOP = "The same hundred characters come again and again, and nothing new is said: is that a loop, or not? "
# Only a heading or the like makes the CLI forget the repetition: any other text is the same loop for it.
RECOVERED = Reply(text="# Better")
QUOTA = [
    {
        "@type": "type.googleapis.com/google.rpc.QuotaFailure",
        "violations": [{"quotaId": "GenerateRequestsPerDayPerProjectPerModel"}],
    }
]


def look(number: int = 0) -> Reply:
    return Reply(calls=[Call("list_directory", {"dir_path": ".", "ignore": [str(number)]})])


def use(tool: str, **args: Any) -> Reply:
    return Reply(calls=[Call(tool, args)])


def in_turn(*answers: Answer, aside: Script | None = None) -> Script:
    """These answers for the requests that stream, one after the other, then `done`; `aside` for the others."""
    left = list(answers)

    def script(request: Request) -> Answer | None:
        if request.method != "stream":
            return aside(request) if aside is not None else None
        return left.pop(0) if left else Reply(text="done")

    return script


def always(text: str) -> Script:
    return lambda request: Reply(text=text, method="any")


def by_model(bad: str, answer: Answer) -> Script:
    """This answer for models with such a name."""
    return in_turn_of(lambda request: answer if bad in (request.model or "") else Reply(text="done"))


def in_turn_of(pick: Script) -> Script:
    return lambda request: pick(request) if request.method == "stream" else None


def with_subagents(*agents: str, first: tuple[Answer, ...] = ()) -> Script:
    """The main conversation calls these agents at once; each looks around and is done. `first` answers come first."""
    left = list(first)

    def pick(request: Request) -> Answer:
        task = request.tools.get("complete_task")
        if task is not None:
            if left:
                return left.pop(0)
            return (
                Reply(calls=[Call("complete_task", fill(task["parametersJsonSchema"]))])
                if request.turn_results
                else look()
            )
        if request.turn_results:
            return Reply(text="done")
        return Reply(calls=[Call("invoke_agent", {"agent_name": name, "prompt": "look"}) for name in agents])

    return in_turn_of(pick)


def many_looks(confidence: float) -> Script:
    """More than thirty turns, each with another call; the loop check is answered with this confidence."""

    def script(request: Request) -> Answer:
        if request.method == "stream":
            count = len(request.turn_results)
            return look(count) if count < 32 else Reply(text="done")
        fields = {"unproductive_state_analysis": "it loops", "unproductive_state_confidence": confidence}
        return Reply(text=json.dumps(fields), method="any")

    return script


@dataclass
class Scene:
    """What the API answers, and what must be reported. `roles` is a row of roles, or how many of each."""

    script: Callable[[], Script]
    roles: list[str] | dict[str, int]
    found: list[tuple[str, int]] = field(default_factory=list)
    repeats: dict[int, int] = field(default_factory=dict)
    turns: int = 1
    unfinished: set[int] = field(default_factory=set)
    """Requests whose answer ends without a finish reason, and so without final usage."""
    prompts: tuple[str, ...] = ("hello",)
    options: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)


AGAIN: dict[str, Any] = {"max_attempts": 3}
YOLO: dict[str, Any] = {"approval": "yolo"}
EMPTY = Reply(empty=True)
THOUGHT = Reply(thought="**Plan** Let me see.")
BROKEN = Fault("reset", Reply(text=["one ", "two ", "three "]), after=2)
REPEATED: dict[str, Any] = {"found": [("repeat", 2), ("discarded", 1)], "repeats": {2: 1}, "options": AGAIN}
MAIN2 = ["main", "main"]
MAIN3 = ["main", "main", "main"]

SCENES: dict[str, Scene] = {
    "plain": Scene(lambda: in_turn(look()), MAIN2, turns=2),
    "router": Scene(in_turn, ["router", "main"], options={"model": "auto"}),
    "search": Scene(
        lambda: in_turn(use("google_web_search", query="pears"), aside=always("found")),
        ["main", "search", "main"],
        turns=2,
        options=YOLO,
    ),
    "fetch": Scene(
        lambda: in_turn(use("web_fetch", prompt="sum up http://93.184.216.34/a"), aside=always("a page")),
        ["main", "fetch", "main"],
        turns=2,
        options=YOLO,
    ),
    "subagent": Scene(
        lambda: with_subagents("generalist"),
        ["main", "subagent", "subagent", "main"],
        turns=2,
        options=YOLO,
    ),
    "subagents at once": Scene(
        lambda: with_subagents("generalist", "generalist", "codebase_investigator"),
        {"main": 2, "subagent": 6},
        turns=2,
        options=YOLO,
    ),
    "subagent, empty": Scene(
        lambda: with_subagents("generalist", first=(EMPTY,)),
        ["main", "subagent", "subagent", "subagent", "main"],
        [("repeat", 3), ("discarded", 2)],
        {3: 2},
        turns=2,
        options={**YOLO, **AGAIN},
    ),
    "loop check": Scene(
        lambda: many_looks(0.1), {"main": 33, "loop_check": 1}, turns=33, options={**YOLO, "timeout": 120}
    ),
    "loop": Scene(
        lambda: in_turn(Reply(text=[LOOP] * 2000), RECOVERED),
        MAIN2,
        [("loop_recovery", 2), ("discarded", 1)],
    ),
    "loop after a tool": Scene(
        lambda: in_turn(look(), Reply(text=[LOOP] * 2000), RECOVERED),
        MAIN3,
        [("loop_recovery", 3), ("discarded", 2)],
        turns=2,
    ),
    "loop of calls": Scene(
        lambda: in_turn(*[look()] * 5),
        ["main"] * 6,
        [("loop_recovery", 6), ("discarded", 5)],
        turns=5,
    ),
    "empty": Scene(lambda: in_turn(EMPTY), MAIN2, **REPEATED),
    "thoughts alone": Scene(lambda: in_turn(THOUGHT), MAIN2, **REPEATED),
    "thoughts after a tool": Scene(
        lambda: in_turn(look(), THOUGHT),
        MAIN3,
        [("repeat", 3), ("discarded", 2)],
        {3: 2},
        turns=2,
        options=AGAIN,
    ),
    "malformed call": Scene(lambda: in_turn(Reply(finish="MALFORMED_FUNCTION_CALL")), MAIN2, **REPEATED),
    "no finish": Scene(lambda: in_turn(Reply(text="half", finish=None)), MAIN2, unfinished={1}, **REPEATED),
    "max tokens, empty": Scene(lambda: in_turn(Reply(finish="MAX_TOKENS")), MAIN2, **REPEATED),
    "no answer": Scene(lambda: in_turn(Fault("silent")), MAIN2, [], {2: 1}, options=AGAIN),
    "interrupted": Scene(lambda: in_turn(BROKEN), MAIN2, [("discarded", 1)], {2: 1}, options=AGAIN),
    "interrupted after a tool": Scene(
        lambda: in_turn(look(), BROKEN), MAIN3, [("discarded", 2)], {3: 2}, turns=2, options=AGAIN
    ),
    "server error": Scene(lambda: in_turn(Reply(status=503)), MAIN2, [], {2: 1}, options=AGAIN),
    "fallback": Scene(
        lambda: by_model("lite", Reply(status=429, error="quota", details=QUOTA)),
        MAIN2,
        [("fallback", 2)],
        {2: 1},
    ),
    "compression": Scene(
        lambda: in_turn(
            Reply(text=" ".join(map(str, range(3000)))),
            aside=always("<state_snapshot>counted</state_snapshot>"),
        ),
        ["main", "compression", "compression", "main"],
        [("compression", 2)],
        turns=2,
        prompts=("count", "go on"),
        settings={"model": {"compressionThreshold": 0.000001}},
    ),
    "next speaker": Scene(
        lambda: in_turn(
            aside=lambda request: Reply(text='{"reasoning": "x", "next_speaker": "user"}', method="any")
        ),
        ["main", "other"],
        settings={"model": {"skipNextSpeakerCheck": False}},
    ),
    "summary of a tool's output": Scene(
        lambda: in_turn(use("run_shell_command", command="seq 1 20000"), aside=always("numbers")),
        ["main", "other", "main"],
        turns=2,
        options=YOLO,
        settings={"model": {"summarizeToolOutput": {"run_shell_command": {"tokenBudget": 100}}}},
    ),
}
# The second of a class, and what takes long.
FURTHER = {
    "plain",
    "subagents at once",
    "subagent, empty",
    "loop check",
    "loop after a tool",
    "thoughts alone",
    "malformed call",
    "no finish",
    "max tokens, empty",
    "interrupted after a tool",
    "server error",
    "next speaker",
    "summary of a tool's output",
}
# What differs on ACP: it never asks who speaks next.
HEADLESS_ONLY = {"next speaker"}


CODES = ("repeat", "fallback", "loop_recovery", "compression", "discarded")


@dataclass
class Reported:
    """What the events of one or more prompts report of the API requests; numbers count on over the prompts."""

    roles: list[str] = field(default_factory=list)
    found: list[tuple[str, int]] = field(default_factory=list)
    repeats: set[int] = field(default_factory=set)
    turns: int = 0

    def add(self, events: list[Any], before: int) -> None:
        used = sorted(
            (event for event in events if isinstance(event, TokensUsed)), key=lambda event: event.request or 0
        )
        self.roles += [event.role for event in used]
        self.repeats |= {before + (event.request or 0) for event in used if event.repeat}
        self.turns += len({event.turn for event in used if event.role == "main"})
        self.found += [
            (event.code, before + (event.request or 0))
            for event in events
            if isinstance(event, Notice) and event.code in CODES
        ]


async def play(world: Any, scene: Scene, transport: str) -> tuple[Reported, list[geminids.Result[Any]]]:
    """Play a scene; what is reported of its requests, and the results of the prompts."""
    if scene.settings:
        home = world.home / ".gemini"
        home.mkdir(exist_ok=True)
        (home / "settings.json").write_text(json.dumps(scene.settings))
    reported, results = Reported(), list[geminids.Result[Any]]()
    with FakeGoogle(scene.script(), with_key=KEY) as google:
        fields = {"max_attempts": 1, "timeout": 90.0, **scene.options}
        every: list[Any] = []
        if transport == "headless":
            for prompt in scene.prompts:
                resume = {"resume": results[-1].session_id} if results else {}
                async with geminids.open_run(prompt, through(world, google, **fields, **resume)) as run:
                    events = [event async for event in run]
                reported.add(events, len(reported.roles))
                every += events
                results.append(run.result)
        else:
            options = through(world, google, **fields)
            async with geminids.Pool(options, size=1) as pool, pool.chat() as chat:
                for prompt in scene.prompts:
                    turn = chat.send(prompt)
                    events = [event async for event in turn]
                    reported.add(events, 0)
                    every += events
                    results.append(turn.result)
        google.wait_until(lambda: google.open == 0)
        agree(google, every, results, scene.unfinished)
    return reported, results


def agree(
    google: FakeGoogle, events: list[Any], results: list[geminids.Result[Any]], unfinished: set[int]
) -> None:
    """Request by request, what is reported is what the API served; the sum is the API's; `exact` unless an answer had
    no final usage."""
    used = [event for event in events if isinstance(event, TokensUsed)]
    served = [asked for asked in google.asked if asked.request.method in ("stream", "generate")]
    assert len(used) == len(served)
    assert sorted(str(event.model) for event in used) == sorted(str(asked.model) for asked in served)
    known = [event for event in used if event.input is not None]
    final = [
        asked for asked in served if (asked.whole and asked.n not in unfinished) or (asked.status or 0) >= 400
    ]
    assert len(known) == len(final)
    for name, kind in (
        ("promptTokenCount", "input"),
        ("candidatesTokenCount", "output"),
        ("thoughtsTokenCount", "thinking"),
    ):
        counts = sorted(asked.usage.get(name, 0) for asked in final)
        assert sorted(getattr(event, kind) for event in known) == counts
        assert sum(getattr(result.usage, kind) for result in results) == sum(counts)
    assert sum(result.usage.requests or 0 for result in results if result.usage) == len(served)
    is_exact = all(result.cost is not None and result.cost.basis == "exact" for result in results)
    assert is_exact == (len(final) == len(served))


def scene_of(name: str, release: str) -> Scene:
    scene = SCENES[name]
    if name == "fallback":
        lite = "gemini-3.1-flash-lite" if release == "0.54.4" else "gemini-3.5-flash-lite"
        scene.options = {**scene.options, "model": lite}
    return scene


def rows() -> list[Any]:
    """Each scene headless on the newest release; the other transport and the oldest release in the deep rows."""
    made = []
    for release in ("0.61.0", "0.54.4"):
        for transport in ("headless", "warm"):
            for name in SCENES:
                if transport == "warm" and name in HEADLESS_ONLY:
                    continue
                first = (release, transport) == ("0.61.0", "headless") and name not in FURTHER
                marks = () if first else deep
                made.append(
                    pytest.param(release, transport, name, marks=marks, id=f"{release}-{transport}-{name}")
                )
    return made


@pytest.mark.parametrize(("release", "transport", "name"), rows())
def test_hidden_activity_is_reported(make_world: Any, release: str, transport: str, name: str) -> None:
    """The role of each request, and what the CLI did unseen; as many turns as the journal has answers."""
    world, scene = make_world(release), scene_of(name, release)
    (world.cwd / "a.txt").write_text("hello\n")
    reported, results = anyio.run(play, world, scene, transport)
    assert [result.outcome for result in results] == ["success"] * len(scene.prompts), results[-1].failure
    if isinstance(scene.roles, dict):
        assert {role: reported.roles.count(role) for role in set(reported.roles)} == scene.roles
    else:
        assert reported.roles == scene.roles
    assert (reported.found, reported.repeats, reported.turns) == (
        scene.found,
        set(scene.repeats),
        scene.turns,
    )
    discarded = [number for code, number in scene.found if code == "discarded"]
    assert sum(len(result.discarded) for result in results) == len(discarded)


@deep
@pytest.mark.parametrize("transport", ["headless", "warm"])
def test_a_loop_that_a_model_confirms(make_world: Any, transport: str) -> None:
    """Two models are asked; the last answer stays in the conversation, so it was not discarded."""
    scene = Scene(lambda: many_looks(0.95), [], options={**YOLO, "timeout": 120.0})
    reported, results = anyio.run(play, make_world("0.61.0"), scene, transport)
    assert results[0].failure is not None
    assert results[0].failure.kind == "loop"
    first = reported.roles.index("loop_check") + 1
    assert reported.roles[first - 1 : first + 2] == ["loop_check", "loop_check", "main"]
    assert (reported.found, reported.repeats) == ([("loop_recovery", first + 2)], set())
    assert reported.turns == reported.roles.count("main")
