"""Tests of `execute(context)` with a fake CLI: sessions, callbacks, templates and time limits."""

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
from geminids.dialects.leadmetrics.model import SessionParams
from geminids.dialects.leadmetrics.transcript import System, User
from geminids.events.model import Event, Finished
from geminids.outcome import Failure
from random_events import recorded

SESSION = "5f0c0f5e-0000-4000-8000-000000000001"
GONE = "5f0c0f5e-0000-4000-8000-00000000dead"
KEY = "AIzaSy-only-for-this-test-0123456789"
AGENT = AdapterAgent(id="agent-1", company_id="tenant-1", name="Ada")
# Answers with its prompt and the variable SHOWN, so that a test sees what the CLI received.
_ECHO = """
let text = '';
process.stdin.on('data', (piece) => { text += piece; });
process.stdin.on('end', () => {
  const print = (line) => process.stdout.write(JSON.stringify(line) + '\\n');
  print({type: 'init', session_id: '%s', model: 'flash'});
  print({type: 'message', role: 'assistant', content: text + '|' + (process.env.SHOWN || ''), delta: true});
  process.stderr.write('a word on stderr\\n');
  print({type: 'result', status: 'success', stats: {total_tokens: 3, input_tokens: 2, output_tokens: 1, cached: 0}});
});
"""


class Workspace:
    """A working folder, a fake CLI, and everything that the callbacks received."""

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
        full_config = {
            "cwd": str(self.cwd),
            "command": str(self.cli),
            "env": {"GEMINI_API_KEY": KEY},
            **config,
        }
        return AdapterExecutionContext(
            run_id="run-7",
            agent=AGENT,
            config=full_config,
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
def workspace(tmp_path: Path, installs: Places, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    root = tmp_path / "geminids"
    root.mkdir(mode=0o700)
    installs.node.mkdir(parents=True, exist_ok=True)
    (root / installs.node.name).symlink_to(installs.node)
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("GEMINIDS_HOME", str(root))
    return Workspace(tmp_path)


def test_successful_run(workspace: Workspace) -> None:
    """A run creates the folder and returns the answer, the session and the billing type.
    The fake CLI sends no request, so no tokens are counted."""
    result = workspace.run(workspace.context())
    assert result.error is None, result.error
    assert (result.success, result.exit_code) == (True, 0)
    assert result.output == "Do it.|"
    assert workspace.cwd.is_dir()
    assert result.session_params is not None
    assert (result.session_id, result.session_params.cwd) == (SESSION, str(workspace.cwd))
    assert (result.billing_type, result.clear_session) == ("api", False)
    assert (result.usage, result.cost_usd) == (None, 0)


def test_run_on_trio(workspace: Workspace) -> None:
    """A run works on trio."""
    assert anyio.run(execute, workspace.context(), backend="trio").success


def test_callbacks(workspace: Workspace) -> None:
    """The callbacks receive every line of stdout and stderr, the process, and every event."""
    workspace.run(workspace.context())
    lines = "".join(chunk for stream, chunk in workspace.logged if stream == "stdout").splitlines()
    assert [json.loads(line)["type"] for line in lines] == ["init", "message", "result"]
    assert ("stderr", "a word on stderr\n") in workspace.logged
    (spawned,) = workspace.spawned
    assert spawned.pid == spawned.process_group_id
    assert isinstance(workspace.events[-1], Finished)
    assert [event.seq for event in workspace.events] == list(range(len(workspace.events)))


def test_template_instructions_and_variables(workspace: Workspace, tmp_path: Path) -> None:
    """The prompt has the instructions first, then the template with all its values."""
    file = tmp_path / "AGENT.md"
    file.write_text("Be kind.\n")
    template = (
        "{{agentId}} {{agent.name}} {{tenantId}} {{tenant.name}} {{runId}} {{context.issue.id}}: {{prompt}}"
    )
    context = workspace.context(
        promptTemplate=template, instructionsFilePath=str(file), env={"SHOWN": "seen"}
    )
    assert workspace.run(context).output == "Be kind.\n\nagent-1 Ada tenant-1 Acme run-7 7: Do it.|seen"


@pytest.mark.parametrize("with_log", [True, False])
def test_the_user_entry_is_what_was_sent(workspace: Workspace, tmp_path: Path, with_log: bool) -> None:
    """The `user` entry has the prompt with template and instructions, as the CLI received it. A prompt
    that the CLI does not echo is the caller's."""
    echo = "print({type: 'message', role: 'user', content: text});"
    script = _ECHO.replace("print({type: 'message'", f"{echo} print({{type: 'message'", 1) % SESSION
    context = workspace.context(promptTemplate="Pre {{agentId}}", env={})
    if not with_log:
        context = msgspec.structs.replace(context, on_log=None)

    def user() -> str:
        (entry,) = [entry for entry in workspace.run(context).transcript if isinstance(entry, User)]
        return entry.text

    assert user() == "Do it."
    workspace.script(script)
    assert user() == "Pre agent-1\n\nDo it."
    assert bool(workspace.logged) == with_log


def test_the_model_of_a_run_without_a_configured_one(workspace: Workspace) -> None:
    """Without a configured model, the result has the model that the CLI reports."""
    assert workspace.run(workspace.context()).model == "flash"
    assert workspace.run(workspace.context(model="pro")).model == "pro"


@pytest.mark.parametrize("params", [{"sessionId": 5}, {"foo": 1}, {"sessionId": "../../etc"}])
def test_a_stored_value_that_is_no_session(workspace: Workspace, params: dict[str, Any]) -> None:
    """A stored value that names no session gives `clear_session`, a reason in the log, and a new
    session to store."""
    result = workspace.run(workspace.context(AdapterRuntime(session_params=params)))
    assert (result.success, result.session_id, result.clear_session) == (True, SESSION, True)
    assert any("starting a new session" in chunk for _, chunk in workspace.logged)


@pytest.mark.parametrize("params", [None, {}, {"sessionId": None, "cwd": None}])
def test_no_stored_session(workspace: Workspace, params: dict[str, Any] | None) -> None:
    """If no session is stored, nothing is cleared and nothing is logged about it."""
    result = workspace.run(workspace.context(AdapterRuntime(session_params=params)))
    assert (result.success, result.clear_session) == (True, False)
    assert not any("session" in chunk for stream, chunk in workspace.logged if stream == "stderr")


def test_a_template_value_that_the_context_lacks(workspace: Workspace) -> None:
    """A known name without a value in this run is an error with the caller's name of the field."""
    context = msgspec.structs.replace(workspace.context(promptTemplate="{{tenant.name}}"), context={})
    result = workspace.run(context)
    assert result.error == "promptTemplate: the context of this run has no value for {{tenant.name}}"
    assert workspace.spawned == []


def test_without_a_sign_in_nobody_is_billed(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run without any sign-in has no billing type."""
    for name in ("GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GENAI_USE_VERTEXAI"):
        monkeypatch.delenv(name, raising=False)
    result = workspace.run(workspace.context(env={}))
    assert (result.auth_mode, result.billing_type) == ("none", None)


@pytest.mark.parametrize(
    "env",
    [{"GEMINI_API_KEY": "k"}, {"GOOGLE_API_KEY": "k", "GOOGLE_GENAI_USE_VERTEXAI": "true"}],
)
def test_a_short_key_is_not_masked(workspace: Workspace, env: dict[str, str]) -> None:
    """A key of one character does not mask the text of the answer."""
    assert workspace.run(workspace.context(env={**env, "SHOWN": "ok"})).output == "Do it.|ok"


def test_template_name_without_a_value(workspace: Workspace) -> None:
    """A template name without a value is an error that contains the name. No process starts."""
    result = workspace.run(workspace.context(promptTemplate="{{tenant.nmae}}"))
    assert "{{tenant.nmae}}" in (result.error or "")
    assert workspace.spawned == []


def test_invalid_configuration_is_a_failed_result(workspace: Workspace) -> None:
    """An invalid configuration returns a failed result with every problem. No process starts."""
    result = workspace.run(workspace.context(timeoutSec="soon", modle="x"))
    assert (result.success, result.exit_code) == (False, None)
    assert result.error_meta is not None
    assert sorted(name for name, _ in result.error_meta.problems) == ["modle", "timeoutSec"]
    assert "timeoutSec" in (result.error or "")
    assert workspace.spawned == []


def test_invalid_template_value(workspace: Workspace) -> None:
    """A template value that a prompt cannot contain returns a failed result. No process starts."""
    context = msgspec.structs.replace(
        workspace.context(promptTemplate="{{tenant.name}}"), context={"tenant": {"name": "a\0"}}
    )
    result = workspace.run(context)
    assert not result.success and result.error
    assert workspace.spawned == []


def test_instructions_file_disappears(workspace: Workspace, tmp_path: Path) -> None:
    """If the instructions file disappears after the check, the result is a
    failure, not an exception."""
    file = tmp_path / "AGENT.md"
    file.write_text("Be kind.\n")
    runtime = AdapterRuntime(session_params={"sessionId": GONE, "cwd": str(tmp_path)})
    original = workspace.context(runtime, instructionsFilePath=str(file))
    context = msgspec.structs.replace(original, on_log=lambda stream, chunk: file.unlink())
    result = workspace.run(context)
    assert "AGENT.md" in (result.error or "")


def test_timeout(workspace: Workspace) -> None:
    """A CLI that never answers is stopped, with the error text of the document."""
    workspace.script("setInterval(() => {}, 1000);\n")
    result = workspace.run(workspace.context(timeoutSec=1, graceSec=1))
    assert (result.success, result.timed_out, result.error) == (False, True, "Process timed out after 1s")


def test_start_timeout(workspace: Workspace) -> None:
    """If the CLI is stopped because it prints nothing, the error is the reason of the run."""
    workspace.script("setInterval(() => {}, 1000);\n")
    result = workspace.run(workspace.context(timeoutSec=60, graceSec=1, startTimeout=1))
    assert (result.success, result.timed_out) == (False, True)
    assert result.error is not None and result.error == workspace.finished.reason


def test_missing_session_is_replaced(workspace: Workspace) -> None:
    """If the stored session is missing, the run starts a new one. The result has `clear_session`, and
    the new session to store."""
    workspace.cwd.mkdir()
    runtime = AdapterRuntime(
        session_params={"sessionId": GONE, "cwd": str(workspace.cwd), "workspaceId": "w1"}
    )
    result = workspace.run(workspace.context(runtime))
    assert (result.success, result.session_id, result.clear_session) == (True, SESSION, True)
    assert result.session_params is not None and result.session_params.workspace_id == "w1"
    assert [entry for entry in result.transcript if isinstance(entry, System)]
    assert any("starting a new session" in chunk for _, chunk in workspace.logged)
    assert len(workspace.spawned) == 1


def test_missing_session_is_cleared_if_the_run_fails(workspace: Workspace) -> None:
    """If the stored session is missing and no new one starts, the result clears it."""
    workspace.cwd.mkdir()
    result = workspace.run(
        workspace.context(AdapterRuntime(session_id=GONE), command=str(workspace.cwd / "none"))
    )
    assert (result.success, result.session_id, result.clear_session) == (False, None, True)
    assert result.error_meta is not None and result.error_meta.kind == "cli_missing"


def test_a_session_of_another_folder_is_not_resumed(workspace: Workspace, tmp_path: Path) -> None:
    """A session of another folder is not resumed. The log contains the reason."""
    runtime = AdapterRuntime(session_params={"session_id": GONE, "workdir": str(tmp_path)})
    result = workspace.run(workspace.context(runtime))
    assert (result.success, result.session_id) == (True, SESSION)
    assert any("cannot be resumed in" in chunk for _, chunk in workspace.logged)


def test_failing_callback(workspace: Workspace) -> None:
    """A callback that raises is not called again, and the run continues.
    The transcript reports it."""
    calls: list[int] = []

    def broken(stream: str, chunk: str) -> None:
        calls.append(1)
        raise ValueError(KEY)

    context = msgspec.structs.replace(workspace.context(), on_log=broken)
    result = workspace.run(context)
    assert (result.success, len(calls)) == (True, 1)
    last = result.transcript[-1]
    assert isinstance(last, System)
    assert last.text == "on_log failed and is not called again: ValueError"


def test_without_callbacks(workspace: Workspace) -> None:
    """A run works without callbacks."""
    context = msgspec.structs.replace(workspace.context(), on_log=None, on_spawn=None, on_events=None)
    assert workspace.run(context).success


def test_orchestrator_token(workspace: Workspace) -> None:
    """The tools of the agent get the orchestrator's token, and it is masked in the output.
    A value in `env` wins over it."""
    echo = _ECHO.replace("process.env.SHOWN", "process.env.PAPERCLIP_API_KEY") % SESSION
    workspace.script(echo)
    context = msgspec.structs.replace(workspace.context(), auth_token="token-0123456789")
    result = workspace.run(context)
    assert result.output == "Do it.|***"
    assert "token-0123456789" not in repr(context)
    own_context = workspace.context(env={"PAPERCLIP_API_KEY": "mine"})
    assert (
        workspace.run(msgspec.structs.replace(own_context, auth_token="token-0123456789")).output
        == "Do it.|mine"
    )


def test_offline_has_no_billing_type(workspace: Workspace) -> None:
    """An offline run has no billing type, even with a key."""
    assert workspace.run(workspace.context(offline=True)).billing_type is None


def test_agent_and_runtime_from_json() -> None:
    """Agent and runtime are read from JSON with the field names of the document."""
    agent = msgspec.convert({"id": "a", "companyId": "c", "name": "Ada"}, AdapterAgent)
    runtime = msgspec.convert({"sessionId": "s", "sessionParams": None, "taskKey": "t"}, AdapterRuntime)
    assert (agent.company_id, runtime.session_id, runtime.task_key) == ("c", "s", "t")


def test_which_session_is_resumed(tmp_path: Path) -> None:
    """The session id is read in every spelling, and the parameters win over the plain id.
    An invalid id is ignored, with a reason."""
    cwd = str(tmp_path)
    for name in ("sessionId", "session_id", "sessionID"):
        assert stored_session(AdapterRuntime(session_params={name: SESSION}), cwd) == (SESSION, None)
    both = AdapterRuntime(session_id=GONE, session_params={"sessionId": SESSION, "folder": cwd})
    assert stored_session(both, cwd) == (SESSION, None)
    params = SessionParams(session_id=SESSION, cwd=cwd)  # the object in a result, as it is
    runtime = AdapterRuntime(session_params=params)  # type: ignore[arg-type]
    assert stored_session(runtime, cwd) == (SESSION, None)
    assert stored_session(AdapterRuntime(), cwd) == (None, None)
    session, reason = stored_session(AdapterRuntime(session_id="--yolo"), cwd)
    assert session is None and reason is not None


def test_template_values() -> None:
    """A template can use the names of both systems.
    Invalid names, values that are not text or numbers, and very deep values are left out."""
    deep: dict[str, Any] = {"x": "y"}
    for _ in range(10):
        deep = {"a": deep}
    context = AdapterExecutionContext(
        run_id="r",
        agent=AdapterAgent(id="a"),
        config={"cwd": "."},
        context={"tenantId": "t", "a b": "no", "yes": True, "n": 1.5, "deep": deep, "list": ["x"]},
    )
    variables = variables_of(context)
    assert (variables["agentId"], variables["runId"], variables["tenantId"]) == ("a", "r", "t")
    assert variables["context.n"] == "1.5"
    assert not any(
        name.startswith(("context.a b", "context.yes", "context.deep", "context.list")) for name in variables
    )
    assert "agent.name" not in variables


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
def test_billing_type(environ: dict[str, str], kind: str) -> None:
    """The billing type is `api` for a key, `metered_api` for Vertex AI,
    `subscription` otherwise."""
    assert billing_type(environ) == kind


def test_lost_session() -> None:
    """A session is lost if it is not found or too long for the model, and for no other failure."""
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
