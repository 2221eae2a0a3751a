"""Every flag of `geminids run` sets its option; bad flags are reported before anything starts."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from geminids.cli.commands.run import run
from geminids.cli.shared.flag_parser import parse_flags
from geminids.config import load_options
from geminids.options import CAPABILITIES, McpServer, Options, Permissions
from geminids.options.flags import GROUPS, fields


def _options(*words: str) -> Options:
    with run.make_context("run", list(words)) as context:
        return load_options(flags=parse_flags(context.params), config=False, environ={}).options


def test_no_flags_give_the_defaults() -> None:
    """Without flags, the command gives the same options as `Options()`."""
    assert _options("hi") == Options()


def test_all_flags_at_once(tmp_path: Path) -> None:
    """Every flag sets its option, and repeated flags add up.

    A comma separates names, but not commands or paths.
    """
    note = tmp_path / "a,b.md"
    note.write_text("{{prompt}}!")
    file, folder = str(note), str(tmp_path)
    words = f"""--cwd|{folder}/new|--make-cwd|-m|flash|--effort|512|--approval|plan|--allow|shell,mcp
    --ask|network|--deny|file-write|--allow-tool|a,b|--allow-tool|c|--deny-tool|d|--only-tool|e
    --allow-command|git log --format=a,b|--deny-command|rm|--allow-server|s|--deny-server|t,u
    --trust-workspace|--resume|latest|--template|@{file}|--var|a=b=c|--var|d=|--instructions|{file}
    --image|{file}|--video|{file}|--file|{file}|--file|{file}|--include-dir|{folder}|--skill|{folder}
    --mcp|fs=npx x|--mcp|{{"w": {{"url": "http://127.0.0.1/"}}}}|--system-prompt|{file}|--max-turns|3
    --max-attempts|2|--timeout|1.5|--idle-timeout|none|--start-timeout|7|--stall-after|9|--grace|0
    --leftovers|keep
    --home|isolated|--gemini|0.61.0|--env|A=1|--env-file|{file}|--env-only|LANG,TERM|--telemetry|/repo/t.jsonl
    --offline|--literal|--max-budget|1.5|--max-tokens|1000|--max-requests|3|--day-budget|9|--day-tokens|5
    --day-requests|6|--requests-per-minute|60|--only-model|a,b*|--gateway|on|--key-from|file:/repo/key"""
    options = _options("hi", *(word for line in words.splitlines() for word in line.strip().split("|")))
    assert options == Options(
        cwd=f"{folder}/new",
        make_cwd=True,
        model="flash",
        effort=512,
        approval="plan",
        permissions=Permissions(
            shell="allow",
            mcp="allow",
            network="ask",
            file_write="deny",
            allow_tools=("a", "b", "c"),
            deny_tools=("d",),
            only_tools=("e",),
            allow_commands=("git log --format=a,b",),
            deny_commands=("rm",),
            allow_servers=("s",),
            deny_servers=("t", "u"),
        ),
        trust_workspace=True,
        resume="latest",
        template="{{prompt}}!",
        variables={"a": "b=c", "d": ""},
        instructions=file,
        images=(file,),
        videos=(file,),
        files=(file, file),
        include_dirs=(folder,),
        skills=(folder,),
        mcp_servers={"fs": McpServer(command="npx", args=("x",)), "w": McpServer(url="http://127.0.0.1/")},
        system_prompt=file,
        max_turns=3,
        max_attempts=2,
        timeout=1.5,
        idle_timeout=None,
        start_timeout=7,
        stall_after=9,
        grace=0,
        leftovers="keep",
        home="isolated",
        gemini="0.61.0",
        env={"A": "1"},
        env_file=file,
        env_only=("LANG", "TERM"),
        telemetry="/repo/t.jsonl",
        offline=True,
        literal=True,
        max_budget=1.5,
        max_tokens=1000,
        max_requests=3,
        day_budget=9,
        day_tokens=5,
        day_requests=6,
        requests_per_minute=60,
        only_models=("a", "b*"),
        gateway="on",
        key_from="file:/repo/key",
    )


def test_every_field_but_line_limit_has_a_flag() -> None:
    """Every field has a flag, except `line_limit` and the capabilities, which share three flags."""
    without = {field.name for field in fields() if field.flag is None}
    assert without == {"line_limit", *(f"permissions.{capability}" for capability in CAPABILITIES)}


def test_a_flag_turns_a_switch_off() -> None:
    """A `--no-` flag turns off a switch that a variable has turned on."""
    with run.make_context("run", ["hi", "--no-offline"]) as context:
        flags = parse_flags(context.params)
    assert load_options(flags=flags, config=False, environ={"GEMINIDS_OFFLINE": "1"}).options.offline is False


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--allow", "shel"), "'shel' is not one of file_write, shell"),
        (("--allow", "shell", "--deny", "shell"), "--allow and --deny cannot both name"),
        (("--env", "hunter2hunter2"), "--env: a value is not in the form NAME=VALUE"),
        (("--var", "=x"), "--var: a value is not in the form NAME=VALUE"),
        (("--mcp", "{"), "--mcp: the JSON is not JSON"),
        (("--template", "@/no/such/file"), "--template: cannot read /no/such/file"),
    ],
)
def test_invalid_flags_are_bad_usage(words: tuple[str, ...], message: str) -> None:
    """An invalid flag is bad usage. The message does not repeat a value that may be a secret."""
    with pytest.raises(click.UsageError) as caught:
        _options("hi", *words)
    assert message in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_help_shows_every_flag_once_in_its_group() -> None:
    """The help lists each flag once in its group, with its default.

    It does not list the `--no-` forms.
    """
    text = run.get_help(run.make_context("run", ["hi"]))
    listed = text[text.index("Common options:") :]
    for field in fields():
        if field.flag is not None:
            lines = re.findall(rf"^  (?:-\w, )?{field.flag}\b(?!-)", listed, re.MULTILINE)
            assert len(lines) == 1, (field.flag, lines)
    assert "[default: 600]" in text
    assert "--no-offline" not in text
    assert text.index("Model:") < text.index("--effort") < text.index("Prompt:") < text.index("Limits:")


def test_a_template_makes_the_prompt_optional(fake_cli: Any) -> None:
    """A template needs no prompt.

    The project file applies, except settings that it must not set, which are reported on stderr.
    `--no-config` ignores the file.
    """
    options = fake_cli("out(INIT + say(' '.join(sys.argv[1:])) + DONE)")
    (Path(options.cwd) / "geminids.toml").write_text('[gemini]\nmodel = "flash"\napproval = "yolo"\n')
    argv = [sys.executable, "-m", "geminids", "run", "--gemini", str(options.gemini), "--home", "isolated"]
    argv += ["--cwd", options.cwd, "--template", "hello"]
    done = subprocess.run(argv, input="", capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "flash" in done.stdout and "yolo" not in done.stdout
    assert "approval (line 3)" in done.stderr and "config trust" in done.stderr
    done = subprocess.run([*argv, "--no-config"], input="", capture_output=True, text=True, timeout=60)
    assert "flash" not in done.stdout and done.stderr == ""


def test_an_invalid_project_file_starts_nothing(fake_cli: Any) -> None:
    """An invalid project file exits with 2, names its lines, and starts nothing."""
    options = fake_cli("open('ran', 'w')")
    (Path(options.cwd) / "geminids.toml").write_text('[gemini]\ntimeout = "soon"\nmodle = "x"\n')
    argv = [
        sys.executable,
        "-m",
        "geminids",
        "run",
        "hi",
        "--gemini",
        str(options.gemini),
        "--cwd",
        options.cwd,
    ]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "geminids.toml:2" in done.stderr and "geminids.toml:3: modle" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (Path(options.cwd) / "ran").exists()


def test_help_begins_with_examples_and_the_common_options() -> None:
    """`geminids run --help` shows three examples, then the ten common options, then all others."""
    text = run.get_help(run.make_context("run", ["hi"]))
    examples, _, rest = text.partition("Common options:")
    common, _, others = rest.partition("\n\n")
    assert len([line for line in examples.splitlines() if line.startswith("    geminids run ")]) == 3
    flags = re.findall(r"^  (?:-\w, )?(--[a-z-]+)", common, re.MULTILINE)
    assert flags == [
        "--model",
        "--cwd",
        "--file",
        "--resume",
        "--approval",
        "--allow",
        "--max-budget",
        "--timeout",
        "--offline",
        "--output",
    ]
    assert [group for group in GROUPS if f"\n{group}:\n" not in others] == []


def test_help_names_flags_and_not_python_names() -> None:
    """The descriptions of `--help` name other options by their flags, without backticks."""
    text = " ".join(run.get_help(run.make_context("run", ["hi"])).split())
    assert "--env-file FILE A file of NAME=value lines; --env overrides it." in text
    assert "limits, --record and --replay cannot be used" in text
    assert "`" not in text


@pytest.mark.parametrize("value", ["schema.json", "no such file", "./a b.json"])
def test_a_schema_file_needs_an_at_sign(value: str) -> None:
    """`--schema FILE` is refused, and the message shows `--schema @FILE`."""
    with pytest.raises(click.UsageError) as caught:
        _options("hi", "--schema", value)
    assert f"--schema @{shlex.quote(value)}" in caught.value.message


@pytest.mark.parametrize("value", ['{"type": "object"}', " true", '["a"]'])
def test_a_schema_as_json_is_not_taken_for_a_file(value: str) -> None:
    """A value that may be JSON is passed on: the check of the schema reports what is wrong."""
    assert _options("hi", "--schema", value).schema == value
