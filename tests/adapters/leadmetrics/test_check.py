"""Tests of the Leadmetrics environment check, with the codes of its document, on a prepared
machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from geminids import Options
from geminids.adapters import leadmetrics
from geminids.adapters.leadmetrics import AdapterCheck, AdapterEnvironmentTestResult
from geminids.adapters.leadmetrics.check import _judge_probe, _probe, _specified_checks
from geminids.config.paths import Places
from geminids.doctor.checks import Check
from geminids.events.model import Finished
from geminids.outcome import Failure
from geminids.run.result import Result
from random_events import recorded

KEY = "AIzaSy-only-for-this-test-0123456789"
# The output of a CLI that says hello.
_HELLO_RUN = (
    '{"type":"init","session_id":"5f0c0f5e-0000-4000-8000-000000000001","model":"flash"}',
    '{"type":"message","role":"assistant","content":"Hello!","delta":true}',
    '{"type":"result","status":"success","stats":{"total_tokens":3,"input_tokens":2,"output_tokens":1}}',
)


class Machine:
    """A home, a working folder, a geminids data folder, and a package that
    looks like Gemini CLI."""

    def __init__(self, root: Path, installs: Places) -> None:
        self.home, self.work, self.cli = root / "home", root / "work", root / "cli"
        self.places = Places(root / "geminids")
        for folder in (self.home, self.work, self.places.root):
            folder.mkdir()
        self.places.root.chmod(0o700)
        installs.node.mkdir(parents=True, exist_ok=True)
        self.places.node.symlink_to(installs.node)
        (self.cli / "bundle").mkdir(parents=True)
        manifest = {"name": "@google/gemini-cli", "version": "0.61.0", "bin": {"gemini": "bundle/gemini.js"}}
        (self.cli / "package.json").write_text(json.dumps(manifest))
        self.set_output("")

    def set_output(self, *lines: str, code: int = 0) -> None:
        """Set the lines that the fake CLI prints and its exit code."""
        out = "".join(f"process.stdout.write({json.dumps(line)} + '\\n');" for line in lines)
        version = "if(process.argv.includes('--version')){console.log('0.61.0');process.exit(0)}"
        script = (
            f"{version}process.stdin.resume();process.stdin.on('end',()=>{{{out}process.exit({code})}});\n"
        )
        (self.cli / "bundle" / "gemini.js").write_text(script)

    def test(self, *, probe: bool = False, **config: Any) -> AdapterEnvironmentTestResult:
        full_config = {
            "cwd": str(self.work),
            "command": str(self.cli),
            "model": "flash",
            "env": {"GEMINI_API_KEY": KEY},
            **config,
        }

        async def run_check() -> AdapterEnvironmentTestResult:
            return await leadmetrics.test_environment(full_config, probe=probe)

        return anyio.run(run_check)


@pytest.fixture
def machine(tmp_path: Path, installs: Places, monkeypatch: pytest.MonkeyPatch) -> Machine:
    prepared = Machine(tmp_path, installs)
    for name in ("GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_GENAI_USE_GCA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(prepared.home))
    monkeypatch.setenv("GEMINIDS_HOME", str(prepared.places.root))
    return prepared


def _by_code(result: AdapterEnvironmentTestResult) -> dict[str, AdapterCheck]:
    return {check.code: check for check in result.checks}


def test_prepared_machine_passes(machine: Machine) -> None:
    """A folder, a CLI and a key pass, each with its code. The JSON does not contain the key."""
    result = machine.test(env={"GEMINI_API_KEY": KEY})
    codes = [check.code for check in result.checks]
    assert codes[:3] == ["gemini_cwd_valid", "gemini_command_resolvable", "gemini_api_key_present"]
    assert {check.level for check in result.checks} == {"info"}
    encoded = json.loads(msgspec.json.encode(result))
    assert (encoded["adapterType"], encoded["status"]) == ("gemini_local", "pass")
    assert encoded["testedAt"].endswith("Z")
    assert KEY not in msgspec.json.encode(result).decode()


def test_no_sign_in_is_an_error(machine: Machine) -> None:
    """Without a key, Vertex AI or an account, the environment fails, with a hint."""
    result = machine.test(env={})
    assert result.status == "fail"
    assert _by_code(result)["gemini_api_key_missing"].level == "error"
    assert _by_code(result)["gemini_api_key_missing"].hint


def test_an_account_without_a_key_is_an_information(machine: Machine) -> None:
    """A stored login of an account is enough: the missing key is only an information."""
    folder = machine.home / ".gemini"
    folder.mkdir()
    (folder / "settings.json").write_text('{"security":{"auth":{"selectedType":"oauth-personal"}}}')
    (folder / "oauth_creds.json").write_text("{}")
    result = machine.test(env={})
    assert result.status != "fail"
    assert _by_code(result)["gemini_api_key_missing"].level == "info"


def test_a_probe_that_signs_in_proves_the_sign_in(machine: Machine) -> None:
    """If the CLI has a sign-in that geminids cannot see, such as a key in a keychain, the probe passes
    and the missing key is only an information."""
    machine.set_output(*_HELLO_RUN)
    result = machine.test(probe=True, env={})
    assert result.checks[-1].code == "gemini_hello_probe_passed"
    assert (result.status != "fail", _by_code(result)["gemini_api_key_missing"].level) == (True, "info")


def test_missing_cli(machine: Machine) -> None:
    """A missing command is an error, and no probe is run."""
    result = machine.test(command=str(machine.work / "none"), probe=True)
    assert result.status == "fail"
    assert _by_code(result)["gemini_command_unresolvable"].level == "error"
    assert not any("probe" in check.code for check in result.checks)


def test_a_command_that_does_not_start(machine: Machine) -> None:
    """A command whose `--version` fails is an error that says so, and no probe is run."""
    result = machine.test(command="/bin/false", probe=True)
    check = _by_code(result)["gemini_command_unresolvable"]
    assert (check.level, check.message) == ("error", "/bin/false --version: exit code 1")
    assert check.hint and "command" in check.hint
    assert "gemini_command_resolvable" not in _by_code(result)
    assert not any("probe" in check.code for check in result.checks)


def test_a_failing_command_does_not_show_secrets(machine: Machine) -> None:
    """The last line of stderr of a failing command is in the message, with secrets masked."""
    script = f"console.error({json.dumps('bad key ' + KEY)});process.exit(2);\n"
    (machine.cli / "bundle" / "gemini.js").write_text(script)
    message = _by_code(machine.test())["gemini_command_unresolvable"].message
    assert message.endswith("--version: exit code 2: bad key ***")


def test_a_cwd_that_cannot_be_created(machine: Machine) -> None:
    """A missing working folder in a folder that takes no new files is an error, also for root."""
    assert _by_code(machine.test(cwd="/proc/x/y"))["gemini_cwd_invalid"].level == "error"


def test_invalid_cwd(machine: Machine) -> None:
    """A file as working folder is reported once, and the other checks still run."""
    file = machine.work / "file"
    file.touch()
    codes = [check.code for check in machine.test(cwd=str(file)).checks]
    assert codes.count("gemini_cwd_invalid") == 1
    assert "gemini_cwd_valid" not in codes
    assert "gemini_command_resolvable" in codes


def test_missing_cwd_is_valid(machine: Machine) -> None:
    """A missing working folder is valid, because a run creates it. The check does not."""
    new = machine.work / "new"
    assert "gemini_cwd_valid" in _by_code(machine.test(cwd=str(new)))
    assert not new.exists()


def test_instructions_file(machine: Machine) -> None:
    """A missing instructions file is an error, and an existing one is valid."""
    file = machine.work / "AGENT.md"
    result = machine.test(instructionsFilePath=str(file))
    assert _by_code(result)["gemini_instructions_invalid"].level == "error"
    assert "gemini_command_resolvable" in _by_code(result)
    file.write_text("Be kind.\n")
    assert "gemini_instructions_valid" in _by_code(machine.test(instructionsFilePath=str(file)))


def test_invalid_configuration(machine: Machine) -> None:
    """Each invalid field is one error. A `GeminiLocalConfig` is checked like a dict."""
    result = machine.test(timeoutSec="soon", modle="x")
    invalid_fields = [check.message.partition(":")[0] for check in result.checks if check.level == "error"]
    assert sorted(invalid_fields) == ["modle", "timeoutSec"]
    assert result.status == "fail"
    config = leadmetrics.GeminiLocalConfig(cwd=str(machine.work), command=str(machine.cli), timeout_sec=-1)

    async def run_check() -> AdapterEnvironmentTestResult:
        return await leadmetrics.test_environment(config)

    assert anyio.run(run_check).status == "fail"


def test_configuration_that_is_not_an_object(machine: Machine) -> None:
    """A configuration that is not an object is one error, and no probe is run."""

    async def run_check() -> AdapterEnvironmentTestResult:
        return await leadmetrics.test_environment([])  # type: ignore[arg-type]

    result = anyio.run(run_check)
    assert [check.code for check in result.checks if "config: " in check.message] == ["gemini_config_invalid"]
    assert (result.status, any("probe" in check.code for check in result.checks)) == ("fail", False)


def test_invalid_further_options(machine: Machine) -> None:
    """Invalid values in `options` are errors, and the other checks still run."""
    result = machine.test(options={"maxTurns": 0, "effort": "low"})
    assert [check.message.partition(":")[0] for check in result.checks if check.level == "error"] == [
        "maxTurns"
    ]
    assert "gemini_command_resolvable" in _by_code(result)
    assert machine.test(options={1: "the name must be a string"}).status == "fail"


def test_missing_checks_are_an_error() -> None:
    """If the check of the CLI is missing or skipped, that is an error with the reason."""
    (check,) = _specified_checks({}, Options())
    assert (check.code, check.level) == ("gemini_command_unresolvable", "error")
    missing = {"cli": Check("cli", "skipped", "no Node"), "node": Check("node", "error", "there is no Node")}
    (check,) = _specified_checks(missing, Options())
    assert check.message == "there is no Node"


def test_probe_that_cannot_start(machine: Machine) -> None:
    """A probe that cannot start is an error check and raises no exception."""
    check = anyio.run(_probe, Options(cwd=str(machine.work / "gone")))
    assert (check.code, check.level) == ("gemini_hello_probe_failed", "error")


def test_other_checks_have_geminids_codes(machine: Machine) -> None:
    """Other problems that doctor finds are reported with codes of geminids."""
    (machine.home / ".gemini").mkdir()
    (machine.home / ".gemini" / "settings.json").write_text("{ not json")
    result = _by_code(machine.test())
    assert result["gemini_settings"].level == "error"
    machine.places.root.chmod(0o755)
    assert _by_code(machine.test())["gemini_homes"].level == "warn"


def test_probe_passes(machine: Machine) -> None:
    """The probe passes if the run succeeds and its answer contains "hello"."""
    machine.set_output(*_HELLO_RUN)
    result = machine.test(
        probe=True, env={"GEMINI_API_KEY": KEY}, promptTemplate="{{agentId}} has no value here"
    )
    assert (result.status, result.checks[-1].code) == ("pass", "gemini_hello_probe_passed")
    assert result.checks[-1].detail == "Hello!"


def test_probe_fails(machine: Machine) -> None:
    """The probe fails with a detail if the CLI prints no result."""
    machine.set_output("oh no", code=3)
    result = machine.test(probe=True, env={"GEMINI_API_KEY": KEY})
    assert (result.status, result.checks[-1].code) == ("fail", "gemini_hello_probe_failed")
    assert result.checks[-1].detail


def _result(recording: str = "plain", **more: Any) -> Result:
    last = recorded(recording)[-1]
    assert isinstance(last, Finished)
    return Result.of(msgspec.structs.replace(last, **more))


def _failure(kind: Any, message: str = "so it is") -> Failure:
    return Failure(kind=kind, message=message, retryable=False, hint="Do that.")


@pytest.mark.parametrize(
    ("result", "code", "level"),
    [
        (_result(outcome="failed", failure=_failure("quota_day")), "quota_exhausted", "warn"),
        (_result("timed_out"), "timed_out", "warn"),
        (_result(answer="well, HELLO there"), "passed", "info"),
        (_result(answer="Othello"), "unexpected_output", "warn"),
        (_result("bad_key"), "auth_required", "error"),
        (_result("no_result"), "failed", "error"),
    ],
)
def test_result_of_a_probe(result: Result, code: str, level: str) -> None:
    """The result of a probe run decides the code and the level of its check."""
    check = _judge_probe(result)
    assert (check.code, check.level) == (f"gemini_hello_probe_{code}", level)


def test_detail_is_one_short_line() -> None:
    """The detail of a check is one line of at most 240 characters."""
    detail = _judge_probe(_result(outcome="failed", failure=_failure("server", "a\n" * 500))).detail
    assert detail is not None and len(detail) == 240 and "\n" not in detail
