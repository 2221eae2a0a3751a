"""`load_options` merges flags, environment, project file, user file and defaults."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from geminids import Options, OptionsError
from geminids.config.project_limits import may_set
from geminids.options.flags import fields


def test_without_configuration_the_defaults_apply(config_files: Any) -> None:
    """Without configuration all options are defaults; only the given folder has an origin."""
    loaded = config_files.load()
    assert loaded.options == Options(cwd=str(config_files.folder))
    assert (loaded.origins, loaded.warnings) == ({"cwd": "flag --cwd"}, ())


def test_the_order_is_flag_environment_project_user(config_files: Any) -> None:
    """A flag overrides the environment, which overrides the project file, which overrides the
    user's file.

    The origin names the source.
    """
    config_files.write('[gemini]\nmodel = "user"\n', '# mine\n[gemini]\nmodel = "project"\n')
    assert config_files.load(model="flag").options.model == "flag"
    env = {"GEMINIDS_MODEL": "env"}
    assert config_files.load(env, model="flag").origins["model"] == "flag --model"
    assert (config_files.load(env).options.model, config_files.load(env).origins["model"]) == (
        "env",
        "env GEMINIDS_MODEL",
    )
    assert config_files.load().origins["model"] == f"project {config_files.project}:3"
    config_files.project.unlink()
    assert (config_files.load().options.model, config_files.load().origins["model"]) == (
        "user",
        f"user {config_files.user}:2",
    )


def test_mappings_merge_denies_add_up_and_lists_replace(config_files: Any) -> None:
    """Mappings are merged by entry, deny lists add up, and other lists replace each other."""
    config_files.write(
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
    loaded = config_files.load({"GEMINIDS_PERMISSIONS_MCP": "deny"}, **flags)
    permissions = loaded.options.permissions
    assert (permissions.shell, permissions.network, permissions.mcp) == ("deny", "deny", "deny")
    assert permissions.deny_tools == ("a", "b", "c")
    assert permissions.allow_tools == ("y",)
    assert loaded.options.env == {"A": "user", "B": "flag"}
    assert (loaded.origins["env.A"], loaded.origins["env.B"]) == (f"user {config_files.user}:9", "flag --env")
    assert sorted(loaded.options.mcp_servers) == ["one", "two"]


def test_a_project_cannot_extend_its_permissions(config_files: Any) -> None:
    """A project cannot extend its permissions or limits.

    Such settings are ignored, and one warning names them and `config trust`.
    """
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
    config_files.write('[gemini]\ntimeout = 60\n[gemini.permissions]\nnetwork = "deny"\n', text)
    (config_files.folder / "good.md").touch()
    loaded = config_files.load()
    assert loaded.options == Options(
        cwd=str(config_files.folder),
        model="flash",
        timeout=60,
        permissions=type(loaded.options.permissions)(network="deny"),
    )
    (warning,) = loaded.warnings
    named = {field.name for field in fields() if f" {field.name} (line " in warning}
    assert len(named) == 27
    assert "approval (line 3)" in warning and "mcp_servers (line 31)" in warning
    assert f"geminids config trust {config_files.folder}" in warning
    assert [name for name, origin in loaded.origins.items() if origin.startswith("project")] == ["model"]


def test_a_project_cannot_set_prices(config_files: Any) -> None:
    """A project cannot set prices or raise the budget. Both settings are ignored with a warning."""
    (config_files.folder / "free.toml").write_text('[[models]]\nmodel = "*"\ninput = 0\noutput = 0\n')
    config_files.write("[gemini]\nmax_budget = 1.0\n", '[gemini]\nprices = "free.toml"\nmax_budget = 5.0\n')
    loaded = config_files.load()
    assert (loaded.options.prices, loaded.options.max_budget) == (None, 1.0)
    (warning,) = loaded.warnings
    assert "prices (line 2)" in warning and "max_budget (line 3)" in warning


def test_a_trusted_project_may_set_everything(config_files: Any) -> None:
    """A project in `trusted_projects` may set everything.

    A folder above or below a listed one is not trusted.
    """
    project = '[gemini]\napproval = "yolo"\n[gemini.env]\nA = "1"\n'
    for listed, is_trusted in (
        (config_files.folder, True),
        (config_files.root, False),
        (config_files.folder / ".git", False),
    ):
        config_files.write(
            f'trusted_projects = ["{listed}"]\n[gemini.permissions]\ndeny_tools = ["a"]\n', project
        )
        loaded = config_files.load()
        assert (loaded.options.approval == "yolo", bool(loaded.options.env)) == (is_trusted, is_trusted)
        assert bool(loaded.warnings) != is_trusted
        assert loaded.options.permissions.deny_tools == ("a",)


def test_a_project_cannot_trust_itself(config_files: Any) -> None:
    """`trusted_projects` in a project file is ignored with a warning."""
    config_files.write("", f'trusted_projects = ["{config_files.folder}"]\n[gemini]\napproval = "yolo"\n')
    loaded = config_files.load()
    assert loaded.options.approval == "default"
    assert "it works only in the user's configuration file" in loaded.warnings[0]


def test_a_project_may_be_stricter(config_files: Any) -> None:
    """A project may set stricter modes, stricter permissions and lower limits."""
    config_files.write(
        '[gemini]\napproval = "yolo"\ntimeout = 60\ntrust_workspace = true\nleftovers = "keep"\n'
        '[gemini.permissions]\nshell = "allow"\nallow_tools = ["a", "b"]\nonly_tools = ["a", "b", "c"]\n',
        '[gemini]\napproval = "auto_edit"\ntimeout = 5\nmax_turns = 3\ntrust_workspace = false\n'
        'leftovers = "end"\nliteral = true\n'
        '[gemini.permissions]\nshell = "ask"\nallow_tools = ["a"]\nonly_tools = ["c", "d"]\n',
    )
    loaded = config_files.load()
    options = loaded.options
    assert loaded.warnings == ()
    assert (options.approval, options.timeout, options.max_turns) == ("auto_edit", 5, 3)
    assert (options.trust_workspace, options.leftovers, options.literal) == (False, "end", True)
    assert (options.permissions.shell, options.permissions.allow_tools) == ("ask", ("a",))
    assert options.permissions.only_tools == ("c",)


def test_only_tools_without_a_common_tool_allow_no_tool(config_files: Any) -> None:
    """If the `only_tools` of user and project have no tool in common, no tool is allowed.

    An empty list would allow all tools.
    """
    config_files.write(
        '[gemini.permissions]\nonly_tools = ["a"]\n', '[gemini.permissions]\nonly_tools = ["b"]\n'
    )
    permissions = config_files.load().options.permissions
    assert (permissions.only_tools, permissions.deny_tools) == (("a",), ("a",))


def test_a_project_cannot_extend_the_lists_of_the_user(config_files: Any) -> None:
    """An empty `only_tools` or a wider `env_only` of a project does not override the user's list."""
    config_files.write(
        '[gemini]\nenv_only = ["LANG"]\n[gemini.permissions]\nonly_tools = ["a"]\n',
        '[gemini]\nenv_only = ["LANG", "AWS_SECRET"]\n[gemini.permissions]\nonly_tools = []\n',
    )
    loaded = config_files.load()
    assert loaded.options.permissions.only_tools == ("a",)
    assert loaded.options.env_only == ("LANG",)
    assert "env_only" in loaded.warnings[0]


def test_instructions_inside_the_project_are_allowed(config_files: Any) -> None:
    """A project may name instructions inside its folder, relative to its file.

    A link to a file outside is ignored with a warning.
    """
    (config_files.folder / "docs").mkdir()
    (config_files.folder / "docs" / "agent.md").touch()
    (config_files.root / "secret.md").touch()
    (config_files.folder / "link.md").symlink_to(config_files.root / "secret.md")
    config_files.write("", '[gemini]\ninstructions = "docs/agent.md"\n')
    assert config_files.load().options.instructions == str(config_files.folder / "docs" / "agent.md")
    config_files.write("", '[gemini]\ninstructions = "link.md"\n')
    loaded = config_files.load()
    assert loaded.options.instructions is None
    assert "instructions (line 2)" in loaded.warnings[0]


def test_every_problem_is_reported_with_its_source(config_files: Any) -> None:
    """Invalid values of both files, variables and flags are reported together, with their sources."""
    config_files.write(
        'modle = "x"\n[gemini]\ntimeout = "soon"\n[gemini.env]\nA = 5\n',
        '[gemini]\nmax_turn = 3\ngrace = -1\n[gemini.permissions]\nshell = "never"\n',
    )
    with pytest.raises(OptionsError) as caught:
        config_files.load({"GEMINIDS_MAX_ATTEMPTS": "many"}, effort="huge")
    message = str(caught.value)
    for expected in (
        f"{config_files.user}:1: modle",
        f"timeout: is 'soon', not a number of seconds (user {config_files.user}:3)",
        f"(user {config_files.user}:5)",
        f"{config_files.project}:2: max_turn: there is no such option; did you mean max_turns?",
        f"(project {config_files.project}:3)",
        f"(project {config_files.project}:5)",
        "(env GEMINIDS_MAX_ATTEMPTS)",
    ):
        assert expected in message, (expected, message)


def test_a_key_outside_its_section_is_reported(config_files: Any) -> None:
    """A key outside of the `[gemini]` section is an error that names the section."""
    config_files.write('model = "x"\n')
    with pytest.raises(OptionsError, match=r"config.toml:1: model is outside a section; write \[gemini\]"):
        config_files.load()


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
def test_variables_set_simple_fields(config_files: Any, name: str, text: str, value: object) -> None:
    """An environment variable sets a simple field.

    A list is separated by commas, and an empty variable is ignored.
    """
    field = {field.env: field.name for field in fields()}[name]
    assert getattr(config_files.load({name: text}).options, field) == value


def test_no_config_reads_no_file(config_files: Any) -> None:
    """With `config=False` no file is read; variables and flags still count."""
    from geminids.config import load_options

    config_files.write("not toml", "not toml")
    environ = {"HOME": str(config_files.root / "home"), "GEMINIDS_MODEL": "pro"}
    loaded = load_options(config_files.folder, environ=environ, config=False)
    assert loaded.options == Options(cwd=str(config_files.folder), model="pro")


def test_may_set_never_raises() -> None:
    """`may_set` raises nothing for any value of a wrong type; the options refuse it later."""
    values: list[Any] = [None, True, 3, 2.5, "x", (), ("a",), (1,), {}, {"a": 1}, ("\0",)]
    for field in fields():
        for value in values:
            for current in (field.default, *values):
                assert may_set(field, value, current, "/p") in (True, False)


def test_a_problem_names_the_line_of_the_entry_that_causes_it(config_files: Any) -> None:
    """A problem names the line of the entry that causes it, or the line of the section if it
    concerns all entries.
    """
    config_files.write('[gemini.variables]\nb = "1"\na = "2"\n[gemini.permissions]\nshell = "perhaps"\n')
    with pytest.raises(OptionsError) as caught:
        config_files.load()
    problems = dict(caught.value.problems)
    assert problems["variables"] == f"can be used only with `template` (user {config_files.user}:1)"
    assert problems["permissions"].endswith(f"(user {config_files.user}:5)")


def test_no_file_needs_no_imports(tmp_path: Path) -> None:
    """Without a file, neither a TOML parser nor platformdirs is imported."""
    program = (
        "import sys\nfrom geminids.config.loader import load_options\n"
        f"load_options({str(tmp_path)!r}, environ={{'HOME': '/nowhere'}})\n"
        "print([name for name in ('tomllib', 'tomlkit', 'platformdirs', 'difflib')"
        " if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_a_project_cannot_remove_variables(config_files: Any) -> None:
    """A project cannot set `env_only`: it could remove the user's sandbox, proxy or gateway
    variables.
    """
    config_files.write("", '[gemini]\nenv_only = ["PATH"]\n')
    loaded = config_files.load()
    assert loaded.options.env_only is None
    assert "env_only" in loaded.warnings[0]
