"""What of a request is volatile: measured on two runs of the same prompt in two folders, on three releases."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from asked import body_of, context, result, user
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


def normal(
    *contents: dict[str, Any], days: Any = TODAY, secrets: tuple[str, ...] = (), **fields: Any
) -> NormalizedRequest:
    body = body_of(*contents, **fields)
    normaliser = Normalizer(days=days, redactor=Redactor(secrets))
    normaliser.learn(body)
    return normaliser.request("stream", "m", body)


def said(text: str) -> str:
    """What is compared of a prompt."""
    return Normalizer(days=TODAY).text(text)


def gave(text: str, tool: str = "run_shell_command") -> str:
    """What is compared of a tool's result."""
    return Normalizer(days=TODAY).result(tool, text)


def test_the_same_prompt_in_another_folder_on_another_day() -> None:
    """Folder, day, ids and the files that lie about are no difference."""
    one = normal(
        context("/repo/one"),
        user("fix /repo/one/a.py"),
        result("read_file", "x = 1\n"),
        result("write_file", "Successfully overwrote file: /repo/one/a.py."),
    )
    other = normal(
        context("/tmp/other", "Tuesday, February 2, 2027", "├───a.py\n└───b.py"),
        user("fix /tmp/other/a.py"),
        result("read_file", "x = 1\n"),
        result("write_file", "Successfully overwrote file: /tmp/other/a.py."),
        days=[(2027, 2, 2)],
    )
    assert one == other
    assert one.conversation[0] == "user: fix <workspace>/a.py"


@pytest.mark.parametrize(
    "changed",
    [
        (context("/repo"), user("fix b.py"), result("read_file", "x = 1\n")),
        (context("/repo"), user("fix a.py"), result("read_file", "x = 2\n")),
        (context("/repo"), user("fix a.py"), result("grep", "x = 1\n")),
        (context("/repo"), user("fix a.py")),
        (context("/repo"), user("fix a.py"), user("x = 1\n")),
    ],
)
def test_what_is_another_conversation(changed: tuple[dict[str, Any], ...]) -> None:
    """Another prompt, another file, another tool: nothing of it is passed over."""
    before = normal(context("/repo"), user("fix a.py"), result("read_file", "x = 1\n"))
    assert not normal(*changed).matches(before)


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
def test_what_people_say_is_kept(text: str, expected: str) -> None:
    """In prompts only the day of the run, ids and folders of no meaning go: all else is what was asked."""
    assert said(text) == expected


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
def test_what_tools_give(text: str, expected: str) -> None:
    """In results times, durations, ports and numbers of processes go; counts, versions and other days stay."""
    assert gave(text) == expected


def test_the_frame_of_a_result_is_left_out() -> None:
    """Fences, process numbers, sizes and the file as it is now differ from run to run."""
    framed = (
        "<untrusted_context>\nOutput: /repo\n42\nBackground PIDs: 28670\nProcess Group PGID: 28667\n"
        "</untrusted_context>"
    )
    assert gave(framed) == "Output: /repo\n42"
    assert gave("Output: x\nExit Code: 1") != gave("Output: x\nExit Code: 0")
    assert gave("a.py (6 bytes)\nb.py", "list_directory") == "a.py\nb.py"
    assert gave("Wrote /repo/a. Here is the updated code:\nx", "write_file") == "Wrote /repo/a."


def test_a_result_of_which_the_middle_is_missing() -> None:
    """Where newer releases cut a long output differs by a few characters, and 0.24 cuts nothing: its ends count."""

    def cut(head: int, tail: int, first: str = "1", last: str = "9") -> str:
        whole = first + "x" * 60_000 + "y" * 60_000 + last
        saved = "/repo/.gemini/tmp/w/tool-outputs/run_shell_command_1794837340934_0.txt"
        start = f"Output too large. Showing first 8,000 and last 32,000 characters. For full output see: {saved}\n"
        return f"{start}Output: {whole[:head]}\n\n... [80,000 characters omitted] ...\n\n{whole[-tail:]}"

    whole = "Output: 1" + "x" * 60_000 + "y" * 60_000 + "9"
    assert gave(cut(7992, 32_000)) == gave(cut(7950, 31_990)) == gave(whole)
    assert gave(cut(7992, 32_000)) != gave(cut(7992, 32_000, first="2"))
    assert gave(cut(7992, 32_000)) != gave(cut(7992, 32_000, last="8"))
    assert gave("x" * 50_000, "read_file") == "x" * 50_000


def test_what_is_not_of_the_conversation() -> None:
    """Signatures, thoughts and ids of calls are no difference; how a streamed text was kept is none either."""
    call = {"name": "glob", "args": {"b": 1, "a": 2}}
    plain = normal(user("x"), {"role": "model", "parts": [{"text": "so it"}, {"functionCall": call}]})
    rich = normal(
        user("x"),
        {"role": "model", "parts": [{"text": "hm", "thought": True}, {"text": "so "}, {"text": "it"}]},
        {"role": "model", "parts": [{"functionCall": {**call, "id": "7"}, "thoughtSignature": "s"}]},
    )
    assert (
        plain.conversation == rich.conversation == ("user: x", "model: so it", 'call glob {"a": 2, "b": 1}')
    )


def test_instructions_are_not_of_the_conversation_either() -> None:
    """GEMINI.md stands in the introduction on new releases, and is compared as the system instruction is."""
    told = context("/repo")
    told["parts"][0]["text"] = told["parts"][0]["text"].replace("\n\n</session", "\n\nBe brief.\n</session")
    with_it, without = normal(told, user("x")), normal(context("/repo"), user("x"))
    assert (with_it.context, without.context) == ("Be brief.", "")
    assert with_it.matches(without)
    assert with_it.differs(without) == ["instructions"]


def test_the_introduction_of_old_releases() -> None:
    """0.24 introduces the folder in other words: nothing of it is left, and its folders are known."""
    assert user_instructions(OLD_CONTEXT) == ""
    places = folders_in_context(OLD_CONTEXT)
    assert (places["/repo/one"], places["/home/me"]) == ("<workspace>", "<home>")
    assert "<temp>" in places.values()


def test_pictures_are_compared_by_their_bytes() -> None:
    """Another picture is another prompt, and none is held in the comparison."""
    one, other = (
        normal({"role": "user", "parts": [{"inlineData": {"mimeType": "image/png", "data": data}}]})
        for data in ("aaaa" * 1000, "bbbb" * 1000)
    )
    assert one != other
    assert len(one.conversation[0]) < 60


def test_secrets_are_masked_as_they_were_when_it_was_recorded() -> None:
    """A tool that prints a secret gives what the cassette has."""
    assert normal(result("sh", "k=hunter2hunter2"), secrets=("hunter2hunter2",)) == normal(
        result("sh", "k=***")
    )


def test_errands_differ_in_what_they_want() -> None:
    """The router and the loop detector look at one conversation: the answer of one is none for the other."""

    def errand(name: str) -> NormalizedRequest:
        schema = {"type": "object", "properties": {name: {"type": "string"}}}
        return normal(user("x"), generationConfig={"responseJsonSchema": schema})

    assert errand("model_choice").matches(errand("model_choice"))
    assert not errand("model_choice").matches(errand("is_stuck"))


def test_folders_move() -> None:
    """Paths of the recorded folder become paths of this one, in all of a value; names that only begin alike stay."""
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
def test_normalising_twice_changes_nothing(text: str, tool: str) -> None:
    """What has been normalised is as it stays."""
    normaliser = Normalizer({"/repo/one": "<workspace>"}, TODAY)
    once = normaliser.text(text)
    assert normaliser.text(once) == once
    once = normaliser.result(tool, text)
    assert normaliser.result(tool, once) == once


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
    """No request raises, however odd; the order of keys is nothing."""
    normaliser = Normalizer(days=TODAY)
    normaliser.learn(body)
    assert normaliser.request("stream", "m", body) == normaliser.request("stream", "m", _turned(body))


def _turned(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _turned(inner) for name, inner in reversed(value.items())}
    return [_turned(inner) for inner in value] if isinstance(value, list) else value


def test_days_are_of_here_and_of_utc() -> None:
    """A day is known by every name that the moment has."""
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
    return normal(
        user("hello"),
        systemInstruction={"parts": [{"text": f"<available_skills>\n  {listed}\n</available_skills>"}]},
        tools=[{"functionDeclarations": [declaration]}],
    )


def test_the_order_of_skills_is_no_difference() -> None:
    """The CLI lists its own skills in the order in which it has read them; another set of skills is a difference."""
    assert _with_skills("creator", "support").differs(_with_skills("support", "creator")) == []
    differs = _with_skills("creator", "support").differs(_with_skills("creator"))
    assert differs == ["system instruction", "tool declarations"]
