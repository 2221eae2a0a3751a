"""`execute(context)`, with a CLI that prints what the test gives it: sessions, callbacks, templates, time-outs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from geminids.adapters.leadmetrics import (
    AdapterAgent,
    AdapterExecutionContext,
    AdapterExecutionResult,
    AdapterRuntime,
    Spawned,
    execute,
)
from geminids.adapters.leadmetrics.context import billing_type, stored_session, variables_of
from geminids.adapters.leadmetrics.execution import _is_lost
from geminids.config.paths import Places
from geminids.dialects.leadmetrics.transcript import System
from geminids.events.model import Event, Finished
from geminids.outcome import Failure
from random_events import recorded

SESSION = "5f0c0f5e-0000-4000-8000-000000000001"
GONE = "5f0c0f5e-0000-4000-8000-00000000dead"
KEY = "AIzaSy-only-for-this-test-0123456789"
AGENT = AdapterAgent(id="agent-1", company_id="tenant-1", name="Ada")
# It answers with its prompt and its arguments, so that a test sees what was handed over.
_ECHO = """
let text = '';
process.stdin.on('data', (piece) => { text += piece; });
process.stdin.on('end', () => {
  const say = (one) => process.stdout.write(JSON.stringify(one) + '\\n');
  say({type: 'init', session_id: '%s', model: 'flash'});
  say({type: 'message', role: 'assistant', content: text + '|' + (process.env.SHOWN || ''), delta: true});
  process.stderr.write('a word on stderr\\n');
  say({type: 'result', status: 'success', stats: {total_tokens: 3, input_tokens: 2, output_tokens: 1, cached: 0}});
});
"""


class Desk:
    """A folder to work in, a CLI, and what the callbacks were told."""

    def __init__(self, root: Path) -> None:
        self.cwd, self.cli = root / "work", root / "cli"
        (self.cli / "bundle").mkdir(parents=True)
        manifest = {"name": "@google/gemini-cli", "version": "0.61.0", "bin": {"gemini": "bundle/gemini.js"}}
        (self.cli / "package.json").write_text(json.dumps(manifest))
        self.script(_ECHO % SESSION)
        self.logged: list[tuple[str, str]] = []
        self.spawned: list[Spawned] = []
        self.events: list[Event] = []

    def script(self, text: str) -> None:
        (self.cli / "bundle" / "gemini.js").write_text(text)

    async def on_log(self, stream: str, chunk: str) -> None:
        self.logged.append((stream, chunk))

    def context(self, runtime: AdapterRuntime | None = None, **config: Any) -> AdapterExecutionContext:
        given = {"cwd": str(self.cwd), "command": str(self.cli), "env": {"GEMINI_API_KEY": KEY}, **config}
        return AdapterExecutionContext(
            run_id="run-7",
            agent=AGENT,
            config=given,
            runtime=runtime or AdapterRuntime(),
            context={"prompt": "Do it.", "tenant": {"name": "Acme"}, "issue": {"id": 7}},
            on_log=self.on_log,
            on_spawn=self.spawned.append,
            on_events=self.events.extend,
        )

    @property
    def finished(self) -> Finished:
        last = self.events[-1]
        assert isinstance(last, Finished)
        return last

    def run(self, context: AdapterExecutionContext) -> AdapterExecutionResult:
        return anyio.run(execute, context)


@pytest.fixture
def desk(tmp_path: Path, installs: Places, monkeypatch: pytest.MonkeyPatch) -> Desk:
    root = tmp_path / "geminids"
    root.mkdir(mode=0o700)
    installs.node.mkdir(parents=True, exist_ok=True)
    (root / installs.node.name).symlink_to(installs.node)
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("GEMINIDS_HOME", str(root))
    return Desk(tmp_path)


def test_a_run(desk: Desk) -> None:
    """The folder is made, the prompt arrives, the answer, the session and the bill come back. The stand-in made no
    request, so there are no tokens, whatever it says itself."""
    result = desk.run(desk.context())
    assert result.error is None, result.error
    assert (result.success, result.exit_code) == (True, 0)
    assert result.output == "Do it.|"
    assert desk.cwd.is_dir()
    assert result.session_params is not None
    assert (result.session_id, result.session_params.cwd) == (SESSION, str(desk.cwd))
    assert (result.billing_type, result.clear_session) == ("api", False)
    assert (result.usage, result.cost_usd) == (None, 0)


def test_a_run_on_trio(desk: Desk) -> None:
    """Either event loop."""
    assert anyio.run(execute, desk.context(), backend="trio").success


def test_what_the_callbacks_are_told(desk: Desk) -> None:
    """Each line of stdout as it was, remarks as stderr, the process, and every event."""
    desk.run(desk.context())
    lines = "".join(chunk for stream, chunk in desk.logged if stream == "stdout").splitlines()
    assert [json.loads(line)["type"] for line in lines] == ["init", "message", "result"]
    assert ("stderr", "a word on stderr\n") in desk.logged
    (spawned,) = desk.spawned
    assert spawned.pid == spawned.process_group_id
    assert isinstance(desk.events[-1], Finished)
    assert [event.seq for event in desk.events] == list(range(len(desk.events)))


def test_template_instructions_and_variables(desk: Desk, tmp_path: Path) -> None:
    """Instructions first, then the template with the values of agent, tenant, run and context."""
    file = tmp_path / "AGENT.md"
    file.write_text("Be kind.\n")
    template = (
        "{{agentId}} {{agent.name}} {{tenantId}} {{tenant.name}} {{runId}} {{context.issue.id}}: {{prompt}}"
    )
    context = desk.context(promptTemplate=template, instructionsFilePath=str(file), env={"SHOWN": "seen"})
    assert desk.run(context).output == "Be kind.\n\nagent-1 Ada tenant-1 Acme run-7 7: Do it.|seen"


def test_a_name_without_a_value_is_an_error_that_names_it(desk: Desk) -> None:
    """Nothing is started with a hole in its prompt."""
    result = desk.run(desk.context(promptTemplate="{{tenant.nmae}}"))
    assert "{{tenant.nmae}}" in (result.error or "")
    assert desk.spawned == []


def test_a_configuration_that_cannot_be_is_a_result(desk: Desk) -> None:
    """Every problem by its field; nothing is started."""
    result = desk.run(desk.context(timeoutSec="soon", modle="x"))
    assert (result.success, result.exit_code) == (False, None)
    assert result.error_meta is not None
    assert sorted(name for name, _ in result.error_meta.problems) == ["modle", "timeoutSec"]
    assert "timeoutSec" in (result.error or "")
    assert desk.spawned == []


def test_a_value_that_cannot_be_in_a_prompt(desk: Desk) -> None:
    """What the orchestrator gives for a run is checked as the configuration is."""
    context = msgspec.structs.replace(
        desk.context(promptTemplate="{{tenant.name}}"), context={"tenant": {"name": "a\0"}}
    )
    result = desk.run(context)
    assert not result.success and result.error
    assert desk.spawned == []


def test_a_file_that_vanishes_meanwhile(desk: Desk, tmp_path: Path) -> None:
    """What was well when it was checked may be gone a moment later: a result, and no exception."""
    file = tmp_path / "AGENT.md"
    file.write_text("Be kind.\n")
    runtime = AdapterRuntime(session_params={"sessionId": GONE, "cwd": str(tmp_path)})
    given = desk.context(runtime, instructionsFilePath=str(file))
    context = msgspec.structs.replace(given, on_log=lambda stream, chunk: file.unlink())
    result = desk.run(context)
    assert "AGENT.md" in (result.error or "")


def test_a_time_out(desk: Desk) -> None:
    """A CLI that never answers is ended, with the document's error."""
    desk.script("setInterval(() => {}, 1000);\n")
    result = desk.run(desk.context(timeoutSec=1, graceSec=1))
    assert (result.success, result.timed_out, result.error) == (False, True, "Process timed out after 1s")


def test_a_silence(desk: Desk) -> None:
    """A CLI that is stopped for its silence has not reached its time limit: the result has the reason."""
    desk.script("setInterval(() => {}, 1000);\n")
    result = desk.run(desk.context(timeoutSec=60, graceSec=1, startTimeout=1))
    assert (result.success, result.timed_out) == (False, True)
    assert result.error is not None and result.error == desk.finished.reason


def test_a_lost_session_is_begun_anew_once(desk: Desk) -> None:
    """The run is made without it; the new session is told, and is not to be cleared."""
    desk.cwd.mkdir()
    runtime = AdapterRuntime(session_params={"sessionId": GONE, "cwd": str(desk.cwd), "workspaceId": "w1"})
    result = desk.run(desk.context(runtime))
    assert (result.success, result.session_id, result.clear_session) == (True, SESSION, False)
    assert result.session_params is not None and result.session_params.workspace_id == "w1"
    assert [entry for entry in result.transcript if isinstance(entry, System)]
    assert any("starting a new session" in chunk for _, chunk in desk.logged)
    assert len(desk.spawned) == 1


def test_a_session_that_is_lost_and_gives_no_new_one_is_cleared(desk: Desk) -> None:
    """The orchestrator must not try it again."""
    desk.cwd.mkdir()
    result = desk.run(desk.context(AdapterRuntime(session_id=GONE), command=str(desk.cwd / "none")))
    assert (result.success, result.session_id, result.clear_session) == (False, None, True)
    assert result.error_meta is not None and result.error_meta.kind == "cli_missing"


def test_a_session_of_another_folder_is_not_resumed(desk: Desk, tmp_path: Path) -> None:
    """It would not be found there; why is in the transcript and in the log."""
    runtime = AdapterRuntime(session_params={"session_id": GONE, "workdir": str(tmp_path)})
    result = desk.run(desk.context(runtime))
    assert (result.success, result.session_id) == (True, SESSION)
    assert any("cannot be resumed in" in chunk for _, chunk in desk.logged)


def test_a_callback_that_fails_costs_no_run(desk: Desk) -> None:
    """It is not called again, and the transcript says so."""
    called: list[int] = []

    def broken(stream: str, chunk: str) -> None:
        called.append(1)
        raise ValueError(KEY)

    context = msgspec.structs.replace(desk.context(), on_log=broken)
    result = desk.run(context)
    assert (result.success, len(called)) == (True, 1)
    last = result.transcript[-1]
    assert isinstance(last, System)
    assert last.text == "on_log failed and is not called again: ValueError"


def test_without_callbacks(desk: Desk) -> None:
    """None of them is needed."""
    context = msgspec.structs.replace(desk.context(), on_log=None, on_spawn=None, on_events=None)
    assert desk.run(context).success


def test_the_token_of_the_orchestrator(desk: Desk) -> None:
    """The agent's tools have it in their environment, and it is in no output."""
    echo = _ECHO.replace("process.env.SHOWN", "process.env.PAPERCLIP_API_KEY") % SESSION
    desk.script(echo)
    context = msgspec.structs.replace(desk.context(), auth_token="token-0123456789")
    result = desk.run(context)
    assert result.output == "Do it.|***"
    assert "token-0123456789" not in repr(context)
    own = desk.context(env={"PAPERCLIP_API_KEY": "mine"})
    assert desk.run(msgspec.structs.replace(own, auth_token="token-0123456789")).output == "Do it.|mine"


def test_offline_bills_nobody(desk: Desk) -> None:
    """The scripted model costs nothing, whatever key there is."""
    assert desk.run(desk.context(offline=True)).billing_type is None


def test_what_an_orchestrator_has_stored_is_read_as_it_is() -> None:
    """Agent and runtime come from JSON, by the names of the format."""
    agent = msgspec.convert({"id": "a", "companyId": "c", "name": "Ada"}, AdapterAgent)
    runtime = msgspec.convert({"sessionId": "s", "sessionParams": None, "taskKey": "t"}, AdapterRuntime)
    assert (agent.company_id, runtime.session_id, runtime.task_key) == ("c", "s", "t")


def test_which_session_is_resumed(tmp_path: Path) -> None:
    """Either spelling; the parameters before the bare id; nothing that cannot be an id."""
    here = str(tmp_path)
    for name in ("sessionId", "session_id", "sessionID"):
        assert stored_session(AdapterRuntime(session_params={name: SESSION}), here) == (SESSION, None)
    both = AdapterRuntime(session_id=GONE, session_params={"sessionId": SESSION, "folder": here})
    assert stored_session(both, here) == (SESSION, None)
    assert stored_session(AdapterRuntime(), here) == (None, None)
    odd, why = stored_session(AdapterRuntime(session_id="--yolo"), here)
    assert odd is None and why is not None


def test_values_of_a_template() -> None:
    """The names of both systems; a name that no template could have is passed over, and depth has an end."""
    deep: dict[str, Any] = {"x": "y"}
    for _ in range(10):
        deep = {"a": deep}
    context = AdapterExecutionContext(
        run_id="r",
        agent=AdapterAgent(id="a"),
        config={"cwd": "."},
        context={"tenantId": "t", "a b": "no", "yes": True, "n": 1.5, "deep": deep, "list": ["x"]},
    )
    made = variables_of(context)
    assert (made["agentId"], made["runId"], made["tenantId"]) == ("a", "r", "t")
    assert made["context.n"] == "1.5"
    assert not any(
        name.startswith(("context.a b", "context.yes", "context.deep", "context.list")) for name in made
    )
    assert "agent.name" not in made


@pytest.mark.parametrize(
    ("environ", "kind"),
    [
        ({"GEMINI_API_KEY": "k"}, "api"),
        ({"GOOGLE_API_KEY": "k"}, "api"),
        ({"GOOGLE_GENAI_USE_VERTEXAI": "true", "GOOGLE_API_KEY": "k"}, "metered_api"),
        ({"GEMINI_API_KEY": " "}, "subscription"),
        ({}, "subscription"),
    ],
)
def test_who_is_billed(environ: dict[str, str], kind: str) -> None:
    """A key, a cloud project, or an account."""
    assert billing_type(environ) == kind


def test_what_a_lost_session_is() -> None:
    """One that is gone, and one that is too long for the model; no other failure."""
    last = recorded("api_error")[-1]
    assert isinstance(last, Finished)

    def failed(kind: Any, message: str) -> Finished:
        failure = Failure(kind=kind, message=message, retryable=False, hint="")
        return msgspec.structs.replace(last, failure=failure)

    too_long = "The input token count (2000000) exceeds the maximum number of tokens allowed (1048576)."
    assert _is_lost(failed("session_not_found", "gone"))
    assert _is_lost(failed("bad_request", too_long))
    assert not _is_lost(failed("bad_request", "nothing doing"))
    assert not _is_lost(None)
