"""Replaying: each request gets its answer, another one a diff, and what is passed over is said."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from asked import STREAM, Fixed, asked, body_of, context, heard, result, text_of, user
from geminids.gateway.cassette.cassette import Cassette, load_cassette, read_cassette
from geminids.gateway.cassette.recording import Recording
from geminids.gateway.cassette.replay import Replaying
from geminids.gateway.request import Request
from geminids.gateway.script.encode import sse
from geminids.gateway.script.script import Call, Reply
from geminids.gateway.script.scripted import Scripted
from geminids.gateway.upstream import Body, Cut, Head, Mismatch, Part, Stall, Upstream, UpstreamFault, Wait

EVENTS = Head(200, {"content-type": "text/event-stream"})
GENERATE = "/v1beta/models/gemini-3.5-flash-lite:generateContent"
COUNT = "/v1beta/models/m:countTokens"
ROUTER = {
    "responseJsonSchema": {"type": "object", "properties": {"model_choice": {"enum": ["pro", "flash"]}}}
}


def cassette(path: Path, inner: Upstream, *requests: Request, secrets: tuple[str, ...] = ()) -> Cassette:
    """A cassette of these requests and what `inner` answered."""
    recording = Recording(inner, path / "c.jsonl", secrets=secrets)
    for request in requests:
        try:
            heard(recording, request)
        except UpstreamFault:
            pass
    recording.close()
    return load_cassette(path / "c.jsonl")


def said(*texts: str, folder: str = "/repo") -> Request:
    return asked(body_of(context(folder), *map(user, texts)))


def script(*texts: str) -> Scripted:
    return Scripted([Reply(text=text) for text in texts])


def test_by_content_and_not_by_order(tmp_path: Path) -> None:
    """Requests may come in another order than they were recorded in."""
    replay = Replaying(cassette(tmp_path, script("one", "two"), said("a"), said("b")))
    assert replay.unused == [1, 2]
    assert "two" in text_of(heard(replay, said("b")))
    assert replay.unused == [1]
    assert "one" in text_of(heard(replay, said("a")))
    assert (replay.unused, replay.remarks) == ([], [])


@pytest.mark.parametrize(
    "line", ["  {}", "  {} (120 bytes)", "-rw------- 1 me me 42240 Nov  6 2020 {}", "?? {}", "/repo/{}"]
)
def test_a_cassette_in_the_folder_is_not_a_part_of_it(tmp_path: Path, line: str) -> None:
    """It has another name while it is written: a listing is the same without it; another file counts."""

    def listed(*names: str) -> Request:
        told = "\n".join(["Directory listing for /repo:", *(line.format(name) for name in names)])
        return asked(body_of(context("/repo"), user("a"), result("list_directory", told)))

    made = cassette(tmp_path, script("one"), listed("a.py", "c.jsonl.0a1b2c3d.part", "z.py"))
    assert "one" in text_of(heard(Replaying(made), listed("a.py", "c.jsonl", "z.py")))
    assert "one" in text_of(heard(Replaying(made), listed("a.py", "z.py")))
    with pytest.raises(Mismatch):
        heard(Replaying(made), listed("a.py", "other-c.jsonl", "z.py"))


def test_the_same_request_twice(tmp_path: Path) -> None:
    """A request that was tried again is answered as it was: first the error, then the answer; a third is too many."""
    inner = Scripted([Reply(status=429, error="slow"), Reply(text="now")])
    replay = Replaying(cassette(tmp_path, inner, said("a"), said("a")))
    first, second = heard(replay, said("a")), heard(replay, said("a"))
    assert isinstance(first[0], Head)
    assert first[0].status == 429
    assert "now" in text_of(second)
    with pytest.raises(Mismatch, match="it equals number 2, which has been replayed already"):
        heard(replay, said("a"))


@pytest.mark.parametrize(
    "parts",
    [
        (EVENTS, Body(sse({"a": 1})), Body(sse({"b": "\u2028"}))),
        (EVENTS, Body(sse(1)), Body(b'data: {"a'), Cut()),
        (EVENTS, Body(sse(1)), Stall()),
        (EVENTS, Body(b"data: {nonsense\n\n")),
        (Head(500, {"content-type": "text/html", "content-length": "5"}), Body(b"<html")),
        (Head(200, {"content-type": "x", "content-length": "2"}), Body(b"\xff\xfe")),
        (
            Head(429, {"content-type": "application/json", "retry-after": "3", "content-length": "12"}),
            Body(b'{"error":{}}'),
        ),
    ],
)
def test_answers_are_as_they_were(tmp_path: Path, parts: tuple[Part, ...]) -> None:
    """Status, type, body and ending are those of the recording; nothing waits."""
    replay = Replaying(cassette(tmp_path, Fixed(*parts), said("a")))
    again = heard(replay, said("a"))
    head, first = again[0], parts[0]
    assert isinstance(head, Head)
    assert isinstance(first, Head)
    assert (head.status, head.headers, again[1:]) == (first.status, first.headers, list(parts[1:]))


def test_faults_are_as_they_were(tmp_path: Path) -> None:
    """A connection that broke breaks again, after what had come."""
    for fault in (UpstreamFault("dns", "no such host"), UpstreamFault("cut", "cut off")):
        replay = Replaying(cassette(tmp_path, Fixed(EVENTS, Body(sse(1)), fault), said("a")))
        with pytest.raises(UpstreamFault) as caught:
            heard(replay, said("a"))
        assert (caught.value.kind, caught.value.message) == (fault.kind, fault.message)


def test_another_folder(tmp_path: Path) -> None:
    """What the model said about files of the recorded folder, it says about those of this one."""
    inner = Scripted(
        [Reply(calls=[Call("read_file", {"file_path": "/repo/a.py"})]), Reply(text="not /repository")]
    )
    replay = Replaying(cassette(tmp_path, inner, said("a"), said("a", "b")))
    assert '"file_path":"/work/there/a.py"' in text_of(heard(replay, said("a", folder="/work/there")))
    assert "not /repository" in text_of(heard(replay, said("a", "b", folder="/work/there")))
    assert replay.remarks == []


def on_another_day(path: Path, day: str) -> Cassette:
    """The same cassette, as if it had been recorded then."""
    at = datetime.fromisoformat(f"{day}T12:00:00+00:00").timestamp()
    lines = [json.loads(line) for line in (path / "c.jsonl").read_text().splitlines()]
    lines = [{**line, "made": f"{day}T12:00:00Z"} if "made" in line else line for line in lines]
    lines = [{**line, "at": at} if "at" in line else line for line in lines]
    return read_cassette("\n".join(map(json.dumps, lines)).encode())


def test_another_day(tmp_path: Path) -> None:
    """A prompt with the day of the run in it is the same on the day of the replay; another day is another prompt."""
    cassette(tmp_path, script("one"), said("news of 2020-02-03?"))
    made = on_another_day(tmp_path, "2020-02-03")
    today = datetime.now(UTC).strftime("%Y-%m-%d")
    assert "one" in text_of(heard(Replaying(made), said(f"news of {today}?")))
    with pytest.raises(Mismatch):
        heard(Replaying(made), said("news of 2020-02-04?"))


def test_fixed_words_stay_the_same(tmp_path: Path) -> None:
    """What is said in the very same words matches in any folder and on any day: a prompt that names the day and the
    folder of the recording, one that names a day which has come now, and a path that the model said in two pieces."""
    today = datetime.now(UTC).strftime("%Y-%m-%d")
    text = f"what was on 2020-02-03 in /repo/a.py? And what will be on {today}?"
    answer = Scripted([Reply(text=["see /re", "po/a.py of 2020-02-03"]), Reply(text="two")])
    spoken = {"role": "model", "parts": [{"text": "see /repo/a.py of 2020-02-03"}]}
    for here in ("/repo", "/work/there"):
        cassette(
            tmp_path, answer, said(text), asked(body_of(context("/repo"), user(text), spoken, user("b")))
        )
        replay = Replaying(on_another_day(tmp_path, "2020-02-03"))
        heard(replay, said(text, folder=here))
        heard(replay, asked(body_of(context(here), user(text), spoken, user("b"))))
        assert replay.remarks == []


def test_a_folder_in_the_recorded_one(tmp_path: Path) -> None:
    """Replayed below the folder of the recording, files keep their places."""
    made = cassette(tmp_path, script("ok"), said("see /repo/sub/a.py"))
    assert "ok" in text_of(heard(Replaying(made), said("see /repo/sub/sub/a.py", folder="/repo/sub")))


def test_a_folder_that_only_the_caller_knows(tmp_path: Path) -> None:
    """Requests without an introduction move too, where the folder is named by the caller."""
    made = cassette(tmp_path, script("/repo/x", "ok"), said("a"), asked(body_of(user("see /repo/a"))))
    replay = Replaying(made, places={"/work/there": "<workspace>"})
    assert "ok" in text_of(heard(replay, asked(body_of(user("see /work/there/a")))))


def test_another_release(tmp_path: Path) -> None:
    """Another system instruction, model or set of tools is answered for the same conversation, and said once."""
    made = cassette(tmp_path, script("one", "two"), said("a"), said("a", "b"))
    heard_of: list[str] = []
    replay = Replaying(made, on_remark=heard_of.append)
    path = STREAM.replace("3.8", "2.5")
    for texts, answer in ((("a",), "one"), (("a", "b"), "two")):
        body = body_of(context("/repo"), *map(user, texts)) | {
            "systemInstruction": {"parts": [{"text": "Other."}]}
        }
        assert answer in text_of(heard(replay, asked(body, path)))
    (remark,) = replay.remarks
    assert heard_of == [remark]
    assert (
        "differs from the cassette (recorded with CLI 0.61.0) in its model and system instruction" in remark
    )


def test_the_same_in_all_goes_first(tmp_path: Path) -> None:
    """Where one exchange is the same in all and an earlier one in its conversation alone, the former is taken."""
    other = asked(body_of(context("/repo"), user("a"), toolConfig={"x": 1}))
    replay = Replaying(cassette(tmp_path, script("other", "same"), other, said("a")))
    assert "same" in text_of(heard(replay, said("a")))
    assert replay.remarks == []


def test_a_changed_prompt_gives_a_diff(tmp_path: Path) -> None:
    """The nearest exchange is named, and what differs is shown, with what to do."""
    made = cassette(
        tmp_path, script("x", "y"), said("fix a.py\nand be brief"), said("fix a.py\nand be brief", "more")
    )
    with pytest.raises(Mismatch) as caught:
        heard(Replaying(made), said("fix b.py\nand be brief"))
    lines = caught.value.message.splitlines()
    assert lines[0] == f"a request is not in the cassette {made.name}. It differs from number 1 of 2:"
    assert lines[1:] == [
        "--- recorded",
        "+++ now",
        "@@ -1,2 +1,2 @@",
        "-user: fix a.py",
        "+user: fix b.py",
        "   and be brief",
    ]
    assert "--record" in caught.value.hint


def test_a_changed_file_gives_a_diff(tmp_path: Path) -> None:
    """What a tool gave is shown where it differs."""

    def turn(output: str) -> Request:
        return asked(body_of(context("/repo"), user("go"), result("read_file", output)))

    made = cassette(tmp_path, script("x", "y"), said("go"), turn("x = 1\ny = 2\n"))
    with pytest.raises(Mismatch) as caught:
        heard(Replaying(made), turn("x = 1\ny = 3\n"))
    assert "differs from number 2 of 2" in caught.value.message
    assert "-  y = 2\n+  y = 3" in caught.value.message


def test_a_diff_can_be_shown_to_anybody(tmp_path: Path) -> None:
    """It is short, has no secret and no control characters, and shows where long lines differ."""
    secret = "hunter2-hunter2"
    long = "word " * 500
    made = cassette(tmp_path, script("x"), said("a\n" * 300 + long + "one"), secrets=(secret,))
    with pytest.raises(Mismatch) as caught:
        heard(Replaying(made, secrets=(secret,)), said("a\n" * 300 + long + f"two {secret} \x1b[31m"))
    message = caught.value.message
    assert len(message.splitlines()) <= 42
    assert "+  " + long[-100:] not in message.splitlines()
    assert "two *** �[31m" in message
    assert secret not in message
    with pytest.raises(Mismatch) as caught:
        heard(Replaying(made), said("\n".join(map(str, range(500)))))
    assert "more lines" in caught.value.message
    assert len(caught.value.message.splitlines()) <= 43


def test_beyond_the_end(tmp_path: Path) -> None:
    """When all has been replayed, a further request is a mismatch that says so."""
    replay = Replaying(cassette(tmp_path, script("x"), said("a")))
    heard(replay, said("a"))
    with pytest.raises(Mismatch, match=r"all its answers are used \(of 1 requests\)"):
        heard(replay, said("a", "b"))
    (tmp_path / "c.jsonl").unlink()
    with pytest.raises(Mismatch, match="it is empty"):
        heard(Replaying(cassette(tmp_path, Scripted())), said("a"))


def test_errands_that_were_not_recorded(tmp_path: Path) -> None:
    """The router, and counts of tokens, get a stand-in where the cassette has none, and that is said."""
    replay = Replaying(cassette(tmp_path, script("x"), said("a")))
    body = body_of(user("a"), generationConfig=ROUTER)
    answer = json.loads(text_of(heard(replay, asked(body, GENERATE))))
    assert json.loads(answer["candidates"][0]["content"]["parts"][0]["text"]) == {"model_choice": "flash"}
    assert json.loads(text_of(heard(replay, asked(body_of(user("a")), COUNT))))["totalTokens"] > 0
    assert replay.remarks == [
        "a utility request of the CLI is not in the cassette: answered with a default reply",
        "a count of tokens is not in the cassette: answered with a default reply",
    ]
    assert replay.unused == [1]


def test_errands_that_were_recorded(tmp_path: Path) -> None:
    """What was recorded goes before any stand-in."""
    body = body_of(user("a"), generationConfig=ROUTER)
    inner = Scripted([Reply(text='{"model_choice": "pro"}', method="generate")])
    replay = Replaying(cassette(tmp_path, inner, asked(body, GENERATE), asked(body_of(user("a")), COUNT)))
    assert "pro" in text_of(heard(replay, asked(body, GENERATE)))
    heard(replay, asked(body_of(user("a")), COUNT))
    assert (replay.remarks, replay.unused) == ([], [])


def test_an_errand_whose_answer_is_words(tmp_path: Path) -> None:
    """Nothing is made up for what the user would read: a summary that was not recorded is a mismatch."""
    replay = Replaying(cassette(tmp_path, script("x"), said("a")))
    with pytest.raises(Mismatch):
        heard(replay, asked(body_of(user("summarise")), GENERATE))


def test_secrets_of_the_recording_and_of_the_replay(tmp_path: Path) -> None:
    """A tool that prints its own secret here gives what the recording masked there."""

    def turn(printed: str) -> Request:
        return asked(body_of(context("/repo"), user("go"), result("sh", f"KEY={printed}")))

    made = cassette(tmp_path, script("ok"), turn("first-secret"), secrets=("first-secret",))
    assert "ok" in text_of(heard(Replaying(made, secrets=("other-secret",)), turn("other-secret")))
    with pytest.raises(Mismatch):
        heard(Replaying(made), turn("no secret"))


def test_time_is_not_replayed_unless_asked_for(tmp_path: Path) -> None:
    """By default nothing waits; with `pace` the answer takes as long as it took."""
    path = tmp_path / "c.jsonl"
    cassette(tmp_path, Scripted([Reply(text=["a", "b", "c"])]), said("a"))
    text = path.read_text()
    line: dict[str, Any] = json.loads(text.splitlines()[-1])
    line["answer"] |= {"first_ms": 200, "ms": 1200}
    path.write_text("\n".join([*text.splitlines()[:-1], json.dumps(line)]))
    assert not [part for part in heard(Replaying(load_cassette(path)), said("a")) if isinstance(part, Wait)]
    waits = [
        part.seconds
        for part in heard(Replaying(load_cassette(path), pace=True), said("a"))
        if isinstance(part, Wait)
    ]
    assert waits == [0.2, 0.5, 0.5]


def test_an_edited_answer(tmp_path: Path) -> None:
    """Answers are there to be edited: what the file says is what is replayed."""
    path = tmp_path / "c.jsonl"
    cassette(tmp_path, script("Hello"), said("a"))
    path.write_text(path.read_text().replace('"Hello"', '"Goodbye"'))
    assert "Goodbye" in text_of(heard(Replaying(load_cassette(path)), said("a")))


def test_a_long_conversation(tmp_path: Path) -> None:
    """Two hundred requests of a growing conversation are matched one by one, the last as the first."""
    texts = [f"{n} " + "x" * 500 for n in range(200)]
    requests = [said(*texts[: n + 1]) for n in range(200)]
    made = cassette(tmp_path, script(*(f"answer {n}." for n in range(200))), *requests)
    assert (tmp_path / "c.jsonl").stat().st_size < 600_000
    replay = Replaying(made)
    for n in (199, 0, 100):
        assert f"answer {n}." in text_of(heard(replay, requests[n]))


# Other forms of the API.

VERTEX = "/v1beta1/publishers/google/models/gemini-3.8-flash:streamGenerateContent?alt=sse"
TOKEN = "geminids-run-" + "0123456789abcdef" * 3
LOGIN = "ya29.not-a-real-token"


def account(call: str, body: Any = None, *, verb: str = "POST", token: str = TOKEN) -> Request:
    """A request of the CLI with an account login."""
    data = b"" if body is None else json.dumps(body).encode()
    headers = {"authorization": f"Bearer {LOGIN}", "user-agent": "GeminiCLI-tui/0.61.0/m (linux)"}
    return Request.read(1, 0.0, verb, f"/{token}/v1internal{call}", headers, data)


def wrapped(*texts: str, folder: str = "/repo", run: str = "1", **more: Any) -> Request:
    inner = {**body_of(context(folder), *map(user, texts), **more), "session_id": f"session of run {run}"}
    ids = {"project": f"project-{run}", "user_prompt_id": f"{run}########0"}
    return account(":streamGenerateContent?alt=sse", {"model": "gemini-3.8-flash", **ids, "request": inner})


def test_vertex(tmp_path: Path) -> None:
    """A run with Vertex is recorded and replayed like any other."""
    request = asked(body_of(context("/repo"), user("a")), VERTEX)
    replay = Replaying(cassette(tmp_path, script("one"), request))
    assert "one" in text_of(heard(replay, asked(body_of(context("/repo"), user("a")), VERTEX)))
    assert (replay.unused, replay.remarks) == ([], [])


def test_code_assist(tmp_path: Path) -> None:
    """Another run has another session, project and folder: what was said decides."""
    first, second = wrapped("a"), wrapped("a", "b")
    made = cassette(tmp_path, Scripted([Reply(text="in /repo/x"), Reply(text="two")]), first, second)
    assert (made.header.cli, made.header.model) == ("0.61.0", "gemini-3.8-flash")
    assert [exchange.body for exchange in made.exchanges] == [first.body, second.body]
    replay = Replaying(made)
    answer = text_of(heard(replay, wrapped("a", folder="/other", run="2")))
    assert answer.startswith('data: {"response":{') and "in /other/x" in answer
    assert "two" in text_of(heard(replay, wrapped("a", "b", folder="/other", run="2")))
    assert (replay.unused, replay.remarks) == ([], [])
    with pytest.raises(Mismatch, match="user: c"):
        heard(Replaying(made), wrapped("c"))


def test_a_wrapped_conversation_is_written_once(tmp_path: Path) -> None:
    """The prompt, the tools and what was said before are not repeated for each request."""
    cassette(tmp_path, script("one", "two"), wrapped("a"), wrapped("a", "b"))
    text = (tmp_path / "c.jsonl").read_text()
    assert text.count('"kind":"system"') == 1
    assert text.count("We are setting up the context") == 1


def test_no_token_and_no_login_in_the_file(tmp_path: Path) -> None:
    """Neither the run's token nor the CLI's login is in a cassette, not even where a tool has printed them."""
    body = {"model": "m", "request": body_of(user("a"), result("shell", f"{TOKEN} {LOGIN}"))}
    request = account(":streamGenerateContent?alt=sse", body)
    inner = Scripted([Reply(text=["so it is ya29.not-", "a-real-token"])])
    made = cassette(tmp_path, inner, account(":loadCodeAssist", {}), request)
    text = (tmp_path / "c.jsonl").read_text()
    assert "geminids-run" not in text and "ya29" not in text
    assert '"path":"/v1internal:loadCodeAssist"' in text
    answer = text_of(heard(Replaying(made), request))
    assert '"so it is "' in answer and '"***"' in answer


def test_what_is_asked_about_an_account(tmp_path: Path) -> None:
    """Each call has its own answer, however often and whoever asks; it counts neither as used up nor as unused."""
    answers = {
        "loadCodeAssist": {"currentTier": {"id": "free-tier"}},
        "onboardUser": {"name": "operations/o1"},
        "retrieveUserQuota": {"buckets": []},
    }

    class Account:
        async def answer(self, request: Request):  # type: ignore[no-untyped-def]
            call = request.path.rpartition(":")[2]
            yield Head(200, {"content-type": "application/json"})
            yield Body(json.dumps(answers.get(call, {"done": True})).encode())

    calls = [account(f":{call}", {"metadata": {"v": 1}}) for call in answers]
    operation = account("/operations/o1", verb="GET")
    replay = Replaying(cassette(tmp_path, Account(), *calls, operation))
    for _ in range(2):
        for call, answer in reversed(answers.items()):
            assert json.loads(text_of(heard(replay, account(f":{call}", {"metadata": {"v": 2}})))) == answer
        assert json.loads(text_of(heard(replay, account("/operations/o1", verb="GET")))) == {"done": True}
    assert (Replaying(load_cassette(tmp_path / "c.jsonl")).unused, replay.remarks) == ([], [])


def test_an_account_call_that_was_not_recorded(tmp_path: Path) -> None:
    """A call that another release makes is answered, and that is said."""
    replay = Replaying(cassette(tmp_path, script("one"), wrapped("a")))
    assert json.loads(text_of(heard(replay, account(":fetchAdminControls", {})))) == {}
    assert any("/v1internal:fetchAdminControls" in remark for remark in replay.remarks)


def test_telemetry_is_not_recorded(tmp_path: Path) -> None:
    """It comes whenever the CLI has a moment: it passes, and is answered in a replay without a word."""
    metrics = account(":recordCodeAssistMetrics", {"metrics": [{"timestamp": "now"}]})
    made = cassette(tmp_path, script("one"), metrics, wrapped("a"))
    assert [exchange.path for exchange in made.exchanges] == ["/v1internal:streamGenerateContent?alt=sse"]
    replay = Replaying(made)
    assert json.loads(text_of(heard(replay, metrics))) == {}
    assert replay.remarks == []
