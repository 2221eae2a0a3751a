"""Options become argv, environment and stdin; what cannot work is refused before anything is started."""

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
    """A folder that looks like an installed release: enough to plan with, nothing to run."""

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
    """Plan with a home and places of the test's own."""
    (tmp_path / "home").mkdir()
    node = tmp_path / "bin" / "node"
    node.parent.mkdir()
    node.write_text(f"#!/bin/sh\necho v20.19.0 {node}\n")
    node.chmod(0o755)

    def plan(
        prompt: str = "hi", version: str = "0.61.0", environ: dict[str, str] | None = None, **fields: Any
    ) -> Plan:
        given = {"cwd": str(tmp_path), "gemini": package(version), **fields}
        env = {"HOME": str(tmp_path / "home"), "PATH": str(node.parent), **(environ or {})}
        options, places = make_options(Options(**given)), Places(tmp_path / "g")
        context = prepare(options, transport="headless", prompt=prompt, environ=env, places=places)
        plan = build_headless(context, PLACEHOLDER)
        write(plan).close()
        return plan

    return plan


def test_flags_carry_their_values_with_an_equals_sign(plan_of: Any) -> None:
    """`--flag=value` throughout: no value can pass for a flag; and the prompt is on stdin alone."""
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


def test_a_session_id_is_minted_where_the_start_can_bear_it(plan_of: Any, tmp_path: Path) -> None:
    """On a Node with a compile cache; a new one each time, none for a resumed session."""
    node = tmp_path / "bin" / "node"
    node.write_text(f"#!/bin/sh\necho v24.1.0 {node}\n")
    plans = [plan_of(version="0.61.0"), plan_of(version="0.60.0")]
    ids = [plan.session_id for plan in plans]
    assert len(set(ids)) == 2
    assert [f"--session-id={plan.session_id}" in plan.argv for plan in plans] == [True, True]
    assert plan_of(version="0.59.0", resume="latest").session_id is None


def test_a_session_id_is_given_only_where_it_was_asked_for(plan_of: Any) -> None:
    """On Node 20 the CLI would take too long to start; and a resumed session has its own."""
    assert not any("--session-id" in word for word in plan_of(version="0.61.0").argv)
    resumed = plan_of(version="0.60.0", resume="latest")
    assert resumed.session_id is None
    assert "--resume=latest" in resumed.argv


@pytest.mark.parametrize("version", ["0.10.0", "0.41.2", "0.53.1"])
def test_an_older_release_is_refused(plan_of: Any, version: str) -> None:
    """`cli_unsupported`, in a sentence that names the release and the remedy, before anything is started."""
    with pytest.raises(Refused) as refused:
        plan_of(version=version)
    failure = refused.value.failure
    assert failure.kind == "cli_unsupported"
    assert f"Gemini CLI {version} is too old" in failure.message
    assert "geminids install" in failure.message


@pytest.mark.parametrize("version", ["0.54.0", "0.61.0", "0.99.0", "1.2.0"])
def test_a_supported_or_newer_release_is_planned(plan_of: Any, version: str) -> None:
    """A release that nobody has tried is not refused."""
    assert plan_of(version=version).gemini.release.version == version


def test_settings_go_into_a_private_home(plan_of: Any) -> None:
    """The CLI reads our settings there, and nowhere else."""
    plan = plan_of(version="0.61.0")
    home = Path(plan.env["GEMINI_CLI_HOME"])
    assert json.loads((home / ".gemini" / "settings.json").read_text())["privacy"] == {
        "usageStatisticsEnabled": False
    }
    assert "GEMINI_CLI_SYSTEM_SETTINGS_PATH" not in plan.env


def test_what_is_written_is_private(plan_of: Any) -> None:
    """Folders 0700, files 0600."""
    home = Path(plan_of(environ={"GEMINI_API_KEY": "k" * 20}).env["GEMINI_CLI_HOME"])
    for path in (home, home / ".gemini"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert stat.S_IMODE((home / ".gemini" / "settings.json").stat().st_mode) == 0o600
    assert "k" * 20 not in (home / ".gemini" / "settings.json").read_text()


def test_runs_with_the_same_settings_share_a_home_and_others_do_not(plan_of: Any) -> None:
    """The home's name comes from its contents: concurrent runs cannot write over each other."""
    first, again, other = (
        plan_of(version="0.61.0"),
        plan_of(version="0.60.0"),
        plan_of(version="0.59.0", max_turns=3),
    )
    assert first.env["GEMINI_CLI_HOME"] == again.env["GEMINI_CLI_HOME"] != other.env["GEMINI_CLI_HOME"]


def test_trust_is_given_only_where_it_was_asked_for(plan_of: Any) -> None:
    """And `GEMINI_CLI_TRUST_WORKSPACE=false` of the caller stands then."""
    name = "GEMINI_CLI_TRUST_WORKSPACE"
    assert name not in plan_of(environ={name: "true"}).env
    trusted = plan_of(version="0.60.0", trust_workspace=True)
    assert trusted.env[name] == "true"
    assert "--skip-trust" not in trusted.argv
    assert plan_of(version="0.59.0", trust_workspace=True, environ={name: "false"}).env[name] == "false"


def test_the_environment_is_layered(plan_of: Any, tmp_path: Path) -> None:
    """This process's, then the env file's, then the caller's; secrets of all three are known."""
    file = tmp_path / "vars"
    file.write_text("A=file\nB=file\nMY_TOKEN=tok_0123456789\n")
    plan = plan_of(
        environ={"A": "process", "B": "process", "C": "process"}, env={"A": "caller"}, env_file=str(file)
    )
    assert (plan.env["A"], plan.env["B"], plan.env["C"]) == ("caller", "file", "process")
    assert "tok_0123456789" in plan.secrets


def test_an_absent_cwd_is_made_only_where_asked(plan_of: Any, tmp_path: Path) -> None:
    """`make_cwd` makes it; else it is an option's problem, told before."""
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
    """`export`, quotes, comments and blanks are understood."""
    assert read_env_file(text, "vars") == expected


def test_a_bad_line_of_an_env_file_is_named_and_not_shown() -> None:
    """It may hold a secret."""
    with pytest.raises(EnvFileProblem, match="vars, line 2") as caught:
        read_env_file("A=1\nsk-verysecret\n", "vars")
    assert "verysecret" not in str(caught.value)


@pytest.mark.parametrize(
    "prompt", ["", "  \n", "a\0b", "x" * (MAX_PROMPT_BYTES + 1), "ä" * (MAX_PROMPT_BYTES // 2 + 1)]
)
def test_bad_prompts_are_refused(prompt: str) -> None:
    """Empty, blank, with NUL, or longer than the CLI reads."""
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
    """A leading `/` and every `@` lose their meaning; all else stays as it is."""
    assert check_prompt(prompt, literal=True).decode() == literal
    assert check_prompt(prompt).decode() == prompt


def test_a_run_within_a_run_is_not_held_to_the_outer_ones_limits(plan_of: Any) -> None:
    """The outer run's private home is not the user's."""
    outer = plan_of(version="0.61.0", max_turns=1, max_attempts=2)
    inner = plan_of(version="0.60.0", environ=dict(outer.env))
    settings = json.loads((Path(inner.env["GEMINI_CLI_HOME"]) / ".gemini" / "settings.json").read_text())
    assert "model" not in settings
    assert "maxAttempts" not in settings["general"]


def test_a_relative_home_is_made_absolute(
    plan_of: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relative link would lead nowhere."""
    monkeypatch.chdir(tmp_path)
    plan = plan_of(environ={"GEMINI_CLI_HOME": "home"})
    assert (Path(plan.env["GEMINI_CLI_HOME"]) / ".gemini" / "tmp").resolve() == tmp_path / "home/.gemini/tmp"


def test_the_folder_is_the_one_that_node_sees(plan_of: Any, tmp_path: Path) -> None:
    """Behind a link, what lies above the real folder counts: a `.env` there has no power either."""
    (tmp_path / "mono" / "pkg").mkdir(parents=True)
    (tmp_path / "mono" / ".gemini").mkdir()
    (tmp_path / "mono" / ".gemini" / ".env").write_text("GOOGLE_GEMINI_BASE_URL=http://127.0.0.1:1\n")
    (tmp_path / "link").symlink_to("mono/pkg")
    plan = plan_of(cwd=str(tmp_path / "link"))
    assert plan.cwd == str(tmp_path / "mono" / "pkg")
    assert plan.env["GOOGLE_GEMINI_BASE_URL"] == ""
    assert [found.kind for found in plan.neutralised] == ["env file"]


def test_servers_that_are_not_there_are_told(plan_of: Any) -> None:
    """A deny that denies nobody is a hole."""
    servers = {"lab": McpServer(command="lab")}
    with pytest.raises(Refused, match="deny_servers names lba, but the MCP servers of this run are: lab"):
        plan_of(mcp_servers=servers, permissions=Permissions(deny_servers=("lba",)))


def test_secrets_of_servers_are_known(plan_of: Any) -> None:
    """Among their arguments and in their addresses too."""
    servers = {
        "a": McpServer(command="a", args=("--token", "argsecret-1", "--api-key=argsecret-2")),
        "b": McpServer(url="http://u:urlsecret-3@127.0.0.1/?key=urlsecret-4"),
    }
    known = plan_of(mcp_servers=servers).secrets
    assert {"argsecret-1", "argsecret-2", "urlsecret-3", "urlsecret-4"} <= known
