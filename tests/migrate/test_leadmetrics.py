"""A user of Leadmetrics' `gemini-local` adapter runs agents with `geminids.adapters.leadmetrics`.

Every run starts the real CLI with a scripted model. The rules are those of the document.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest

from geminids.adapters import leadmetrics
from geminids.gateway import Call, Reply, ReplyUsage, Request
from sign_ins import SIGN_INS

pytestmark = pytest.mark.real
deep = pytest.mark.deep

PAGE = Path(__file__).parents[2] / "docs" / "migrate" / "leadmetrics.md"
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
SERVED = "gemini-2.5-flash-001"
# The stdout of a run, as the document shows it.
DOCUMENTED_STDOUT = """\
{ "type": "init", "timestamp": "2026-04-01T10:00:00Z", "session_id": "3e0923c9-7033-438d-a978-a361d8031f47", "model": "auto-gemini-3" }
{ "type": "message", "timestamp": "2026-04-01T10:00:01Z", "role": "user", "content": "Reply with PONG" }
{ "type": "message", "timestamp": "2026-04-01T10:00:02Z", "role": "assistant", "content": "PO", "delta": true }
{ "type": "message", "timestamp": "2026-04-01T10:00:02Z", "role": "assistant", "content": "NG", "delta": true }
{ "type": "result", "timestamp": "2026-04-01T10:00:03Z", "status": "success", "stats": { "input_tokens": 100, "output_tokens": 10, "cached": 20, "duration_ms": 3000 } }
"""  # noqa: E501


class Worker:
    """An orchestrator's worker: it runs one agent, and stores what each run returns."""

    def __init__(self, world: Any, **config: Any) -> None:
        self.world = world
        env = {**world.gateway.env, "HOME": str(world.home), "TMPDIR": str(world.tmp)}
        self.config: dict[str, Any] = {
            "cwd": str(world.cwd),
            "command": world.version,
            "model": "flash",
            "graceSec": 2,
            **config,
            "env": {**env, **config.get("env", {})},
        }
        self.stored: dict[str, Any] | None = None
        self.stdout = ""

    def on_log(self, stream: str, chunk: str) -> None:
        if stream == "stdout":
            self.stdout += chunk

    def run(self, prompt: str = "hello", **config: Any) -> leadmetrics.AdapterExecutionResult:
        """Run the agent with the stored session, and store the session of the result."""
        context = leadmetrics.AdapterExecutionContext(
            run_id="run-7",
            agent=leadmetrics.AdapterAgent(id="a1", company_id="t1", name="AI Copywriter"),
            config={**self.config, **config},
            runtime=leadmetrics.AdapterRuntime(session_params=self.stored),
            context={"prompt": prompt, "tenant": {"name": "Acme"}},
            on_log=self.on_log,
        )
        result = anyio.run(leadmetrics.execute, context)
        self.stored = json.loads(result.encode())["sessionParams"]
        return result

    def test_environment(self, **config: Any) -> leadmetrics.AdapterEnvironmentTestResult:
        async def run() -> leadmetrics.AdapterEnvironmentTestResult:
            return await leadmetrics.test_environment({**self.config, **config})

        return anyio.run(run)

    @property
    def sent(self) -> str:
        """The last request to the model, as JSON."""
        return json.dumps(self.world.gateway.requests[-1].body)


@pytest.fixture
def worker(world: Any) -> Worker:
    return Worker(world)


def test_the_program_of_the_page(make_world: Any) -> None:
    """The program on the migration page runs as it is: the second run resumes the first one's
    session."""
    world = make_world("0.61.0")
    (program,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "HOME": str(world.home), "TMPDIR": str(world.tmp)},
        cwd=world.root,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    environment, first, second = done.stdout.splitlines()
    assert environment in ("environment: pass", "environment: warn")
    assert first.startswith("run-1 ok ") and second == first.replace("run-1", "run-2")


def test_every_name_of_the_page_exists() -> None:
    """Every name that the page's table offers exists in the module."""
    table = PAGE.read_text().partition("## Names")[2].partition("## What differs")[0]
    rows = [
        line.split("|")[2] for line in table.splitlines() if line.startswith("| `") or "one object" in line
    ]
    names = {name for row in rows for name in re.findall(r"`(?:await )?([A-Za-z_]+)(?:\([^`]*\))?`", row)}
    assert {name for name in names if not hasattr(leadmetrics, name)} == {"encode", "OptionsError"}
    assert hasattr(leadmetrics.AdapterExecutionResult, "encode")
    own = {"AdapterAgent", "AdapterRuntime", "identity"}
    documented = {
        "type",
        "label",
        "models",
        "default_model",
        "execute",
        "test_environment",
        "build_transcript",
    }
    assert names >= own | documented | {"GeminiLocalConfig", "extract_usage", "calculate_cost_usd"}


# Prompt, configuration and template.


@pytest.mark.parametrize("prompt", ["-h", 'Say "it\'s" $HOME `date`', pytest.param("a\nb" * 99, marks=deep)])
def test_the_prompt_arrives_as_it_is(worker: Worker, prompt: str) -> None:
    """The prompt goes to the model as it is: no shell and no flag reads it."""
    worker.world.gateway.reply(text="PONG")
    result = worker.run(prompt)
    assert (result.success, result.output, result.error) == (True, "PONG", None)
    assert prompt in [
        part.get("text") for part in worker.world.gateway.requests[-1].body["contents"][-1]["parts"]
    ]


def test_a_prompt_that_the_cli_would_cut_is_refused(worker: Worker) -> None:
    """A prompt over 8 MB is refused with an error before any request, because the CLI cuts it."""
    result = worker.run("x" * (8 * 1024 * 1024 + 1))
    assert (result.success, result.transcript, worker.world.gateway.requests) == (False, (), [])
    assert result.error_meta is not None and result.error_meta.kind == "bad_prompt"


def test_the_configuration_takes_effect(worker: Worker) -> None:
    """`cwd` is created, `model` is requested, the instructions come before the filled template, and
    `env` and `yolo` reach a tool."""
    world = worker.world
    instructions = world.root / "AGENT.md"
    instructions.write_text("# Be brief.\n")
    world.gateway.reply(calls=[("run_shell_command", {"command": "echo $SHOWN > shown.txt"})])
    world.gateway.reply(text="done")
    cwd = world.root / "new" / "folder"
    result = worker.run(
        "Write.",
        cwd=str(cwd),
        model="gemini-2.5-pro",
        promptTemplate="{{agentId}} {{agent.name}} {{tenantId}} {{tenant.name}} {{runId}} "
        "{{color:1}} <a b={{c: 1}}/>: {{prompt}}",
        instructionsFilePath=str(instructions),
        env={**worker.config["env"], "SHOWN": "seen"},
        yolo=True,
    )
    assert result.success, result.error
    assert (cwd / "shown.txt").read_text() == "seen\n"
    assert {request.model for request in world.gateway.requests} == {"gemini-2.5-pro"}
    filled = "# Be brief.\\n\\na1 AI Copywriter t1 Acme run-7 {{color:1}} <a b={{c: 1}}/>: Write."
    assert filled in worker.sent
    (user,) = [entry for entry in _entries(result) if entry["kind"] == "user"]
    assert user["text"].startswith("# Be brief.\n\na1 AI Copywriter") and user["text"].endswith(": Write.")


def test_a_variable_without_a_value(worker: Worker) -> None:
    """A variable without a value is an error that names it, and nothing is sent."""
    result = worker.run(promptTemplate="{{tenant.nmae}}")
    assert "{{tenant.nmae}}" in (result.error or "")
    assert worker.world.gateway.requests == []


def test_without_yolo_nothing_is_changed(worker: Worker) -> None:
    """Without `yolo`, a shell command has no effect, and its result says that it was denied."""
    worker.world.gateway.reply(calls=[("run_shell_command", {"command": "touch made.txt"})])
    worker.world.gateway.reply(text="done")
    result = worker.run()
    assert result.success, result.error
    assert not (worker.world.cwd / "made.txt").exists()
    (denied,) = [entry for entry in _entries(result) if entry["kind"] == "tool_result"]
    assert (denied["isError"], denied["status"]) == (True, "denied")


@pytest.mark.parametrize("model", ["pro", pytest.param("gemini-99-of-tomorrow", marks=deep)])
def test_models(worker: Worker, model: str) -> None:
    """An alias is resolved by the CLI, and an id that nobody knows is passed on."""
    worker.world.gateway.reply(text="done")
    assert worker.run(model=model).model == model
    asked = worker.world.gateway.requests[-1].model
    assert asked == model or (model == "pro" and asked.startswith("gemini-") and "pro" in asked)


# Sessions.


def test_the_session_is_resumed(worker: Worker) -> None:
    """The next run of the agent in the folder has the conversation. A run in another folder has not,
    and does not clear the session."""
    gateway = worker.world.gateway
    gateway.when("remember", text="the word is pear")
    first = worker.run("remember")
    assert worker.stored == {"sessionId": first.session_id, "cwd": str(worker.world.cwd)}
    gateway.when("which word", text="pear")
    second = worker.run("which word")
    assert (second.session_id, second.clear_session) == (first.session_id, False)
    assert "the word is pear" in worker.sent
    gateway.when("elsewhere", text="no idea")
    third = worker.run("elsewhere", cwd=str(worker.world.root / "other"))
    assert (third.success, third.clear_session) == (True, False)
    assert third.session_id not in (None, first.session_id)
    assert "the word is pear" not in worker.sent


def test_a_stored_session_can_be_text(worker: Worker) -> None:
    """The stored session may be the JSON of `session_params`. Text that is no JSON object is a stored
    session without an id: the run starts a new session and clears it."""
    first = worker.run()
    worker.stored = json.dumps(worker.stored)  # type: ignore[assignment]
    second = worker.run("again")
    assert (second.session_id, second.clear_session) == (first.session_id, False)
    worker.stored = "no json"  # type: ignore[assignment]
    third = worker.run("more")
    assert (third.success, third.clear_session) == (True, True)
    assert third.session_id not in (None, first.session_id)


def test_the_turn_limit_keeps_the_session(worker: Worker) -> None:
    """A run that reaches `maxTurns` does not clear its session: the next run continues in it, with all
    turns again."""
    (worker.world.cwd / "a.txt").write_text("apple")
    for _ in range(2):
        worker.world.gateway.when("go", calls=[("read_file", {"file_path": "a.txt"})])
    worker.world.gateway.when("and now", text="an apple")
    limited = worker.run("go", options={"maxTurns": 1})
    assert (limited.error_code, limited.clear_session) == ("max_turns_exhausted", False)
    continued = worker.run("and now", options={"maxTurns": 1})
    assert (continued.success, continued.session_id) == (True, limited.session_id)
    assert "apple" in worker.sent


def _cut_header(file: Path) -> None:
    file.write_bytes(b"\n".join(file.read_bytes().split(b"\n")[1:]))


def _keep_header(file: Path) -> None:
    file.write_bytes(file.read_bytes().split(b"\n")[0] + b"\n")


DAMAGES: dict[str, Callable[[Path], object]] = {
    "gone": Path.unlink,
    "empty": lambda file: file.write_bytes(b""),
    "garbage": lambda file: file.write_bytes(b"\0garbage\nnot json\n"),
    "no header": _cut_header,
    "only the header": _keep_header,
}
_FEW = [*(list(DAMAGES)[:2]), *(pytest.param(name, marks=deep) for name in list(DAMAGES)[2:])]


@pytest.mark.parametrize("damage", _FEW)
def test_a_lost_session_is_replaced(worker: Worker, damage: str) -> None:
    """If the file of the stored session is gone, empty or damaged, the same call runs the prompt in a
    new session, once. The result has `clear_session` and the full id of the new session."""
    world = worker.world
    world.gateway.reply(text="first")
    first = worker.run()
    (file,) = world.home.rglob("session-*.jsonl")
    DAMAGES[damage](file)
    world.gateway.reply(text="second")
    second = worker.run("again")
    assert (second.success, second.output, second.clear_session) == (True, "second", True), second.error
    assert second.session_id != first.session_id and UUID.fullmatch(second.session_id or "")
    assert len(world.gateway.requests) == 2
    world.gateway.reply(text="third")
    third = worker.run("once more")
    assert (third.session_id, third.clear_session) == (second.session_id, False)


@pytest.mark.parametrize("damage", ["empty", pytest.param("garbage", marks=deep)])
@pytest.mark.parametrize("fresh", [True, False])
def test_a_lost_session_on_the_command_line(worker: Worker, damage: str, fresh: bool) -> None:
    """`run --resume ID --fresh -o adapter` starts a new session in place of a damaged one and reports
    `clearSession` and the full new id. Without `--fresh` it fails, and no request is sent."""
    world = worker.world
    world.gateway.reply(text="first")
    first = worker.run()
    (file,) = world.home.rglob("session-*.jsonl")
    DAMAGES[damage](file)
    world.gateway.reply(text="second")
    argv = [sys.executable, "-m", "geminids", "run", "again", "--model=flash", "-o", "adapter"]
    done = subprocess.run(
        [
            *argv,
            f"--cwd={world.cwd}",
            f"--gemini={world.version}",
            f"--resume={first.session_id}",
            *(["--fresh"] if fresh else []),
        ],
        env={**os.environ, **worker.config["env"]},
        capture_output=True,
        text=True,
        timeout=120,
    )
    result = json.loads(done.stdout)
    assert (result["success"], result["clearSession"]) == (fresh, True), done.stderr
    if fresh:
        assert UUID.fullmatch(result["sessionId"]) and result["sessionId"] != first.session_id
        assert result["sessionParams"]["sessionId"] == result["sessionId"]
    else:
        assert (result["errorMeta"]["kind"], result["sessionId"]) == ("session_not_found", None)
    assert len(world.gateway.requests) == 1 + fresh


# The end of a run.


def test_a_timeout_ends_every_process(worker: Worker) -> None:
    """At `timeoutSec` the run ends with the document's error. A tool that ignores SIGTERM is gone too,
    and `ended` lists the processes that geminids had to kill."""
    command = "trap '' TERM; echo $$ > tool.pid; while true; do sleep 1; done"
    worker.world.gateway.reply(calls=[("run_shell_command", {"command": command})])
    result = worker.run(timeoutSec=15, graceSec=1, yolo=True)
    assert (result.success, result.timed_out) == (False, True)
    assert result.error == "Process timed out after 15s"
    pid = int((worker.world.cwd / "tool.pid").read_text())
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    ended = json.loads(result.encode())["ended"]
    assert "KILL" in [process["signal"] for process in ended], ended
    assert all(isinstance(process["pid"], int) and process["command"] for process in ended)


def test_an_error_of_the_api(worker: Worker) -> None:
    """A failed run has the API's message as its error, and no result is made up."""
    worker.world.gateway.reply(status=400, error="nothing doing", error_status="INVALID_ARGUMENT")
    result = worker.run()
    assert (result.success, result.error, result.output) == (False, "nothing doing", "")


# Tokens and cost.


def _script(request: Request) -> Reply | None:
    if request.method != "stream":
        return None
    usage = ReplyUsage(input=1000, output=100, cached=400, thinking=50)
    if not request.turn_results:
        return Reply(calls=[Call("glob", {"pattern": "*"})], usage=usage, model_version=SERVED)
    return Reply(text="done", usage=usage, model_version="gemini-2.5-pro")


def test_the_served_model_decides_the_cost(make_world: Any) -> None:
    """The price is that of the models that the API served: here first another release of the
    requested model, then the fall-back. Thinking is billed as output, and cached input is cheaper."""
    world = make_world("0.61.0")
    with SIGN_INS["key"].serve(_script, world.root) as google:
        result = Worker(world, model="gemini-2.5-flash", env=google.env).run()
    assert result.success, result.error
    assert result.usage == leadmetrics.AdapterUsage(
        input_tokens=2000, output_tokens=300, cached_input_tokens=800
    )
    flash = 600 * 0.30 + 400 * 0.03 + 150 * 2.50
    pro = 600 * 1.25 + 400 * 0.125 + 150 * 10.0
    assert result.cost_usd == pytest.approx((flash + pro) / 1_000_000)
    assert (result.cost_basis, result.auth_mode, result.billing_type) == ("exact", "key", "api")


def test_a_cost_that_is_not_known(make_world: Any) -> None:
    """If the API serves a model without a known price, the cost is null and its basis `unknown`."""
    world = make_world("0.61.0")

    def script(request: Request) -> Reply | None:
        return Reply(text="done", model_version="gemini-99-ultra") if request.method == "stream" else None

    with SIGN_INS["key"].serve(script, world.root) as google:
        result = Worker(world, model="gemini-2.5-flash", env=google.env).run()
    assert (result.success, result.cost_usd, result.cost_basis) == (True, None, "unknown")


@deep
def test_the_cost_without_the_gateway_is_an_estimate(make_world: Any) -> None:
    """Without the gateway, only the CLI's own sums are known: the cost is an estimate, never exact."""
    world = make_world("0.61.0")
    with SIGN_INS["key"].serve(_script, world.root) as google:
        result = Worker(world, model="gemini-2.5-flash", env=google.env, options={"gateway": "off"}).run()
    assert result.success, result.error
    assert result.cost_basis in ("estimate", "unknown")


@deep
@pytest.mark.parametrize("sign_in", ["vertex_key", "account"])
def test_accounts_and_vertex_have_no_cost_in_dollars(make_world: Any, sign_in: str) -> None:
    """A run with an account or Vertex AI has tokens, but its cost is null, not 0."""
    world = make_world("0.61.0")
    with SIGN_INS[sign_in].serve(_script, world.root) as google:
        worker = Worker(world, model="gemini-2.5-pro")
        env = {"HOME": str(world.home), "TMPDIR": str(world.tmp), **google.env}
        result = worker.run(env=env)
    assert result.success, result.error
    assert result.usage is not None
    assert (result.cost_usd, result.cost_basis) == (None, "unknown")
    assert result.auth_mode == SIGN_INS[sign_in].auth_mode


def test_a_refused_key(worker: Worker) -> None:
    """A key that the API refuses gives the code for the sign-in, and no usage: null, not 0."""
    worker.world.gateway.reply(status=403, error="no such key", error_status="PERMISSION_DENIED")
    result = worker.run()
    assert (result.success, result.error_code) == (False, "gemini_auth_required")
    body = json.loads(result.encode())
    assert (body["usage"], set(body["resultJson"]["stats"])) == (None, {"duration_ms"})


# The environment test.


def test_a_good_environment(worker: Worker) -> None:
    """The checks have the document's subjects: folder, instructions, CLI and a live probe."""
    instructions = worker.world.root / "AGENT.md"
    instructions.write_text("Be kind.\n")
    worker.world.gateway.when("Respond with: hello", text="hello")
    report = worker.test_environment(instructionsFilePath=str(instructions))
    codes = {check.code for check in report.checks}
    assert report.status != "fail", report
    assert codes >= {
        "gemini_cwd_valid",
        "gemini_instructions_valid",
        "gemini_command_resolvable",
        "gemini_api_key_present",
        "gemini_hello_probe_passed",
    }


def test_an_environment_without_a_sign_in_fails(worker: Worker) -> None:
    """Without any way to sign in, the environment fails with a hint, and no request is sent."""
    env = {"HOME": str(worker.world.home), "TMPDIR": str(worker.world.tmp)}
    report = worker.test_environment(env=env)
    assert report.status == "fail"
    missing = next(check for check in report.checks if check.code == "gemini_api_key_missing")
    assert missing.level == "error" and missing.hint
    assert worker.world.gateway.requests == []


def test_an_environment_with_a_refused_key_fails(worker: Worker) -> None:
    """If the API refuses the key of the probe, the environment fails."""
    worker.world.gateway.when("Respond", status=403, error="no such key", error_status="PERMISSION_DENIED")
    report = worker.test_environment()
    assert (report.status, report.checks[-1].code) == ("fail", "gemini_hello_probe_auth_required")
    assert report.checks[-1].level == "error"


# Skills and transcript.


def test_an_environment_with_two_wrong_fields(worker: Worker) -> None:
    """Wrong fields are reported, and the other checks use the fields that are right: the folder, and
    the key in `env`."""
    report = worker.test_environment(timeoutSec="soon", promptTemplate="{{foo}}")
    messages = {check.code: check.message for check in report.checks}
    errors = [check for check in report.checks if check.level == "error"]
    assert [check.message.partition(":")[0] for check in errors] == ["timeoutSec", "promptTemplate"]
    assert messages["gemini_cwd_valid"] == str(worker.world.cwd)
    assert "gemini_api_key_present" in messages


@pytest.mark.parametrize("trusted", [True, False])
def test_a_workspace_skill(worker: Worker, trusted: bool) -> None:
    """A skill in `cwd/.agents/skills` is offered to the model if the folder is trusted, else not."""
    folder = worker.world.cwd / ".agents" / "skills" / "api-auditor"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(
        "---\nname: api-auditor\ndescription: Audits API endpoints.\n---\n# Do it\n"
    )
    worker.world.gateway.reply(text="done")
    assert worker.run(options={"trustWorkspace": trusted}).success
    assert ("Audits API endpoints." in worker.sent) == trusted


def _entries(result: leadmetrics.AdapterExecutionResult) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = json.loads(result.encode())["transcript"]
    return entries


def test_the_order_of_a_transcript(worker: Worker) -> None:
    """A turn has its thoughts, then its tool calls with results, then its text. Times never
    decrease."""
    (worker.world.cwd / "a.txt").write_text("the text of a\n")
    reply = worker.world.gateway.reply
    call = ("read_file", {"file_path": "a.txt"})
    reply(thought="**Look**\nI must read.", text="Let me read.", calls=[call])
    reply(thought="**Again**\nOnce more.", calls=[call])
    reply(thought="**End**\nI know it.", text="All read.")
    entries = _entries(worker.run("read"))
    turn = ["thinking", "tool_call", "tool_result"]
    kinds = ["init", "user", *turn, "assistant", *turn, "thinking", "assistant"]
    assert [entry["kind"] for entry in entries] == kinds
    texts = [entry["text"] for entry in entries if entry["kind"] in ("thinking", "assistant")]
    thoughts = ["Look: I must read.", "Again: Once more.", "End: I know it."]
    assert texts == [thoughts[0], "Let me read.", thoughts[1], thoughts[2], "All read."]
    assert entries[4]["content"] == "the text of a\n"
    times = [entry["ts"] for entry in entries]
    assert times == sorted(times)


# Reading stored output, and the identity of the adapter.


def test_reading_the_output_of_the_cli(worker: Worker) -> None:
    """The functions read the CLI's own stdout, which `on_log` receives."""
    worker.world.gateway.reply(text="PONG", usage=ReplyUsage(input=100, output=10, cached=20))
    result = worker.run("Reply with PONG")
    lines = leadmetrics.parse_ndjson_lines(worker.stdout)
    assert leadmetrics.extract_session_id(lines) == result.session_id
    assert leadmetrics.extract_output(lines) == "PONG"
    used = leadmetrics.extract_usage(lines)
    assert used == leadmetrics.AdapterUsage(input_tokens=100, output_tokens=10, cached_input_tokens=20)
    model = leadmetrics.extract_model_id(lines)
    assert model == worker.world.gateway.requests[-1].model
    kinds = [type(entry).__name__ for entry in leadmetrics.build_transcript(lines)]
    assert kinds[0] == "Init" and kinds[-1] == "Assistant"


def test_reading_the_output_in_the_document() -> None:
    """The functions read the document's own example, with noise between its lines."""
    noisy = DOCUMENTED_STDOUT.replace("\n", "\nnoise\n", 1) + '{"type":"future"}\n'
    for text in (DOCUMENTED_STDOUT, noisy, noisy.encode()):
        lines = leadmetrics.parse_ndjson_lines(text)
        assert leadmetrics.extract_session_id(lines) == "3e0923c9-7033-438d-a978-a361d8031f47"
        assert leadmetrics.extract_output(lines) == "PONG"
        assert leadmetrics.extract_model_id(lines) == "auto-gemini-3"
        used = leadmetrics.extract_usage(lines)
        assert used == leadmetrics.AdapterUsage(input_tokens=100, output_tokens=10, cached_input_tokens=20)
    assert leadmetrics.extract_usage(lines[:2]) is None
    assert leadmetrics.extract_session_id(()) is leadmetrics.extract_model_id(()) is None


def test_the_price_of_stored_tokens() -> None:
    """Tokens have a price if an API key is billed for them. It is unknown, not 0, for accounts, for
    Vertex AI and for models without a price."""
    used = leadmetrics.AdapterUsage(input_tokens=1_000, output_tokens=100, cached_input_tokens=400)
    key = {"GEMINI_API_KEY": "k"}
    assert leadmetrics.calculate_cost_usd("gemini-2.5-pro", used, key) == pytest.approx(0.0018)
    stored = {"inputTokens": 1_000, "outputTokens": 100, "cachedInputTokens": 400}
    assert leadmetrics.calculate_cost_usd("gemini-2.5-pro", stored, key) == pytest.approx(0.0018)
    vertex = {"GOOGLE_GENAI_USE_VERTEXAI": "true", "GOOGLE_API_KEY": "k"}
    for model, usage, env in (
        ("gemini-2.5-pro", used, {}),
        ("gemini-2.5-pro", used, vertex),
        ("gemini-99-ultra", used, key),
        (None, used, key),
        ("gemini-2.5-pro", None, key),
    ):
        assert leadmetrics.calculate_cost_usd(model, usage, env) is None


def test_a_template_is_filled_without_a_run() -> None:
    """`render_template` fills a template like `execute`."""
    context = leadmetrics.AdapterExecutionContext(
        run_id="r1", agent=leadmetrics.AdapterAgent(id="a1"), config={"cwd": "."}, context={"prompt": "Go."}
    )
    assert leadmetrics.render_template("{{runId}}: {{prompt}} {{x:1}}", context) == "r1: Go. {{x:1}}"


def test_the_identity() -> None:
    """The module has the adapter's type, label, models, default model and page, and `identity()` has
    all of them for a portal."""
    data = leadmetrics.identity()
    assert (leadmetrics.type, leadmetrics.label, leadmetrics.default_model) == (
        "gemini_local",
        "Gemini CLI (local)",
        "auto",
    )
    assert (data.type, data.label, data.default_model) == (
        leadmetrics.type,
        leadmetrics.label,
        leadmetrics.default_model,
    )
    assert (data.models, data.config_fields) == (leadmetrics.models(), leadmetrics.config_fields())
    assert {"auto", "pro", "flash", "flash-lite"} <= {model.id for model in data.models}
    documented = [field.name for field in leadmetrics.config_fields()][:8]
    assert sorted(documented) == sorted(
        ["cwd", "model", "promptTemplate", "instructionsFilePath", "env", "timeoutSec", "graceSec", "yolo"]
    )
    page = leadmetrics.agent_configuration_doc()
    assert all(f"`{name}`" in page for name in documented)


def test_the_form() -> None:
    """One schema drives form, validation and page: every problem is reported at once, by field."""
    bad = {"timeoutSec": "soon", "graceSec": -1, "yolo": "maybe", "modle": "pro"}
    problems = {problem.name: problem.message for problem in leadmetrics.validate_config(bad)}
    assert set(problems) == {"cwd", *bad}
    assert problems["yolo"] == "is not true or false"
    both = leadmetrics.validate_config({"cwd": "/a", "promptTemplate": "{{foo}}", "timeoutSec": "soon"})
    assert {problem.name for problem in both} == {"promptTemplate", "timeoutSec"}
    assert "helloProbeTimeoutSec" in [field.name for field in leadmetrics.config_fields()]
    config = leadmetrics.build_config({"cwd": "/agents/a", "timeoutSec": "60", "yolo": "on"})
    assert (config.timeout_sec, config.grace_sec, config.yolo) == (60, 5, True)
    assert leadmetrics.build_config({"cwd": "/agents/a"}).timeout_sec == 120
