"""Tests of launch plans: options become argv, environment and stdin, or are refused before the
start."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from geminids.config.paths import Places
from geminids.launch.build import build_headless
from geminids.launch.environment import EnvFileProblem, read_env_file
from geminids.launch.errors import PromptProblem, Refused
from geminids.launch.gateway_env import PLACEHOLDER
from geminids.launch.plan import Plan
from geminids.launch.prepare import prepare
from geminids.launch.prompt.compose import MAX_PROMPT_BYTES, check_prompt
from geminids.launch.write import write
from geminids.options import McpServer, Options, Permissions, make_options


@pytest.fixture
def package(tmp_path: Path) -> Any:
    """A function that creates a folder that looks like an installed release; it cannot run."""

    def make(version: str = "0.61.0") -> str:
        folder = tmp_path / f"cli-{version}"
        (folder / "bundle").mkdir(parents=True)
        (folder / "bundle" / "gemini.js").write_text("// nothing\n")
        manifest = {"name": "@google/gemini-cli", "version": version, "bin": {"gemini": "bundle/gemini.js"}}
        (folder / "package.json").write_text(json.dumps(manifest))
        return str(folder)

    return make


@pytest.fixture
def plan_of(tmp_path: Path, package: Any) -> Any:
    """A function that plans a run with a temporary home and temporary paths."""
    (tmp_path / "home").mkdir()
    node = tmp_path / "bin" / "node"
    node.parent.mkdir()
    node.write_text(f"#!/bin/sh\necho v20.19.0 {node}\n")
    node.chmod(0o755)

    def plan(
        prompt: str = "hi", version: str = "0.61.0", environ: dict[str, str] | None = None, **fields: Any
    ) -> Plan:
        defaults = {"cwd": str(tmp_path), "gemini": package(version), **fields}
        env = {"HOME": str(tmp_path / "home"), "PATH": str(node.parent), **(environ or {})}
        options, places = make_options(Options(**defaults)), Places(tmp_path / "g")
        context = prepare(options, transport="headless", prompt=prompt, environ=env, places=places)
        plan = build_headless(context, PLACEHOLDER)
        write(plan).close()
        return plan

    return plan


def test_flags_carry_their_values_with_an_equals_sign(plan_of: Any) -> None:
    """All flags have the form `--flag=value`, so that no value can be read as a flag.

    The prompt is only on stdin.
    """
    plan = plan_of("-x secret words", model="flash", approval="plan", session_id="abc")
    flags = plan.argv[plan.argv.index(next(word for word in plan.argv if word.endswith("gemini.js"))) + 1 :]
    assert flags == (
        "--output-format=stream-json",
        "--approval-mode=plan",
        "--model=flash",
        "--session-id=abc",
        f"--policy={plan.env['GEMINI_CLI_HOME']}/policy/geminids.toml",
        "--skip-trust",
    )
    assert plan.stdin == b"-x secret words"
    assert not any("secret words" in word for word in plan.argv)


def test_a_new_session_gets_an_id_with_a_compile_cache(plan_of: Any, tmp_path: Path) -> None:
    """On a Node with a compile cache each new session gets a new id; a resumed session gets
    none."""
    node = tmp_path / "bin" / "node"
    node.write_text(f"#!/bin/sh\necho v24.1.0 {node}\n")
    plans = [plan_of(version="0.61.0"), plan_of(version="0.60.0")]
    ids = [plan.session_id for plan in plans]
    assert len(set(ids)) == 2
    assert [f"--session-id={plan.session_id}" in plan.argv for plan in plans] == [True, True]
    assert plan_of(version="0.59.0", resume="latest").session_id is None


def test_no_session_id_without_a_compile_cache(plan_of: Any) -> None:
    """On Node 20 no session id is set, because the CLI would start too slowly.

    A resumed session gets none either.
    """
    assert not any("--session-id" in word for word in plan_of(version="0.61.0").argv)
    resumed = plan_of(version="0.60.0", resume="latest")
    assert resumed.session_id is None
    assert "--resume=latest" in resumed.argv


@pytest.mark.parametrize("version", ["0.10.0", "0.41.2", "0.53.1"])
def test_an_older_release_is_refused(plan_of: Any, version: str) -> None:
    """A release before 0.54 is refused as `cli_unsupported`, in a sentence that names the release
    and `geminids install`."""
    with pytest.raises(Refused) as refused:
        plan_of(version=version)
    failure = refused.value.failure
    assert failure.kind == "cli_unsupported"
    assert f"Gemini CLI {version} is too old" in failure.message
    assert "geminids install" in failure.message


@pytest.mark.parametrize("version", ["0.54.0", "0.61.0", "0.99.0", "1.2.0"])
def test_a_supported_or_newer_release_is_planned(plan_of: Any, version: str) -> None:
    """Supported releases, and newer ones that were never tested, are planned."""
    assert plan_of(version=version).gemini.release.version == version


def test_settings_go_into_a_private_home(plan_of: Any) -> None:
    """Our settings are written to a private home, and not to a system settings file."""
    plan = plan_of(version="0.61.0")
    home = Path(plan.env["GEMINI_CLI_HOME"])
    assert json.loads((home / ".gemini" / "settings.json").read_text())["privacy"] == {
        "usageStatisticsEnabled": False
    }
    assert "GEMINI_CLI_SYSTEM_SETTINGS_PATH" not in plan.env


def test_written_files_are_private(plan_of: Any) -> None:
    """Written folders have mode 0700 and files 0600, and the settings do not contain the key."""
    home = Path(plan_of(environ={"GEMINI_API_KEY": "k" * 20}).env["GEMINI_CLI_HOME"])
    for path in (home, home / ".gemini"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert stat.S_IMODE((home / ".gemini" / "settings.json").stat().st_mode) == 0o600
    assert "k" * 20 not in (home / ".gemini" / "settings.json").read_text()


def test_runs_with_the_same_settings_share_a_home(plan_of: Any) -> None:
    """The name of a home depends on its contents, so that concurrent runs do not overwrite each
    other's settings."""
    first, again, other = (
        plan_of(version="0.61.0"),
        plan_of(version="0.60.0"),
        plan_of(version="0.59.0", max_turns=3),
    )
    assert first.env["GEMINI_CLI_HOME"] == again.env["GEMINI_CLI_HOME"] != other.env["GEMINI_CLI_HOME"]


def test_a_folder_is_trusted_only_on_request(plan_of: Any) -> None:
    """The folder is trusted only with `trust_workspace`; a caller's
    `GEMINI_CLI_TRUST_WORKSPACE=false` is kept then."""
    name = "GEMINI_CLI_TRUST_WORKSPACE"
    assert name not in plan_of(environ={name: "true"}).env
    trusted = plan_of(version="0.60.0", trust_workspace=True)
    assert trusted.env[name] == "true"
    assert "--skip-trust" not in trusted.argv
    assert plan_of(version="0.59.0", trust_workspace=True, environ={name: "false"}).env[name] == "false"


def test_the_environment_is_layered(plan_of: Any, tmp_path: Path) -> None:
    """The caller's variables override the env file's, which override those of this process.

    Secrets of an env file are known.
    """
    file = tmp_path / "vars"
    file.write_text("A=file\nB=file\nMY_TOKEN=tok_0123456789\n")
    plan = plan_of(
        environ={"A": "process", "B": "process", "C": "process"}, env={"A": "caller"}, env_file=str(file)
    )
    assert (plan.env["A"], plan.env["B"], plan.env["C"]) == ("caller", "file", "process")
    assert "tok_0123456789" in plan.secrets


def test_make_cwd_creates_the_folder(plan_of: Any, tmp_path: Path) -> None:
    """`make_cwd` creates a missing working folder."""
    target = tmp_path / "new" / "folder"
    assert plan_of(cwd=str(target), make_cwd=True).cwd == str(target)
    assert target.is_dir()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "A=1\n\n# note\nexport B='x # y'\nC=\"z\" # tail\nD=a=b\nE=",
            {"A": "1", "B": "x # y", "C": "z", "D": "a=b", "E": ""},
        ),
        ("A = spaced ", {"A": "spaced"}),
    ],
)
def test_env_files_are_read(text: str, expected: dict[str, str]) -> None:
    """`export`, quotes, comments and blanks in an env file are understood."""
    assert read_env_file(text, "vars") == expected


def test_an_invalid_line_of_an_env_file_is_not_shown() -> None:
    """An invalid line of an env file is reported by number and not shown, because it may contain a
    secret."""
    with pytest.raises(EnvFileProblem, match="vars, line 2") as caught:
        read_env_file("A=1\nsk-verysecret\n", "vars")
    assert "verysecret" not in str(caught.value)


@pytest.mark.parametrize(
    "prompt", ["", "  \n", "a\0b", "x" * (MAX_PROMPT_BYTES + 1), "ä" * (MAX_PROMPT_BYTES // 2 + 1)]
)
def test_bad_prompts_are_refused(prompt: str) -> None:
    """A prompt that is empty, blank, contains NUL, or is longer than the CLI reads is refused."""
    with pytest.raises(PromptProblem):
        check_prompt(prompt)


@pytest.mark.parametrize(
    ("prompt", "literal"),
    [
        ("/help", " /help"),
        ("  /help", "   /help"),
        ("see @a.txt and me@x.example", r"see \@a.txt and me\@x.example"),
        (r"already \@here", r"already \@here"),
        ("plain", "plain"),
        ("a/b", "a/b"),
    ],
)
def test_a_literal_prompt_is_escaped(prompt: str, literal: str) -> None:
    """A literal prompt has its leading `/` and every `@` escaped; the rest stays."""
    assert check_prompt(prompt, literal=True).decode() == literal
    assert check_prompt(prompt).decode() == prompt


def test_an_inner_run_does_not_inherit_the_outer_settings(plan_of: Any) -> None:
    """A run inside a tool of another run does not inherit the settings of the outer run's private
    home."""
    outer = plan_of(version="0.61.0", max_turns=1, max_attempts=2)
    inner = plan_of(version="0.60.0", environ=dict(outer.env))
    settings = json.loads((Path(inner.env["GEMINI_CLI_HOME"]) / ".gemini" / "settings.json").read_text())
    assert "model" not in settings
    assert "maxAttempts" not in settings["general"]


def test_a_relative_home_is_made_absolute(
    plan_of: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Links to a relative GEMINI_CLI_HOME are absolute."""
    monkeypatch.chdir(tmp_path)
    plan = plan_of(environ={"GEMINI_CLI_HOME": "home"})
    assert (Path(plan.env["GEMINI_CLI_HOME"]) / ".gemini" / "tmp").resolve() == tmp_path / "home/.gemini/tmp"


def test_the_working_folder_is_resolved(plan_of: Any, tmp_path: Path) -> None:
    """A working folder behind a link is resolved, and a `.env` above the real folder is ignored."""
    (tmp_path / "mono" / "pkg").mkdir(parents=True)
    (tmp_path / "mono" / ".gemini").mkdir()
    (tmp_path / "mono" / ".gemini" / ".env").write_text("GOOGLE_GEMINI_BASE_URL=http://127.0.0.1:1\n")
    (tmp_path / "link").symlink_to("mono/pkg")
    plan = plan_of(cwd=str(tmp_path / "link"))
    assert plan.cwd == str(tmp_path / "mono" / "pkg")
    assert plan.env["GOOGLE_GEMINI_BASE_URL"] == ""
    assert [ignored.kind for ignored in plan.neutralised] == ["env file"]


def test_unknown_denied_servers_are_refused(plan_of: Any) -> None:
    """A `deny_servers` entry that matches no server is refused, because it would deny nothing."""
    servers = {"lab": McpServer(command="lab")}
    with pytest.raises(Refused, match="`deny_servers` names lba, but the MCP servers of this run are: lab"):
        plan_of(mcp_servers=servers, permissions=Permissions(deny_servers=("lba",)))


def test_secrets_of_servers_are_known(plan_of: Any) -> None:
    """Secrets in the arguments and URLs of MCP servers are known, so that they are masked."""
    servers = {
        "a": McpServer(command="a", args=("--token", "argsecret-1", "--api-key=argsecret-2")),
        "b": McpServer(url="http://u:urlsecret-3@127.0.0.1/?key=urlsecret-4"),
    }
    secrets = plan_of(mcp_servers=servers).secrets
    assert {"argsecret-1", "argsecret-2", "urlsecret-3", "urlsecret-4"} <= secrets
