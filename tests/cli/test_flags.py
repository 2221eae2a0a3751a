"""Every flag of `geminids run` reaches the options, and bad ones are told before anything is started."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from geminids.cli.commands.run import run
from geminids.cli.shared.flags import parse_flags
from geminids.config import load_options
from geminids.config.fields import fields
from geminids.options import CAPABILITIES, McpServer, Options, Permissions


def _options(*words: str) -> Options:
    with run.make_context("run", list(words)) as context:
        return load_options(flags=parse_flags(context.params), config=False, environ={}).options


def test_no_flag_is_the_default() -> None:
    """No default is repeated in the command."""
    assert _options("hi") == Options()


def test_all_flags_at_once(tmp_path: Path) -> None:
    """Repeated ones add up; commas part names of tools, and nothing else."""
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


def test_every_field_but_one_can_be_given_by_a_flag() -> None:
    """`line_limit` alone has none; capabilities have three."""
    without = {field.name for field in fields() if field.flag is None}
    assert without == {"line_limit", *(f"permissions.{capability}" for capability in CAPABILITIES)}


def test_a_switch_can_be_taken_back() -> None:
    """Where a file or a variable has switched it on."""
    with run.make_context("run", ["hi", "--no-offline"]) as context:
        flags = parse_flags(context.params)
    assert load_options(flags=flags, config=False, environ={"GEMINIDS_OFFLINE": "1"}).options.offline is False


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--allow", "shel"), "'shel' is not one of file_write, shell"),
        (("--allow", "shell", "--deny", "shell"), "both --allow and --deny"),
        (("--env", "hunter2hunter2"), "--env takes NAME=VALUE"),
        (("--var", "=x"), "--var takes NAME=VALUE"),
        (("--mcp", "{"), "--mcp: the JSON is not JSON"),
        (("--template", "@/no/such/file"), "--template: cannot read /no/such/file"),
    ],
)
def test_what_no_field_could_tell_is_bad_usage(words: tuple[str, ...], told: str) -> None:
    """In one sentence, without the secret that it may be."""
    with pytest.raises(click.UsageError) as caught:
        _options("hi", *words)
    assert told in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_help_shows_every_flag_once_in_its_group() -> None:
    """Grouped, with the defaults of the schema; `--no-` forms are not shown."""
    text = run.get_help(run.make_context("run", ["hi"]))
    listed = text[text.index("Model:") :]
    for field in fields():
        if field.flag is not None:
            lines = [line for line in listed.splitlines() if field.flag in line.replace(",", " ").split()[:3]]
            assert len(lines) == 1, (field.flag, lines)
    assert "[default: 600]" in text
    assert "--no-offline" not in text
    assert text.index("Model:") < text.index("--model") < text.index("Prompt:") < text.index("Limits:")


def test_a_template_makes_the_prompt_optional(stand_in: Any) -> None:
    """And a run's files are read: what a project says holds, and what it must not say is told on stderr."""
    options = stand_in("out(INIT + say(' '.join(sys.argv[1:])) + DONE)")
    (Path(options.cwd) / "geminids.toml").write_text('[gemini]\nmodel = "flash"\napproval = "yolo"\n')
    argv = [sys.executable, "-m", "geminids", "run", "--gemini", str(options.gemini), "--home", "isolated"]
    argv += ["--cwd", options.cwd, "--template", "hello"]
    done = subprocess.run(argv, input="", capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "flash" in done.stdout and "yolo" not in done.stdout
    assert "approval (line 3)" in done.stderr and "config trust" in done.stderr
    done = subprocess.run([*argv, "--no-config"], input="", capture_output=True, text=True, timeout=60)
    assert "flash" not in done.stdout and done.stderr == ""


def test_a_bad_file_starts_nothing(stand_in: Any) -> None:
    """Exit 2, the file and its line."""
    options = stand_in("open('ran', 'w')")
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
