"""Hidden activity of the real CLI is reported: the role of each request, repeats, fallbacks, loop
recovery, compression and discarded answers. Each request is counted once, and the sum is what the
API served."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest

import geminids
from fake_google import FakeGoogle, Fault
from gateway_runs import KEY, options_for
from geminids import Notice, TokensUsed
from geminids.gateway import Call, Reply, Request
from geminids.gateway.script.scripted_upstream import fill

pytestmark = pytest.mark.real
deep = pytest.mark.deep

Answer = Reply | Fault
Script = Callable[[Request], Answer | None]

LOOP = "The same hundred characters come again and again, and nothing new follows: is that a loop, or not? "
# Markdown such as a heading resets the CLI's loop detection. Any other text still counts as the
# same loop.
RECOVERED = Reply(text="# Better")
QUOTA = [
    {
        "@type": "type.googleapis.com/google.rpc.QuotaFailure",
        "violations": [{"quotaId": "GenerateRequestsPerDayPerProjectPerModel"}],
    }
]


def list_folder(number: int = 0) -> Reply:
    return Reply(calls=[Call("list_directory", {"dir_path": ".", "ignore": [str(number)]})])


def call_tool(tool: str, **args: Any) -> Reply:
    return Reply(calls=[Call(tool, args)])


def answer_in_order(*answers: Answer, utility: Script | None = None) -> Script:
    """Answer streaming requests with these answers in order, then with `done`. `utility` answers
    the other requests."""
    remaining = list(answers)

    def script(request: Request) -> Answer | None:
        if request.method != "stream":
            return utility(request) if utility is not None else None
        return remaining.pop(0) if remaining else Reply(text="done")

    return script


def always_text(text: str) -> Script:
    return lambda request: Reply(text=text, method="any")


def answer_by_model(bad: str, answer: Answer) -> Script:
    """Answer requests for models with `bad` in their name with this answer, and others with
    `done`."""
    return answer_streams(lambda request: answer if bad in (request.model or "") else Reply(text="done"))


def answer_streams(pick: Script) -> Script:
    return lambda request: pick(request) if request.method == "stream" else None


def with_subagents(*agents: str, first: tuple[Answer, ...] = ()) -> Script:
    """Script a main conversation that calls these agents at once. Each agent lists the folder and
    completes its task. The `first` answers go to the first requests of agents."""
    remaining = list(first)

    def pick(request: Request) -> Answer:
        task = request.tools.get("complete_task")
        if task is not None:
            if remaining:
                return remaining.pop(0)
            return (
                Reply(calls=[Call("complete_task", fill(task["parametersJsonSchema"]))])
                if request.turn_results
                else list_folder()
            )
        if request.turn_results:
            return Reply(text="done")
        return Reply(calls=[Call("invoke_agent", {"agent_name": name, "prompt": "look"}) for name in agents])

    return answer_streams(pick)


def many_calls(confidence: float) -> Script:
    """Script more than thirty turns, each with another call. The loop check is answered with this
    confidence."""

    def script(request: Request) -> Answer:
        if request.method == "stream":
            count = len(request.turn_results)
            return list_folder(count) if count < 32 else Reply(text="done")
        fields = {"unproductive_state_analysis": "it loops", "unproductive_state_confidence": confidence}
        return Reply(text=json.dumps(fields), method="any")

    return script


@dataclass
class Scene:
    """The API's answers, and what must be reported. `roles` lists the roles in order, or counts the
    requests of each role."""

    script: Callable[[], Script]
    roles: list[str] | dict[str, int]
    notices: list[tuple[str, int]] = field(default_factory=list)
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
REPEATED: dict[str, Any] = {"notices": [("repeat", 2), ("discarded", 1)], "repeats": {2: 1}, "options": AGAIN}
MAIN2 = ["main", "main"]
MAIN3 = ["main", "main", "main"]

SCENES: dict[str, Scene] = {
    "plain": Scene(lambda: answer_in_order(list_folder()), MAIN2, turns=2),
    "router": Scene(answer_in_order, ["router", "main"], options={"model": "auto"}),
    "search": Scene(
        lambda: answer_in_order(call_tool("google_web_search", query="pears"), utility=always_text("found")),
        ["main", "search", "main"],
        turns=2,
        options=YOLO,
    ),
    "fetch": Scene(
        lambda: answer_in_order(
            call_tool("web_fetch", prompt="sum up http://93.184.216.34/a"), utility=always_text("a page")
        ),
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
        lambda: many_calls(0.1), {"main": 33, "loop_check": 1}, turns=33, options={**YOLO, "timeout": 120}
    ),
    "loop": Scene(
        lambda: answer_in_order(Reply(text=[LOOP] * 2000), RECOVERED),
        MAIN2,
        [("loop_recovery", 2), ("discarded", 1)],
    ),
    "loop after a tool": Scene(
        lambda: answer_in_order(list_folder(), Reply(text=[LOOP] * 2000), RECOVERED),
        MAIN3,
        [("loop_recovery", 3), ("discarded", 2)],
        turns=2,
    ),
    "loop of calls": Scene(
        lambda: answer_in_order(*[list_folder()] * 5),
        ["main"] * 6,
        [("loop_recovery", 6), ("discarded", 5)],
        turns=5,
    ),
    "empty": Scene(lambda: answer_in_order(EMPTY), MAIN2, **REPEATED),
    "thoughts alone": Scene(lambda: answer_in_order(THOUGHT), MAIN2, **REPEATED),
    "thoughts after a tool": Scene(
        lambda: answer_in_order(list_folder(), THOUGHT),
        MAIN3,
        [("repeat", 3), ("discarded", 2)],
        {3: 2},
        turns=2,
        options=AGAIN,
    ),
    "malformed call": Scene(
        lambda: answer_in_order(Reply(finish="MALFORMED_FUNCTION_CALL")), MAIN2, **REPEATED
    ),
    "no finish": Scene(
        lambda: answer_in_order(Reply(text="half", finish=None)), MAIN2, unfinished={1}, **REPEATED
    ),
    "max tokens, empty": Scene(lambda: answer_in_order(Reply(finish="MAX_TOKENS")), MAIN2, **REPEATED),
    "no answer": Scene(lambda: answer_in_order(Fault("silent")), MAIN2, [], {2: 1}, options=AGAIN),
    "interrupted": Scene(lambda: answer_in_order(BROKEN), MAIN2, [("discarded", 1)], {2: 1}, options=AGAIN),
    "interrupted after a tool": Scene(
        lambda: answer_in_order(list_folder(), BROKEN),
        MAIN3,
        [("discarded", 2)],
        {3: 2},
        turns=2,
        options=AGAIN,
    ),
    "server error": Scene(lambda: answer_in_order(Reply(status=503)), MAIN2, [], {2: 1}, options=AGAIN),
    "fallback": Scene(
        lambda: answer_by_model("lite", Reply(status=429, error="quota", details=QUOTA)),
        MAIN2,
        [("fallback", 2)],
        {2: 1},
    ),
    "compression": Scene(
        lambda: answer_in_order(
            Reply(text=" ".join(map(str, range(3000)))),
            utility=always_text("<state_snapshot>counted</state_snapshot>"),
        ),
        ["main", "compression", "compression", "main"],
        [("compression", 2)],
        turns=2,
        prompts=("count", "go on"),
        settings={"model": {"compressionThreshold": 0.000001}},
    ),
    "next speaker": Scene(
        lambda: answer_in_order(
            utility=lambda request: Reply(text='{"reasoning": "x", "next_speaker": "user"}', method="any")
        ),
        ["main", "other"],
        settings={"model": {"skipNextSpeakerCheck": False}},
    ),
    "summary of a tool's output": Scene(
        lambda: answer_in_order(
            call_tool("run_shell_command", command="seq 1 20000"), utility=always_text("numbers")
        ),
        ["main", "other", "main"],
        turns=2,
        options=YOLO,
        settings={"model": {"summarizeToolOutput": {"run_shell_command": {"tokenBudget": 100}}}},
    ),
}
# Scenes that are slow or similar to another one: only the deep tests run them.
DEEP_ONLY = {
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
# On ACP the CLI never sends the request for the next speaker.
HEADLESS_ONLY = {"next speaker"}


CODES = ("repeat", "fallback", "loop_recovery", "compression", "discarded")


@dataclass
class Reported:
    """What the events of one or more prompts report about API requests. Request numbers continue
    over the prompts."""

    roles: list[str] = field(default_factory=list)
    notices: list[tuple[str, int]] = field(default_factory=list)
    repeats: set[int] = field(default_factory=set)
    turns: int = 0

    def add(self, events: list[Any], before: int) -> None:
        used = sorted(
            (event for event in events if isinstance(event, TokensUsed)), key=lambda event: event.request or 0
        )
        self.roles += [event.role for event in used]
        self.repeats |= {before + (event.request or 0) for event in used if event.repeat}
        self.turns += len({event.turn for event in used if event.role == "main"})
        self.notices += [
            (event.code, before + (event.request or 0))
            for event in events
            if isinstance(event, Notice) and event.code in CODES
        ]


async def run_scene(world: Any, scene: Scene, transport: str) -> tuple[Reported, list[geminids.Result[Any]]]:
    """Run the prompts of a scene; return what was reported about its requests, and the results."""
    if scene.settings:
        home = world.home / ".gemini"
        home.mkdir(exist_ok=True)
        (home / "settings.json").write_text(json.dumps(scene.settings))
    reported, results = Reported(), list[geminids.Result[Any]]()
    with FakeGoogle(scene.script(), with_key=KEY) as google:
        fields = {"max_attempts": 1, "timeout": 90.0, **scene.options}
        all_events: list[Any] = []
        if transport == "headless":
            for prompt in scene.prompts:
                resume = {"resume": results[-1].session_id} if results else {}
                async with geminids.open_run(prompt, options_for(world, google, **fields, **resume)) as run:
                    events = [event async for event in run]
                reported.add(events, len(reported.roles))
                all_events += events
                results.append(run.result)
        else:
            options = options_for(world, google, **fields)
            async with geminids.Pool(options, size=1) as pool, pool.chat() as chat:
                for prompt in scene.prompts:
                    turn = chat.send(prompt)
                    events = [event async for event in turn]
                    reported.add(events, 0)
                    all_events += events
                    results.append(turn.result)
        google.wait_until(lambda: google.open == 0)
        assert_counts_agree(google, all_events, results, scene.unfinished)
    return reported, results


def assert_counts_agree(
    google: FakeGoogle, events: list[Any], results: list[geminids.Result[Any]], unfinished: set[int]
) -> None:
    """Check that the reported tokens equal what the API served, request by request and in the sum.
    The cost is `exact` unless an answer had no final usage."""
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


def scene_for(name: str, release: str) -> Scene:
    scene = SCENES[name]
    if name == "fallback":
        lite = "gemini-3.1-flash-lite" if release == "0.54.4" else "gemini-3.5-flash-lite"
        scene.options = {**scene.options, "model": lite}
    return scene


def parameters() -> list[Any]:
    """Return each scene headless on the newest release. The other transport and the older release
    are deep tests."""
    params = []
    for release in ("0.61.0", "0.54.4"):
        for transport in ("headless", "warm"):
            for name in SCENES:
                if transport == "warm" and name in HEADLESS_ONLY:
                    continue
                is_quick = (release, transport) == ("0.61.0", "headless") and name not in DEEP_ONLY
                marks = () if is_quick else deep
                params.append(
                    pytest.param(release, transport, name, marks=marks, id=f"{release}-{transport}-{name}")
                )
    return params


@pytest.mark.parametrize(("release", "transport", "name"), parameters())
def test_hidden_activity_is_reported(make_world: Any, release: str, transport: str, name: str) -> None:
    """Events report the role of each request, repeats, discarded answers and the CLI's own actions.
    There are as many turns as main answers in the journal."""
    world, scene = make_world(release), scene_for(name, release)
    (world.cwd / "a.txt").write_text("hello\n")
    reported, results = anyio.run(run_scene, world, scene, transport)
    assert [result.outcome for result in results] == ["success"] * len(scene.prompts), results[-1].failure
    if isinstance(scene.roles, dict):
        assert {role: reported.roles.count(role) for role in set(reported.roles)} == scene.roles
    else:
        assert reported.roles == scene.roles
    assert (reported.notices, reported.repeats, reported.turns) == (
        scene.notices,
        set(scene.repeats),
        scene.turns,
    )
    discarded = [number for code, number in scene.notices if code == "discarded"]
    assert sum(len(result.discarded) for result in results) == len(discarded)


@deep
@pytest.mark.parametrize("transport", ["headless", "warm"])
def test_a_loop_that_a_model_confirms(make_world: Any, transport: str) -> None:
    """If a model confirms a loop, the CLI asks a second model, and the run fails as `loop`. The
    last answer stays in the conversation, so it is not reported as discarded."""
    scene = Scene(lambda: many_calls(0.95), [], options={**YOLO, "timeout": 120.0})
    reported, results = anyio.run(run_scene, make_world("0.61.0"), scene, transport)
    assert results[0].failure is not None
    assert results[0].failure.kind == "loop"
    first = reported.roles.index("loop_check") + 1
    assert reported.roles[first - 1 : first + 2] == ["loop_check", "loop_check", "main"]
    assert (reported.notices, reported.repeats) == ([("loop_recovery", first + 2)], set())
    assert reported.turns == reported.roles.count("main")
