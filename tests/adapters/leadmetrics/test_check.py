"""Would a run work here? By the codes of the adapters, on a machine that has what the test gives it."""

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


class Machine:
    """A home, a folder to work in, geminids' own folder, and a package that looks like Gemini CLI."""

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
        self.says("")

    def says(self, *lines: str, code: int = 0) -> None:
        """What the CLI prints in any run, and how it ends."""
        out = "".join(f"process.stdout.write({json.dumps(line)} + '\\n');" for line in lines)
        script = f"process.stdin.resume();process.stdin.on('end',()=>{{{out}process.exit({code})}});\n"
        (self.cli / "bundle" / "gemini.js").write_text(script)

    def test(self, *, probe: bool = False, **config: Any) -> AdapterEnvironmentTestResult:
        given = {"cwd": str(self.work), "command": str(self.cli), "model": "flash", **config}

        async def look() -> AdapterEnvironmentTestResult:
            return await leadmetrics.test_environment(given, probe=probe)

        return anyio.run(look)


@pytest.fixture
def machine(tmp_path: Path, installs: Places, monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine(tmp_path, installs)
    for name in ("GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_GENAI_USE_GCA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(made.home))
    monkeypatch.setenv("GEMINIDS_HOME", str(made.places.root))
    return made


def _by_code(found: AdapterEnvironmentTestResult) -> dict[str, AdapterCheck]:
    return {check.code: check for check in found.checks}


def test_all_well(machine: Machine) -> None:
    """Folder, CLI and key, each by its code; the result is what a portal reads."""
    found = machine.test(env={"GEMINI_API_KEY": KEY})
    codes = [check.code for check in found.checks]
    assert codes[:3] == ["gemini_cwd_valid", "gemini_command_resolvable", "gemini_api_key_present"]
    assert {check.level for check in found.checks} == {"info"}
    said = json.loads(msgspec.json.encode(found))
    assert (said["adapterType"], said["status"]) == ("gemini_local", "pass")
    assert said["testedAt"].endswith("Z")
    assert KEY not in msgspec.json.encode(found).decode()


def test_no_key_is_told_and_is_no_error(machine: Machine) -> None:
    """An account may still sign in: the probe tells."""
    found = _by_code(machine.test())
    assert found["gemini_api_key_missing"].level == "info"
    assert found["gemini_api_key_missing"].hint


def test_no_cli(machine: Machine) -> None:
    """A command that is not there is an error, and no probe is made."""
    found = machine.test(command=str(machine.work / "none"), probe=True)
    assert found.status == "fail"
    assert _by_code(found)["gemini_command_unresolvable"].level == "error"
    assert not any("probe" in check.code for check in found.checks)


def test_a_folder_that_is_none(machine: Machine) -> None:
    """It is told once, and the rest is looked at all the same."""
    file = machine.work / "file"
    file.touch()
    codes = [check.code for check in machine.test(cwd=str(file)).checks]
    assert codes.count("gemini_cwd_invalid") == 1
    assert "gemini_cwd_valid" not in codes
    assert "gemini_command_resolvable" in codes


def test_a_folder_that_is_absent_would_be_made(machine: Machine) -> None:
    """As the document has it; a test without a probe does not make it."""
    new = machine.work / "new"
    assert "gemini_cwd_valid" in _by_code(machine.test(cwd=str(new)))
    assert not new.exists()


def test_the_instructions_file(machine: Machine) -> None:
    """It is there, or that is an error."""
    file = machine.work / "AGENT.md"
    found = machine.test(instructionsFilePath=str(file))
    assert _by_code(found)["gemini_instructions_invalid"].level == "error"
    assert "gemini_command_resolvable" in _by_code(found)
    file.write_text("Be kind.\n")
    assert "gemini_instructions_valid" in _by_code(machine.test(instructionsFilePath=str(file)))


def test_a_configuration_that_cannot_be(machine: Machine) -> None:
    """Each problem is a check, and what is well is still looked at; a struct is tested as an object is."""
    found = machine.test(timeoutSec="soon", modle="x")
    wrong = [check.message.partition(":")[0] for check in found.checks if check.level == "error"]
    assert sorted(wrong) == ["modle", "timeoutSec"]
    assert found.status == "fail"
    config = leadmetrics.GeminiLocalConfig(cwd=str(machine.work), command=str(machine.cli), timeout_sec=-1)

    async def look() -> AdapterEnvironmentTestResult:
        return await leadmetrics.test_environment(config)

    assert anyio.run(look).status == "fail"


def test_what_is_no_configuration_at_all(machine: Machine) -> None:
    """It is one finding, and no exception; no probe is made."""

    async def look() -> AdapterEnvironmentTestResult:
        return await leadmetrics.test_environment([])  # type: ignore[arg-type]

    found = anyio.run(look)
    assert [check.code for check in found.checks if "config: " in check.message] == ["gemini_config_invalid"]
    assert (found.status, any("probe" in check.code for check in found.checks)) == ("fail", False)


def test_further_options_that_cannot_be(machine: Machine) -> None:
    """Those that are stored in `options`; what is well is looked at all the same."""
    found = machine.test(options={"maxTurns": 0, "effort": "low"})
    assert [check.message.partition(":")[0] for check in found.checks if check.level == "error"] == [
        "maxTurns"
    ]
    assert "gemini_command_resolvable" in _by_code(found)
    assert machine.test(options={1: "a name that is no text"}).status == "fail"


def test_a_machine_that_tells_nothing() -> None:
    """What could not be found out is an error, and not passed over."""
    (check,) = _specified_checks({}, Options())
    assert (check.code, check.level) == ("gemini_command_unresolvable", "error")
    missing = {"cli": Check("cli", "skipped", "no Node"), "node": Check("node", "error", "there is no Node")}
    (check,) = _specified_checks(missing, Options())
    assert check.message == "there is no Node"


def test_a_probe_that_cannot_even_begin(machine: Machine) -> None:
    """It is a finding, and no exception."""
    check = anyio.run(_probe, Options(cwd=str(machine.work / "gone")))
    assert (check.code, check.level) == ("gemini_hello_probe_failed", "error")


def test_other_findings_have_codes_of_ours(machine: Machine) -> None:
    """What doctor finds besides is told where it is not well."""
    (machine.home / ".gemini").mkdir()
    (machine.home / ".gemini" / "settings.json").write_text("{ not json")
    found = _by_code(machine.test())
    assert found["gemini_settings"].level == "error"
    machine.places.root.chmod(0o755)
    assert _by_code(machine.test())["gemini_homes"].level == "warn"


def test_the_probe_says_hello(machine: Machine) -> None:
    """A run that is made, and an answer that has the word in it."""
    machine.says(
        '{"type":"init","session_id":"5f0c0f5e-0000-4000-8000-000000000001","model":"flash"}',
        '{"type":"message","role":"assistant","content":"Hello!","delta":true}',
        '{"type":"result","status":"success","stats":{"total_tokens":3,"input_tokens":2,"output_tokens":1}}',
    )
    found = machine.test(probe=True, env={"GEMINI_API_KEY": KEY}, promptTemplate="{{agentId}} is nobody here")
    assert (found.status, found.checks[-1].code) == ("pass", "gemini_hello_probe_passed")
    assert found.checks[-1].detail == "Hello!"


def test_the_probe_fails(machine: Machine) -> None:
    """A CLI that gives no result."""
    machine.says("oh no", code=3)
    found = machine.test(probe=True, env={"GEMINI_API_KEY": KEY})
    assert (found.status, found.checks[-1].code) == ("fail", "gemini_hello_probe_failed")
    assert found.checks[-1].detail


def _result(recording: str = "plain", **more: Any) -> Result:
    last = recorded(recording)[-1]
    assert isinstance(last, Finished)
    return Result.of(msgspec.structs.replace(last, **more))


def _failure(kind: Any, message: str = "so it is") -> Failure:
    return Failure(kind=kind, message=message, retryable=False, hint="Do that.")


@pytest.mark.parametrize(
    ("result", "what", "level"),
    [
        (_result(outcome="failed", failure=_failure("quota_day")), "quota_exhausted", "warn"),
        (_result("timed_out"), "timed_out", "warn"),
        (_result(answer="well, HELLO there"), "passed", "info"),
        (_result(answer="Othello"), "unexpected_output", "warn"),
        (_result("bad_key"), "auth_required", "warn"),
        (_result("no_result"), "failed", "error"),
    ],
)
def test_how_a_probe_is_judged(result: Result, what: str, level: str) -> None:
    """Quota, then time, then the answer, then the sign-in, then whatever else."""
    check = _judge_probe(result)
    assert (check.code, check.level) == (f"gemini_hello_probe_{what}", level)


def test_a_detail_is_one_short_line() -> None:
    """At most 240 characters."""
    detail = _judge_probe(_result(outcome="failed", failure=_failure("server", "a\n" * 500))).detail
    assert detail is not None and len(detail) == 240 and "\n" not in detail
