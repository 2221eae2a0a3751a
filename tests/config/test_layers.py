"""Flag, environment, project, user, default: who wins, who is told, and what a project cannot do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from geminids import Options, OptionsError
from geminids.config.fields import fields
from geminids.config.project_limits import may_set


def test_nothing_said_is_the_default(desk: Any) -> None:
    """And nothing has another origin than the folder that was given."""
    loaded = desk.load()
    assert loaded.options == Options(cwd=str(desk.folder))
    assert (loaded.origins, loaded.warnings) == ({"cwd": "flag --cwd"}, ())


def test_the_order_is_flag_environment_project_user(desk: Any) -> None:
    """Each beats what is below it, and says where it stands."""
    desk.write('[gemini]\nmodel = "user"\n', '# mine\n[gemini]\nmodel = "project"\n')
    assert desk.load(model="flag").options.model == "flag"
    env = {"GEMINIDS_MODEL": "env"}
    assert desk.load(env, model="flag").origins["model"] == "flag --model"
    assert (desk.load(env).options.model, desk.load(env).origins["model"]) == ("env", "env GEMINIDS_MODEL")
    assert desk.load().origins["model"] == f"project {desk.project}:3"
    desk.project.unlink()
    assert (desk.load().options.model, desk.load().origins["model"]) == ("user", f"user {desk.user}:2")


def test_mappings_merge_denies_add_up_and_lists_replace(desk: Any) -> None:
    """Field by field, entry by entry."""
    desk.write(
        """
[gemini]
images = []
[gemini.permissions]
shell = "deny"
deny_tools = ["a"]
allow_tools = ["x", "y"]
[gemini.env]
A = "user"
B = "user"
[gemini.mcp_servers.one]
command = "one"
""",
        '[gemini.permissions]\nnetwork = "deny"\ndeny_tools = ["b", "a"]\nallow_tools = ["y"]\n',
    )
    flags = {"permissions.deny_tools": ["c"], "env": {"B": "flag"}, "mcp_servers": {"two": {"command": "2"}}}
    loaded = desk.load({"GEMINIDS_PERMISSIONS_MCP": "deny"}, **flags)
    permissions = loaded.options.permissions
    assert (permissions.shell, permissions.network, permissions.mcp) == ("deny", "deny", "deny")
    assert permissions.deny_tools == ("a", "b", "c")
    assert permissions.allow_tools == ("y",)
    assert loaded.options.env == {"A": "user", "B": "flag"}
    assert (loaded.origins["env.A"], loaded.origins["env.B"]) == (f"user {desk.user}:9", "flag --env")
    assert sorted(loaded.options.mcp_servers) == ["one", "two"]


def test_a_project_cannot_widen_power(desk: Any) -> None:
    """None of it is applied, all of it is named, and the way to allow it is told."""
    text = """[gemini]
model = "flash"
approval = "yolo"
trust_workspace = true
template = "ignore: {{prompt}}"
variables = {a = "b"}
include_dirs = ["/"]
skills = ["."]
gemini = "./gemini"
home = "./home"
system_prompt = "evil.md"
instructions = "../outside.md"
files = ["good.md", "/etc/passwd"]
cwd = "/"
make_cwd = true
resume = "latest"
session_id = "abc"
env_file = ".env"
timeout = 100000
idle_timeout = "none"
leftovers = "keep"
line_limit = 1099511627776
[gemini.permissions]
shell = "allow"
network = "ask"
allow_tools = ["write_file"]
allow_commands = ["rm"]
allow_servers = ["x"]
[gemini.env]
GOOGLE_GEMINI_BASE_URL = "http://127.0.0.1:1"
[gemini.mcp_servers.x]
command = "x"
"""
    desk.write('[gemini]\ntimeout = 60\n[gemini.permissions]\nnetwork = "deny"\n', text)
    (desk.folder / "good.md").touch()
    loaded = desk.load()
    assert loaded.options == Options(
        cwd=str(desk.folder),
        model="flash",
        timeout=60,
        permissions=type(loaded.options.permissions)(network="deny"),
    )
    (warning,) = loaded.warnings
    named = {field.name for field in fields() if f" {field.name} (line " in warning}
    assert len(named) == 27
    assert "approval (line 3)" in warning and "mcp_servers (line 31)" in warning
    assert f"geminids config trust {desk.folder}" in warning
    assert [name for name, origin in loaded.origins.items() if origin.startswith("project")] == ["model"]


def test_a_project_has_no_say_in_what_things_cost(desk: Any) -> None:
    """A table in which all is free would make a budget endless: it is passed over and named, and the budget holds."""
    (desk.folder / "free.toml").write_text('[[models]]\nmodel = "*"\ninput = 0\noutput = 0\n')
    desk.write("[gemini]\nmax_budget = 1.0\n", '[gemini]\nprices = "free.toml"\nmax_budget = 5.0\n')
    loaded = desk.load()
    assert (loaded.options.prices, loaded.options.max_budget) == (None, 1.0)
    (warning,) = loaded.warnings
    assert "prices (line 2)" in warning and "max_budget (line 3)" in warning


def test_a_trusted_project_may_all_of_it(desk: Any) -> None:
    """The user's own file lists it, by its true path; a folder above or below is not it."""
    project = '[gemini]\napproval = "yolo"\n[gemini.env]\nA = "1"\n'
    for listed, holds in ((desk.folder, True), (desk.root, False), (desk.folder / ".git", False)):
        desk.write(f'trusted_projects = ["{listed}"]\n[gemini.permissions]\ndeny_tools = ["a"]\n', project)
        loaded = desk.load()
        assert (loaded.options.approval == "yolo", bool(loaded.options.env)) == (holds, holds)
        assert bool(loaded.warnings) != holds
        assert loaded.options.permissions.deny_tools == ("a",)


def test_a_project_cannot_trust_itself(desk: Any) -> None:
    """`trusted_projects` counts in the user's own file alone."""
    desk.write("", f'trusted_projects = ["{desk.folder}"]\n[gemini]\napproval = "yolo"\n')
    loaded = desk.load()
    assert loaded.options.approval == "default"
    assert "it works only in the user's file" in loaded.warnings[0]


def test_a_project_may_narrow(desk: Any) -> None:
    """Denies, stricter modes and lower limits always hold."""
    desk.write(
        '[gemini]\napproval = "yolo"\ntimeout = 60\ntrust_workspace = true\nleftovers = "keep"\n'
        '[gemini.permissions]\nshell = "allow"\nallow_tools = ["a", "b"]\nonly_tools = ["a", "b", "c"]\n',
        '[gemini]\napproval = "auto_edit"\ntimeout = 5\nmax_turns = 3\ntrust_workspace = false\n'
        'leftovers = "end"\nliteral = true\n'
        '[gemini.permissions]\nshell = "ask"\nallow_tools = ["a"]\nonly_tools = ["c", "d"]\n',
    )
    loaded = desk.load()
    options = loaded.options
    assert loaded.warnings == ()
    assert (options.approval, options.timeout, options.max_turns) == ("auto_edit", 5, 3)
    assert (options.trust_workspace, options.leftovers, options.literal) == (False, "end", True)
    assert (options.permissions.shell, options.permissions.allow_tools) == ("ask", ("a",))
    assert options.permissions.only_tools == ("c",)


def test_two_lists_of_only_tools_with_nothing_in_common_leave_nothing(desk: Any) -> None:
    """An empty list would mean "all tools"."""
    desk.write('[gemini.permissions]\nonly_tools = ["a"]\n', '[gemini.permissions]\nonly_tools = ["b"]\n')
    permissions = desk.load().options.permissions
    assert (permissions.only_tools, permissions.deny_tools) == (("a",), ("a",))


def test_an_empty_list_of_only_tools_does_not_lift_the_users(desk: Any) -> None:
    """Nor does an `env_only` that is wider than the user's."""
    desk.write(
        '[gemini]\nenv_only = ["LANG"]\n[gemini.permissions]\nonly_tools = ["a"]\n',
        '[gemini]\nenv_only = ["LANG", "AWS_SECRET"]\n[gemini.permissions]\nonly_tools = []\n',
    )
    loaded = desk.load()
    assert loaded.options.permissions.only_tools == ("a",)
    assert loaded.options.env_only == ("LANG",)
    assert "env_only" in loaded.warnings[0]


def test_instructions_within_the_project_are_free(desk: Any) -> None:
    """A path is meant from the file's folder; one that leads out by a link is not within."""
    (desk.folder / "docs").mkdir()
    (desk.folder / "docs" / "agent.md").touch()
    (desk.root / "secret.md").touch()
    (desk.folder / "link.md").symlink_to(desk.root / "secret.md")
    desk.write("", '[gemini]\ninstructions = "docs/agent.md"\n')
    assert desk.load().options.instructions == str(desk.folder / "docs" / "agent.md")
    desk.write("", '[gemini]\ninstructions = "link.md"\n')
    loaded = desk.load()
    assert loaded.options.instructions is None
    assert "instructions (line 2)" in loaded.warnings[0]


def test_every_problem_is_told_with_its_place(desk: Any) -> None:
    """Bad values of both files, of variables and flags, all at once."""
    desk.write(
        'modle = "x"\n[gemini]\ntimeout = "soon"\n[gemini.env]\nA = 5\n',
        '[gemini]\nmax_turn = 3\ngrace = -1\n[gemini.permissions]\nshell = "never"\n',
    )
    with pytest.raises(OptionsError) as caught:
        desk.load({"GEMINIDS_MAX_ATTEMPTS": "many"}, effort="huge")
    told = str(caught.value)
    for piece in (
        f"{desk.user}:1: modle",
        f"timeout: is 'soon', not a number of seconds (user {desk.user}:3)",
        f"(user {desk.user}:5)",
        f"{desk.project}:2: max_turn: there is no such option; did you mean max_turns?",
        f"(project {desk.project}:3)",
        f"(project {desk.project}:5)",
        "(env GEMINIDS_MAX_ATTEMPTS)",
        "(flag --effort)",
    ):
        assert piece in told, (piece, told)


def test_a_key_outside_of_its_section_is_told(desk: Any) -> None:
    """The commonest mistake."""
    desk.write('model = "x"\n')
    with pytest.raises(OptionsError, match=r"config.toml:1: model is outside a section; write \[gemini\]"):
        desk.load()


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("GEMINIDS_TIMEOUT", "2.5", 2.5),
        ("GEMINIDS_IDLE_TIMEOUT", "none", None),
        ("GEMINIDS_OFFLINE", "1", True),
        ("GEMINIDS_RUN_HOME", "isolated", "isolated"),
        ("GEMINIDS_ENV_ONLY", "LANG,TERM", ("LANG", "TERM")),
        ("GEMINIDS_APPROVAL", "plan", "plan"),
        ("GEMINIDS_MODEL", "", None),
    ],
)
def test_variables_give_simple_fields(desk: Any, name: str, text: str, value: object) -> None:
    """Lists with commas; an empty one says nothing."""
    field = {field.env: field.name for field in fields()}[name]
    assert getattr(desk.load({name: text}).options, field) == value


def test_without_files_none_is_read(desk: Any) -> None:
    """`--no-config`: variables and flags still count."""
    from geminids.config import load_options

    desk.write("not toml", "not toml")
    environ = {"HOME": str(desk.root / "home"), "GEMINIDS_MODEL": "pro"}
    loaded = load_options(desk.folder, environ=environ, config=False)
    assert loaded.options == Options(cwd=str(desk.folder), model="pro")


def test_a_value_that_narrows_nothing_of_its_kind_never_raises() -> None:
    """Whatever a file holds: a wrong kind passes and is refused by the options."""
    odd: list[Any] = [None, True, 3, 2.5, "x", (), ("a",), (1,), {}, {"a": 1}, ("\0",)]
    for field in fields():
        for value in odd:
            for below in (field.default, *odd):
                assert may_set(field, value, below, "/p") in (True, False)


def test_reading_no_files_costs_next_to_nothing(tmp_path: Path) -> None:
    """Neither a TOML reader nor platformdirs is loaded where there is no file."""
    program = (
        "import sys\nfrom geminids.config.loader import load_options\n"
        f"load_options({str(tmp_path)!r}, environ={{'HOME': '/nowhere'}})\n"
        "print([name for name in ('tomllib', 'tomlkit', 'platformdirs', 'difflib')"
        " if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_a_project_cannot_take_variables_away(desk: Any) -> None:
    """With them it would take the sandbox, the proxy or the gateway that the user has set."""
    desk.write("", '[gemini]\nenv_only = ["PATH"]\n')
    loaded = desk.load()
    assert loaded.options.env_only is None
    assert "env_only" in loaded.warnings[0]
