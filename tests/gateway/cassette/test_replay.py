"""Tests of replaying: a recorded request gets its answer, and an unknown one a diff."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gateway_requests import (
    STREAM,
    FixedUpstream,
    body_text,
    collect_parts,
    make_body,
    make_request,
    session_context,
    tool_result_content,
    user_content,
)
from geminids.gateway.cassette.cassette import Cassette, load_cassette, read_cassette
from geminids.gateway.cassette.recording import Recording
from geminids.gateway.cassette.replay import Replaying
from geminids.gateway.request import Request
from geminids.gateway.script.encode import sse
from geminids.gateway.script.replies import Call, Reply
from geminids.gateway.script.scripted_upstream import Scripted
from geminids.gateway.upstream import Body, Cut, Hang, Head, Mismatch, Part, Upstream, UpstreamFault, Wait

EVENTS = Head(200, {"content-type": "text/event-stream"})
GENERATE = "/v1beta/models/gemini-3.5-flash-lite:generateContent"
COUNT = "/v1beta/models/m:countTokens"
ROUTER = {
    "responseJsonSchema": {"type": "object", "properties": {"model_choice": {"enum": ["pro", "flash"]}}}
}


def record_cassette(
    path: Path, inner: Upstream, *requests: Request, secrets: tuple[str, ...] = ()
) -> Cassette:
    """Record these requests and the answers of `inner`, and return the cassette."""
    recording = Recording(inner, path / "c.jsonl", secrets=secrets, overwrite=True)
    for request in requests:
        try:
            collect_parts(recording, request)
        except UpstreamFault:
            pass
    recording.close()
    return load_cassette(path / "c.jsonl")


def prompt_request(*texts: str, folder: str = "/repo") -> Request:
    return make_request(make_body(session_context(folder), *map(user_content, texts)))


def script(*texts: str) -> Scripted:
    return Scripted([Reply(text=text) for text in texts])


def test_requests_match_by_content(tmp_path: Path) -> None:
    """Requests are matched by content, so they may come in another order than recorded."""
    replay = Replaying(
        record_cassette(tmp_path, script("one", "two"), prompt_request("a"), prompt_request("b"))
    )
    assert replay.unused == [1, 2]
    assert "two" in body_text(collect_parts(replay, prompt_request("b")))
    assert replay.unused == [1]
    assert "one" in body_text(collect_parts(replay, prompt_request("a")))
    assert (replay.unused, replay.remarks) == ([], [])


@pytest.mark.parametrize(
    "line", ["  {}", "  {} (120 bytes)", "-rw------- 1 me me 42240 Nov  6 2020 {}", "?? {}", "/repo/{}"]
)
def test_cassette_file_is_ignored_in_listings(tmp_path: Path, line: str) -> None:
    """The cassette file and its `.part` file are ignored in directory listings.
    Any other additional file is a mismatch."""

    def listed(*names: str) -> Request:
        listing = "\n".join(["Directory listing for /repo:", *(line.format(name) for name in names)])
        return make_request(
            make_body(
                session_context("/repo"), user_content("a"), tool_result_content("list_directory", listing)
            )
        )

    cassette = record_cassette(tmp_path, script("one"), listed("a.py", "c.jsonl.0a1b2c3d.part", "z.py"))
    assert "one" in body_text(collect_parts(Replaying(cassette), listed("a.py", "c.jsonl", "z.py")))
    assert "one" in body_text(collect_parts(Replaying(cassette), listed("a.py", "z.py")))
    with pytest.raises(Mismatch):
        collect_parts(Replaying(cassette), listed("a.py", "other-c.jsonl", "z.py"))


def test_repeated_request_gets_its_answers_in_order(tmp_path: Path) -> None:
    """A repeated request gets the recorded answers in order. One more repeat is a mismatch."""
    inner = Scripted([Reply(status=429, error="slow"), Reply(text="now")])
    replay = Replaying(record_cassette(tmp_path, inner, prompt_request("a"), prompt_request("a")))
    first, second = collect_parts(replay, prompt_request("a")), collect_parts(replay, prompt_request("a"))
    assert isinstance(first[0], Head)
    assert first[0].status == 429
    assert "now" in body_text(second)
    with pytest.raises(
        Mismatch, match="it is equal to request number 2, whose answer has already been replayed"
    ):
        collect_parts(replay, prompt_request("a"))


@pytest.mark.parametrize(
    "parts",
    [
        (EVENTS, Body(sse({"a": 1})), Body(sse({"b": "\u2028"}))),
        (EVENTS, Body(sse(1)), Body(b'data: {"a'), Cut()),
        (EVENTS, Body(sse(1)), Hang()),
        (EVENTS, Body(b"data: {nonsense\n\n")),
        (Head(500, {"content-type": "text/html", "content-length": "5"}), Body(b"<html")),
        (Head(200, {"content-type": "x", "content-length": "2"}), Body(b"\xff\xfe")),
        (
            Head(429, {"content-type": "application/json", "retry-after": "3", "content-length": "12"}),
            Body(b'{"error":{}}'),
        ),
    ],
)
def test_answers_are_replayed_exactly(tmp_path: Path, parts: tuple[Part, ...]) -> None:
    """A replay has the status, headers, body and ending of the recorded answer, without waiting."""
    replay = Replaying(record_cassette(tmp_path, FixedUpstream(*parts), prompt_request("a")))
    again = collect_parts(replay, prompt_request("a"))
    head, first = again[0], parts[0]
    assert isinstance(head, Head)
    assert isinstance(first, Head)
    assert (head.status, head.headers, again[1:]) == (first.status, first.headers, list(parts[1:]))


def test_faults_are_replayed(tmp_path: Path) -> None:
    """A recorded fault is raised again, with the same kind and message."""
    for fault in (UpstreamFault("dns", "no such host"), UpstreamFault("cut", "cut off")):
        replay = Replaying(
            record_cassette(tmp_path, FixedUpstream(EVENTS, Body(sse(1)), fault), prompt_request("a"))
        )
        with pytest.raises(UpstreamFault) as caught:
            collect_parts(replay, prompt_request("a"))
        assert (caught.value.kind, caught.value.message) == (fault.kind, fault.message)


def test_paths_are_moved_to_the_current_folder(tmp_path: Path) -> None:
    """Paths of the recorded folder in an answer become paths of the current folder."""
    inner = Scripted(
        [Reply(calls=[Call("read_file", {"file_path": "/repo/a.py"})]), Reply(text="not /repository")]
    )
    replay = Replaying(record_cassette(tmp_path, inner, prompt_request("a"), prompt_request("a", "b")))
    assert '"file_path":"/work/there/a.py"' in body_text(
        collect_parts(replay, prompt_request("a", folder="/work/there"))
    )
    assert "not /repository" in body_text(
        collect_parts(replay, prompt_request("a", "b", folder="/work/there"))
    )
    assert replay.remarks == []


def with_recording_date(path: Path, day: str) -> Cassette:
    """Return the recorded cassette as if it had been recorded on `day`."""
    at = datetime.fromisoformat(f"{day}T12:00:00+00:00").timestamp()
    lines = [json.loads(line) for line in (path / "c.jsonl").read_text().splitlines()]
    lines = [{**line, "made": f"{day}T12:00:00Z"} if "made" in line else line for line in lines]
    lines = [{**line, "at": at} if "at" in line else line for line in lines]
    return read_cassette("\n".join(map(json.dumps, lines)).encode())


def test_date_of_the_recording_matches_today(tmp_path: Path) -> None:
    """In a prompt, the date of the recording matches today's date. Other dates do not match."""
    record_cassette(tmp_path, script("one"), prompt_request("news of 2020-02-03?"))
    cassette = with_recording_date(tmp_path, "2020-02-03")
    today = datetime.now(UTC).strftime("%Y-%m-%d")
    assert "one" in body_text(collect_parts(Replaying(cassette), prompt_request(f"news of {today}?")))
    with pytest.raises(Mismatch):
        collect_parts(Replaying(cassette), prompt_request("news of 2020-02-04?"))


def test_identical_prompt_matches_anywhere(tmp_path: Path) -> None:
    """An identical prompt matches in any folder and on any day, even if it names dates or paths.
    The same holds for a path that the model sent in two pieces."""
    today = datetime.now(UTC).strftime("%Y-%m-%d")
    text = f"what was on 2020-02-03 in /repo/a.py? And what will be on {today}?"
    answer = Scripted([Reply(text=["see /re", "po/a.py of 2020-02-03"]), Reply(text="two")])
    model_text = {"role": "model", "parts": [{"text": "see /repo/a.py of 2020-02-03"}]}
    for here in ("/repo", "/work/there"):
        record_cassette(
            tmp_path,
            answer,
            prompt_request(text),
            make_request(
                make_body(session_context("/repo"), user_content(text), model_text, user_content("b"))
            ),
        )
        replay = Replaying(with_recording_date(tmp_path, "2020-02-03"))
        collect_parts(replay, prompt_request(text, folder=here))
        collect_parts(
            replay,
            make_request(make_body(session_context(here), user_content(text), model_text, user_content("b"))),
        )
        assert replay.remarks == []


def test_replay_in_a_subfolder(tmp_path: Path) -> None:
    """A replay in a subfolder of the recorded folder maps paths correctly."""
    cassette = record_cassette(tmp_path, script("ok"), prompt_request("see /repo/sub/a.py"))
    assert "ok" in body_text(
        collect_parts(Replaying(cassette), prompt_request("see /repo/sub/sub/a.py", folder="/repo/sub"))
    )


def test_folder_from_the_caller(tmp_path: Path) -> None:
    """For requests without an introduction, the caller can name the current folder."""
    cassette = record_cassette(
        tmp_path,
        script("/repo/x", "ok"),
        prompt_request("a"),
        make_request(make_body(user_content("see /repo/a"))),
    )
    replay = Replaying(cassette, places={"/work/there": "<workspace>"})
    assert "ok" in body_text(
        collect_parts(replay, make_request(make_body(user_content("see /work/there/a"))))
    )


def test_other_model_or_instruction_is_a_remark(tmp_path: Path) -> None:
    """A request that differs only in model, system instruction or tools is answered.
    The difference is reported once as a remark."""
    cassette = record_cassette(tmp_path, script("one", "two"), prompt_request("a"), prompt_request("a", "b"))
    remarks: list[str] = []
    replay = Replaying(cassette, on_remark=remarks.append)
    path = STREAM.replace("3.8", "2.5")
    for texts, answer in ((("a",), "one"), (("a", "b"), "two")):
        body = make_body(session_context("/repo"), *map(user_content, texts)) | {
            "systemInstruction": {"parts": [{"text": "Other."}]}
        }
        assert answer in body_text(collect_parts(replay, make_request(body, path)))
    (remark,) = replay.remarks
    assert remarks == [remark]
    assert (
        "differs from the cassette (recorded with CLI 0.61.0) in its model and system instruction" in remark
    )


def test_exact_match_is_preferred(tmp_path: Path) -> None:
    """An exchange that is equal in everything is preferred to an earlier
    one with equal conversation."""
    other = make_request(make_body(session_context("/repo"), user_content("a"), toolConfig={"x": 1}))
    replay = Replaying(record_cassette(tmp_path, script("other", "same"), other, prompt_request("a")))
    assert "same" in body_text(collect_parts(replay, prompt_request("a")))
    assert replay.remarks == []


def test_a_changed_prompt_gives_a_diff(tmp_path: Path) -> None:
    """The mismatch names the most similar exchange, shows a diff, and its hint names `--record`."""
    cassette = record_cassette(
        tmp_path,
        script("x", "y"),
        prompt_request("fix a.py\nand be brief"),
        prompt_request("fix a.py\nand be brief", "more"),
    )
    with pytest.raises(Mismatch) as caught:
        collect_parts(Replaying(cassette), prompt_request("fix b.py\nand be brief"))
    lines = caught.value.message.splitlines()
    assert lines[0] == (
        f"a request is not in the cassette {cassette.name}. "
        "It differs from the most similar recorded request, number 1 of 2:"
    )
    assert lines[1:] == [
        "--- recorded",
        "+++ now",
        "@@ -1,2 +1,2 @@",
        "-user: fix a.py",
        "+user: fix b.py",
        "   and be brief",
    ]
    assert "--record" in caught.value.hint


def test_changed_tool_result_gives_a_diff(tmp_path: Path) -> None:
    """The diff shows the lines of a tool result that changed."""

    def turn(output: str) -> Request:
        return make_request(
            make_body(session_context("/repo"), user_content("go"), tool_result_content("read_file", output))
        )

    cassette = record_cassette(tmp_path, script("x", "y"), prompt_request("go"), turn("x = 1\ny = 2\n"))
    with pytest.raises(Mismatch) as caught:
        collect_parts(Replaying(cassette), turn("x = 1\ny = 3\n"))
    assert "differs from the most similar recorded request, number 2 of 2" in caught.value.message
    assert "-  y = 2\n+  y = 3" in caught.value.message


def test_diff_is_short_and_safe(tmp_path: Path) -> None:
    """A diff has a limited length and contains no secrets and no control characters."""
    secret = "hunter2-hunter2"
    long = "word " * 500
    cassette = record_cassette(
        tmp_path, script("x"), prompt_request("a\n" * 300 + long + "one"), secrets=(secret,)
    )
    with pytest.raises(Mismatch) as caught:
        collect_parts(
            Replaying(cassette, secrets=(secret,)),
            prompt_request("a\n" * 300 + long + f"two {secret} \x1b[31m"),
        )
    message = caught.value.message
    assert len(message.splitlines()) <= 42
    assert "+  " + long[-100:] not in message.splitlines()
    assert "two *** �[31m" in message
    assert secret not in message
    with pytest.raises(Mismatch) as caught:
        collect_parts(Replaying(cassette), prompt_request("\n".join(map(str, range(500)))))
    assert "more lines" in caught.value.message
    assert len(caught.value.message.splitlines()) <= 43


def test_request_after_the_last_answer(tmp_path: Path) -> None:
    """A request after all answers are used is a mismatch that says so.
    An empty cassette is named as the reason, too."""
    replay = Replaying(record_cassette(tmp_path, script("x"), prompt_request("a")))
    collect_parts(replay, prompt_request("a"))
    with pytest.raises(Mismatch, match=r"all recorded answers have already been replayed \(requests: 1\)"):
        collect_parts(replay, prompt_request("a", "b"))
    (tmp_path / "c.jsonl").unlink()
    with pytest.raises(Mismatch, match="the cassette is empty"):
        collect_parts(Replaying(record_cassette(tmp_path, Scripted())), prompt_request("a"))


def test_unrecorded_utility_requests(tmp_path: Path) -> None:
    """A router request or token count that is not recorded gets a default reply and a remark."""
    replay = Replaying(record_cassette(tmp_path, script("x"), prompt_request("a")))
    body = make_body(user_content("a"), generationConfig=ROUTER)
    answer = json.loads(body_text(collect_parts(replay, make_request(body, GENERATE))))
    assert json.loads(answer["candidates"][0]["content"]["parts"][0]["text"]) == {"model_choice": "flash"}
    assert (
        json.loads(body_text(collect_parts(replay, make_request(make_body(user_content("a")), COUNT))))[
            "totalTokens"
        ]
        > 0
    )
    assert replay.remarks == [
        "a utility request of the CLI is not in the cassette: sent a default reply",
        "a count of tokens is not in the cassette: sent a default reply",
    ]
    assert replay.unused == [1]


def test_recorded_utility_requests(tmp_path: Path) -> None:
    """A recorded answer to a utility request is preferred to a default reply."""
    body = make_body(user_content("a"), generationConfig=ROUTER)
    inner = Scripted([Reply(text='{"model_choice": "pro"}', method="generate")])
    replay = Replaying(
        record_cassette(
            tmp_path, inner, make_request(body, GENERATE), make_request(make_body(user_content("a")), COUNT)
        )
    )
    assert "pro" in body_text(collect_parts(replay, make_request(body, GENERATE)))
    collect_parts(replay, make_request(make_body(user_content("a")), COUNT))
    assert (replay.remarks, replay.unused) == ([], [])


def test_a_utility_request_for_text_is_a_mismatch(tmp_path: Path) -> None:
    """A utility request for text that was not recorded is a mismatch,
    because the user would read it."""
    replay = Replaying(record_cassette(tmp_path, script("x"), prompt_request("a")))
    with pytest.raises(Mismatch):
        collect_parts(replay, make_request(make_body(user_content("summarise")), GENERATE))


def test_masked_secrets_match(tmp_path: Path) -> None:
    """A secret of the replay matches a masked secret of the recording."""

    def turn(printed: str) -> Request:
        return make_request(
            make_body(
                session_context("/repo"), user_content("go"), tool_result_content("sh", f"KEY={printed}")
            )
        )

    cassette = record_cassette(tmp_path, script("ok"), turn("first-secret"), secrets=("first-secret",))
    assert "ok" in body_text(
        collect_parts(Replaying(cassette, secrets=("other-secret",)), turn("other-secret"))
    )
    with pytest.raises(Mismatch):
        collect_parts(Replaying(cassette), turn("no secret"))


def test_pace_replays_the_recorded_times(tmp_path: Path) -> None:
    """A replay does not wait by default. With `pace`, it takes the recorded time."""
    path = tmp_path / "c.jsonl"
    record_cassette(tmp_path, Scripted([Reply(text=["a", "b", "c"])]), prompt_request("a"))
    text = path.read_text()
    line: dict[str, Any] = json.loads(text.splitlines()[-1])
    line["answer"] |= {"first_ms": 200, "ms": 1200}
    path.write_text("\n".join([*text.splitlines()[:-1], json.dumps(line)]))
    assert not [
        part
        for part in collect_parts(Replaying(load_cassette(path)), prompt_request("a"))
        if isinstance(part, Wait)
    ]
    waits = [
        part.seconds
        for part in collect_parts(Replaying(load_cassette(path), pace=True), prompt_request("a"))
        if isinstance(part, Wait)
    ]
    assert waits == [0.2, 0.5, 0.5]


def test_edited_answer_is_replayed(tmp_path: Path) -> None:
    """If the user edits an answer in the cassette, the edited answer is replayed."""
    path = tmp_path / "c.jsonl"
    record_cassette(tmp_path, script("Hello"), prompt_request("a"))
    path.write_text(path.read_text().replace('"Hello"', '"Goodbye"'))
    assert "Goodbye" in body_text(collect_parts(Replaying(load_cassette(path)), prompt_request("a")))


def test_long_conversation(tmp_path: Path) -> None:
    """Any of two hundred requests of a growing conversation is matched.
    The cassette stays small."""
    texts = [f"{n} " + "x" * 500 for n in range(200)]
    requests = [prompt_request(*texts[: n + 1]) for n in range(200)]
    cassette = record_cassette(tmp_path, script(*(f"answer {n}." for n in range(200))), *requests)
    assert (tmp_path / "c.jsonl").stat().st_size < 600_000
    replay = Replaying(cassette)
    for n in (199, 0, 100):
        assert f"answer {n}." in body_text(collect_parts(replay, requests[n]))


# Other APIs: Vertex AI and Code Assist.

VERTEX = "/v1beta1/publishers/google/models/gemini-3.8-flash:streamGenerateContent?alt=sse"
TOKEN = "geminids-run-" + "0123456789abcdef" * 3
LOGIN = "ya29.not-a-real-token"


def account(call: str, body: Any = None, *, verb: str = "POST", token: str = TOKEN) -> Request:
    """Build a request of the CLI with an account login."""
    data = b"" if body is None else json.dumps(body).encode()
    headers = {"authorization": f"Bearer {LOGIN}", "user-agent": "GeminiCLI-tui/0.61.0/m (linux)"}
    return Request.read(1, 0.0, verb, f"/{token}/v1internal{call}", headers, data)


def wrapped(*texts: str, folder: str = "/repo", run: str = "1", **more: Any) -> Request:
    inner = {
        **make_body(session_context(folder), *map(user_content, texts), **more),
        "session_id": f"session of run {run}",
    }
    ids = {"project": f"project-{run}", "user_prompt_id": f"{run}########0"}
    return account(":streamGenerateContent?alt=sse", {"model": "gemini-3.8-flash", **ids, "request": inner})


def test_vertex(tmp_path: Path) -> None:
    """A run with Vertex AI is recorded and replayed."""
    request = make_request(make_body(session_context("/repo"), user_content("a")), VERTEX)
    replay = Replaying(record_cassette(tmp_path, script("one"), request))
    assert "one" in body_text(
        collect_parts(replay, make_request(make_body(session_context("/repo"), user_content("a")), VERTEX))
    )
    assert (replay.unused, replay.remarks) == ([], [])


def test_code_assist(tmp_path: Path) -> None:
    """With Code Assist, requests match by conversation; session, project and folder may differ."""
    first, second = wrapped("a"), wrapped("a", "b")
    cassette = record_cassette(
        tmp_path, Scripted([Reply(text="in /repo/x"), Reply(text="two")]), first, second
    )
    assert (cassette.header.cli, cassette.header.model) == ("0.61.0", "gemini-3.8-flash")
    assert [exchange.body for exchange in cassette.exchanges] == [first.body, second.body]
    replay = Replaying(cassette)
    answer = body_text(collect_parts(replay, wrapped("a", folder="/other", run="2")))
    assert answer.startswith('data: {"response":{') and "in /other/x" in answer
    assert "two" in body_text(collect_parts(replay, wrapped("a", "b", folder="/other", run="2")))
    assert (replay.unused, replay.remarks) == ([], [])
    with pytest.raises(Mismatch, match="user: c"):
        collect_parts(Replaying(cassette), wrapped("c"))


def test_a_wrapped_conversation_is_written_once(tmp_path: Path) -> None:
    """With Code Assist, the cassette contains the instruction and each message only once."""
    record_cassette(tmp_path, script("one", "two"), wrapped("a"), wrapped("a", "b"))
    text = (tmp_path / "c.jsonl").read_text()
    assert text.count('"kind":"system"') == 1
    assert text.count("We are setting up the context") == 1


def test_cassette_has_no_token_and_no_login(tmp_path: Path) -> None:
    """The cassette contains neither the run's token nor the login, even if a tool printed them."""
    body = {
        "model": "m",
        "request": make_body(user_content("a"), tool_result_content("shell", f"{TOKEN} {LOGIN}")),
    }
    request = account(":streamGenerateContent?alt=sse", body)
    inner = Scripted([Reply(text=["so it is ya29.not-", "a-real-token"])])
    cassette = record_cassette(tmp_path, inner, account(":loadCodeAssist", {}), request)
    text = (tmp_path / "c.jsonl").read_text()
    assert "geminids-run" not in text and "ya29" not in text
    assert '"path":"/v1internal:loadCodeAssist"' in text
    answer = body_text(collect_parts(Replaying(cassette), request))
    assert '"so it is "' in answer and '"***"' in answer


def test_account_calls_are_answered_any_number_of_times(tmp_path: Path) -> None:
    """A recorded account call is answered any number of times. It never counts as unused."""
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
    replay = Replaying(record_cassette(tmp_path, Account(), *calls, operation))
    for _ in range(2):
        for call, answer in reversed(answers.items()):
            assert (
                json.loads(body_text(collect_parts(replay, account(f":{call}", {"metadata": {"v": 2}}))))
                == answer
            )
        assert json.loads(body_text(collect_parts(replay, account("/operations/o1", verb="GET")))) == {
            "done": True
        }
    assert (Replaying(load_cassette(tmp_path / "c.jsonl")).unused, replay.remarks) == ([], [])


def test_unrecorded_account_call(tmp_path: Path) -> None:
    """An account call that is not recorded gets an empty answer and a remark."""
    replay = Replaying(record_cassette(tmp_path, script("one"), wrapped("a")))
    assert json.loads(body_text(collect_parts(replay, account(":fetchAdminControls", {})))) == {}
    assert any("/v1internal:fetchAdminControls" in remark for remark in replay.remarks)


def test_telemetry_is_not_recorded(tmp_path: Path) -> None:
    """Telemetry requests are not recorded. A replay answers them without a remark."""
    metrics = account(":recordCodeAssistMetrics", {"metrics": [{"timestamp": "now"}]})
    cassette = record_cassette(tmp_path, script("one"), metrics, wrapped("a"))
    assert [exchange.path for exchange in cassette.exchanges] == ["/v1internal:streamGenerateContent?alt=sse"]
    replay = Replaying(cassette)
    assert json.loads(body_text(collect_parts(replay, metrics))) == {}
    assert replay.remarks == []
