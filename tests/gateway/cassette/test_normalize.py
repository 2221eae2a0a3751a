"""Tests of normalization: which parts of a request are ignored when it is compared with a
recording."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway_requests import make_body, session_context, tool_result_content, user_content
from geminids.gateway.cassette.normalize import NormalizedRequest, Normalizer
from geminids.gateway.cassette.paths import PathReplacer, folders_in_context
from geminids.gateway.cassette.volatile_values import days_of, user_instructions
from geminids.redact import Redactor

TODAY = [(2026, 11, 16)]
OLD_CONTEXT = """This is the Gemini CLI. We are setting up the context for our chat.
Today's date is Monday, November 16, 2026 (formatted according to the user's locale).
My operating system is: linux
The project's temporary directory is: /home/me/.gemini/tmp/08bda3621134641c2df9ed9df758bada2be152d958a98011ee265eab6
I'm currently working in the directory: /repo/one
Here is the folder structure of the current working directories:

Showing up to 200 items (files + folders).

/repo/one/
├───a.py
└───src/
    └───b.py

Reminder: Do not return an empty response when a tool call is required.

My setup is complete. I will provide my first command in the next turn."""


def normalize(
    *contents: dict[str, Any], days: Any = TODAY, secrets: tuple[str, ...] = (), **fields: Any
) -> NormalizedRequest:
    body = make_body(*contents, **fields)
    normalizer = Normalizer(days=days, redactor=Redactor(secrets))
    normalizer.learn(body)
    return normalizer.request("stream", "m", body)


def normalized_text(text: str) -> str:
    """Return the normalized text of a prompt."""
    return Normalizer(days=TODAY).text(text)


def normalized_result(text: str, tool: str = "run_shell_command") -> str:
    """Return the normalized text of a tool result."""
    return Normalizer(days=TODAY).result(tool, text)


def test_folder_day_and_file_list_are_ignored() -> None:
    """The same conversation in another folder and on another day is equal after normalization."""
    first = normalize(
        session_context("/repo/one"),
        user_content("fix /repo/one/a.py"),
        tool_result_content("read_file", "x = 1\n"),
        tool_result_content("write_file", "Successfully overwrote file: /repo/one/a.py."),
    )
    second = normalize(
        session_context("/tmp/other", "Tuesday, February 2, 2027", "├───a.py\n└───b.py"),
        user_content("fix /tmp/other/a.py"),
        tool_result_content("read_file", "x = 1\n"),
        tool_result_content("write_file", "Successfully overwrote file: /tmp/other/a.py."),
        days=[(2027, 2, 2)],
    )
    assert first == second
    assert first.conversation[0] == "user: fix <workspace>/a.py"


@pytest.mark.parametrize(
    "changed",
    [
        (session_context("/repo"), user_content("fix b.py"), tool_result_content("read_file", "x = 1\n")),
        (session_context("/repo"), user_content("fix a.py"), tool_result_content("read_file", "x = 2\n")),
        (session_context("/repo"), user_content("fix a.py"), tool_result_content("grep", "x = 1\n")),
        (session_context("/repo"), user_content("fix a.py")),
        (session_context("/repo"), user_content("fix a.py"), user_content("x = 1\n")),
    ],
)
def test_changed_conversation_does_not_match(changed: tuple[dict[str, Any], ...]) -> None:
    """Another prompt, file content or tool makes it another conversation."""
    before = normalize(
        session_context("/repo"), user_content("fix a.py"), tool_result_content("read_file", "x = 1\n")
    )
    assert not normalize(*changed).matches(before)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("what was on 2026-11-15?", "what was on 2026-11-15?"),
        ("what was on 2026-11-16?", "what was on <today>?"),
        ("11/16/2026, 16.11.2026, 20261116", "<today>, <today>, <today>"),
        ("Nov 16, 2026 and 16 November 2026", "<today> and <today>"),
        ("see 3f2504e0-4f89-41d3-9a0c-0305e82c3301", "see <uuid>"),
        ("wait 5s until 13:25", "wait 5s until 13:25"),
        ("kill pid 4711 on localhost:8080", "kill pid 4711 on localhost:8080"),
        (
            "in /tmp/tmpab12_xyz/a, /tmp/notes.txt and /tmp/my-folder",
            "in <tmp>/a, /tmp/notes.txt and /tmp/my-folder",
        ),
        ("/opt/lib/node_modules/@google/gemini-cli/bundle/x.md", "<cli>/bundle/x.md"),
        ("see read_file_1794835534372_0.txt", "see <call>.txt"),
        ("key geminids-run-" + "0a" * 24, "key ***"),
    ],
)
def test_normalized_prompt(text: str, expected: str) -> None:
    """In prompts, only today's date, ids, temporary folders and secrets are replaced."""
    assert normalized_text(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Mon Nov 16 13:25:32 UTC 2026", "<today>"),
        ("-rw-r--r-- 1 me me 6 Nov 16 13:25 a.py", "-rw-r--r-- 1 me me 6 <today> a.py"),
        ("2026-11-16T13:25:32.123Z up", "<today>T<time> up"),
        ("2 passed in 0.31s, 12 ms, 3 seconds", "2 passed in <duration>, <duration>, <duration>"),
        ("listening on http://127.0.0.1:40123/", "listening on http://127.0.0.1:<port>/"),
        ("<object at 0x7f3a2b1c4d50>", "<object at <address>>"),
        ("[main (root-commit) 1a2b3c4] one", "[main (root-commit) <hash>] one"),
        ("at 1794835534372", "at <epoch>"),
        (
            "version 1.2.3, 42 files, ratio 16:9 of 2025-01-01",
            "version 1.2.3, 42 files, ratio 16:9 of 2025-01-01",
        ),
    ],
)
def test_normalized_tool_result(text: str, expected: str) -> None:
    """In tool results, times, durations, ports, addresses and hashes are replaced.
    Counts, versions and other dates stay."""
    assert normalized_result(text) == expected


def test_frame_of_a_tool_result_is_removed() -> None:
    """Markers, process numbers, file sizes and repeated file content are
    removed from a tool result."""
    framed = (
        "<untrusted_context>\nOutput: /repo\n42\nBackground PIDs: 28670\nProcess Group PGID: 28667\n"
        "</untrusted_context>"
    )
    assert normalized_result(framed) == "Output: /repo\n42"
    assert normalized_result("Output: x\nExit Code: 1") != normalized_result("Output: x\nExit Code: 0")
    assert normalized_result("a.py (6 bytes)\nb.py", "list_directory") == "a.py\nb.py"
    assert normalized_result("Wrote /repo/a. Here is the updated code:\nx", "write_file") == "Wrote /repo/a."


def test_truncated_tool_result() -> None:
    """A long tool result is compared by its beginning and its end.
    Releases cut the middle at different positions, and 0.24 does not cut it."""

    def truncated_result(head: int, tail: int, first: str = "1", last: str = "9") -> str:
        whole = first + "x" * 60_000 + "y" * 60_000 + last
        saved = "/repo/.gemini/tmp/w/tool-outputs/run_shell_command_1794837340934_0.txt"
        start = f"Output too large. Showing first 8,000 and last 32,000 characters. For full output see: {saved}\n"
        return f"{start}Output: {whole[:head]}\n\n... [80,000 characters omitted] ...\n\n{whole[-tail:]}"

    whole = "Output: 1" + "x" * 60_000 + "y" * 60_000 + "9"
    assert (
        normalized_result(truncated_result(7992, 32_000))
        == normalized_result(truncated_result(7950, 31_990))
        == normalized_result(whole)
    )
    assert normalized_result(truncated_result(7992, 32_000)) != normalized_result(
        truncated_result(7992, 32_000, first="2")
    )
    assert normalized_result(truncated_result(7992, 32_000)) != normalized_result(
        truncated_result(7992, 32_000, last="8")
    )
    assert normalized_result("x" * 50_000, "read_file") == "x" * 50_000


def test_signatures_thoughts_and_ids_are_ignored() -> None:
    """Signatures, thoughts and ids of calls are ignored.
    It does not matter how a streamed text was split into parts."""
    call = {"name": "glob", "args": {"b": 1, "a": 2}}
    plain = normalize(
        user_content("x"), {"role": "model", "parts": [{"text": "so it"}, {"functionCall": call}]}
    )
    rich = normalize(
        user_content("x"),
        {"role": "model", "parts": [{"text": "hm", "thought": True}, {"text": "so "}, {"text": "it"}]},
        {"role": "model", "parts": [{"functionCall": {**call, "id": "7"}, "thoughtSignature": "s"}]},
    )
    assert (
        plain.conversation == rich.conversation == ("user: x", "model: so it", 'call glob {"a": 2, "b": 1}')
    )


def test_instructions_are_compared_separately() -> None:
    """GEMINI.md in the introduction is not part of the conversation.
    A difference in it is reported as "instructions"."""
    introduction = session_context("/repo")
    introduction["parts"][0]["text"] = introduction["parts"][0]["text"].replace(
        "\n\n</session", "\n\nBe brief.\n</session"
    )
    with_instructions, without = (
        normalize(introduction, user_content("x")),
        normalize(session_context("/repo"), user_content("x")),
    )
    assert (with_instructions.context, without.context) == ("Be brief.", "")
    assert with_instructions.matches(without)
    assert with_instructions.differs(without) == ["instructions"]


def test_introduction_of_release_0_24() -> None:
    """The introduction of 0.24 is removed completely, and its folders are recognized."""
    assert user_instructions(OLD_CONTEXT) == ""
    places = folders_in_context(OLD_CONTEXT)
    assert (places["/repo/one"], places["/home/me"]) == ("<workspace>", "<home>")
    assert "<temp>" in places.values()


def test_pictures_are_compared_by_their_bytes() -> None:
    """Two different pictures are different prompts.
    The normalized request does not contain the picture data itself."""
    first, second = (
        normalize({"role": "user", "parts": [{"inlineData": {"mimeType": "image/png", "data": data}}]})
        for data in ("aaaa" * 1000, "bbbb" * 1000)
    )
    assert first != second
    assert len(first.conversation[0]) < 60


def test_secrets_are_masked_as_in_the_cassette() -> None:
    """A secret in a tool result is replaced by `***`, as in the cassette."""
    assert normalize(tool_result_content("sh", "k=hunter2hunter2"), secrets=("hunter2hunter2",)) == normalize(
        tool_result_content("sh", "k=***")
    )


def test_utility_requests_differ_by_their_answer_schema() -> None:
    """Two utility requests about the same conversation match only if they
    have the same answer schema."""

    def utility_request(name: str) -> NormalizedRequest:
        schema = {"type": "object", "properties": {name: {"type": "string"}}}
        return normalize(user_content("x"), generationConfig={"responseJsonSchema": schema})

    assert utility_request("model_choice").matches(utility_request("model_choice"))
    assert not utility_request("model_choice").matches(utility_request("is_stuck"))


def test_paths_are_replaced() -> None:
    """Paths in the recorded folder are replaced by paths in the current folder.
    Names that only begin with the same text stay unchanged."""
    mover = PathReplacer.between({"/repo": "<workspace>", "/home/me": "<home>"}, {"/tmp/w": "<workspace>"})
    value = {"a": ["/repo/a.py", "/repository", "/repo", "x/repo", "see /repo."], "n": 1, "h": "/home/me/x"}
    assert mover.value(value) == {
        "a": ["/tmp/w/a.py", "/repository", "/tmp/w", "x/repo", "see /tmp/w."],
        "n": 1,
        "h": "/home/me/x",
    }
    assert PathReplacer({"/": "<workspace>"}).text("/a/b") == "/a/b"


PIECES = st.sampled_from(
    [
        *(
            "/repo/one",
            "/repo/one/x",
            " ",
            "\n",
            "1",
            "13:25",
            "Nov 16",
            " 2026",
            "2026-11-16",
            "5s",
            "pid 1",
            "T",
            "PM",
        ),
        *(
            " (6 bytes)",
            "127.0.0.1:80",
            "<untrusted_context>",
            "Exit Code: 0\n",
            "Output: ",
            "/tmp/tmpab12_xyz",
            "a",
            ":",
        ),
        *(
            "1794835534",
            "1794835534372_",
            "-",
            "Process Group PGID: 1",
            "Command: x\nDirectory: y\n",
            "0x1234567",
        ),
        "3f2504e0-4f89-41d3-9a0c-0305e82c3301",
    ]
)


@given(
    st.lists(PIECES, max_size=8).map("".join) | st.text(),
    st.sampled_from(["run_shell_command", "list_directory", "x"]),
)
@example("</untrusted_context>\n</untrusted_context>", "x")
def test_normalizing_twice_changes_nothing(text: str, tool: str) -> None:
    """Normalizing a text that is already normalized does not change it."""
    normalizer = Normalizer({"/repo/one": "<workspace>"}, TODAY)
    once = normalizer.text(text)
    assert normalizer.text(once) == once
    once = normalizer.result(tool, text)
    assert normalizer.result(tool, once) == once


_LEAVES = st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.just("text")
_NAMES = st.sampled_from(
    [
        *(
            "contents",
            "systemInstruction",
            "tools",
            "generationConfig",
            "parts",
            "role",
            "text",
            "functionCall",
            "args",
        ),
        *(
            "functionResponse",
            "response",
            "inlineData",
            "data",
            "responseJsonSchema",
            "properties",
            "name",
            "thought",
        ),
    ]
)
BODIES: st.SearchStrategy[Any] = st.recursive(
    _LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=4),
    max_leaves=20,
)


@example({"contents": {"role": {"contents": None, "name": None}}})
@example({"contents": {"parts": {"functionCall": {"name": {"data": None, "name": None}}}}})
@example({"contents": {"parts": {"inlineData": {"data": {"data": None, "name": None}}}}})
@given(BODIES)
def test_any_body_can_be_compared(body: Any) -> None:
    """Normalizing any JSON body raises no error, and the order of keys does not matter."""
    normalizer = Normalizer(days=TODAY)
    normalizer.learn(body)
    assert normalizer.request("stream", "m", body) == normalizer.request(
        "stream", "m", _with_reversed_keys(body)
    )


def _with_reversed_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _with_reversed_keys(inner) for name, inner in reversed(value.items())}
    return [_with_reversed_keys(inner) for inner in value] if isinstance(value, list) else value


def test_days_of_a_moment() -> None:
    """`days_of` returns the dates of a moment in local time and in UTC."""
    assert 1 <= len(days_of(1794835534.0)) <= 2
    assert (2026, 11, 16) in days_of(1794835534.0)


def _with_skills(*names: str) -> NormalizedRequest:
    listed = "\n  ".join(
        f"<skill>\n    <name>{name}</name>\n    <location>/x/{name}/SKILL.md</location>\n  </skill>"
        for name in names
    )
    quoted = ", ".join(f"'{name}'" for name in names)
    choice = {"type": "object", "properties": {"name": {"type": "string", "enum": list(names)}}}
    declaration = {
        "name": "activate_skill",
        "description": f"Activates a skill by name (Available: {quoted}). Returns it.",
        "parametersJsonSchema": choice,
    }
    return normalize(
        user_content("hello"),
        systemInstruction={"parts": [{"text": f"<available_skills>\n  {listed}\n</available_skills>"}]},
        tools=[{"functionDeclarations": [declaration]}],
    )


def test_order_of_skills_is_ignored() -> None:
    """The order of the CLI's skills is ignored, but a different set of skills is a difference."""
    assert _with_skills("creator", "support").differs(_with_skills("support", "creator")) == []
    differs = _with_skills("creator", "support").differs(_with_skills("creator"))
    assert differs == ["system instruction", "tool declarations"]
