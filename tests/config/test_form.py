"""The values of a web form become options or a list of problems."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminids import McpServer, Options, OptionsError, Permissions
from geminids.config import build_config, json_schema, validate_config
from geminids.options.flags import fields

_HERE = str(Path(__file__).parent)
_FILE = __file__

# Valid texts: no control characters, no lone surrogates, not blank.
_texts = st.text(st.characters(exclude_categories=("Cs", "Cc"))).map(lambda text: f"x{text}")
_names = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True)
_seconds = st.floats(0.001, 1e6) | st.integers(1, 10**6)
_mapping = st.dictionaries(_names, _texts, max_size=3)
_list = st.lists(_texts, max_size=3).map(tuple)
_files = st.lists(st.just(_FILE), max_size=2).map(tuple)
_folders = st.lists(st.just(_HERE), max_size=2).map(tuple)
_decision = st.sampled_from([None, "allow", "ask", "deny"])

_servers = st.builds(
    McpServer, command=_texts, args=_list, env=_mapping, timeout=st.none() | _seconds, include_tools=_list
) | st.builds(McpServer, url=_names.map(lambda name: f"https://{name}.example"), headers=_mapping)

_permissions = st.builds(
    Permissions,
    **dict.fromkeys(("file_write", "shell", "network", "mcp", "skills"), _decision),
    **{name: _list for name in Permissions.__struct_fields__ if "_" in name and name != "file_write"},
)

_options = st.builds(
    Options,
    cwd=st.just(_HERE),
    make_cwd=st.booleans(),
    model=st.none() | _names,
    effort=st.none() | st.sampled_from(["none", "high"]) | st.integers(0, 10**6),
    approval=st.sampled_from(["default", "auto_edit", "yolo", "plan"]),
    permissions=_permissions,
    trust_workspace=st.booleans(),
    resume=st.none() | _names,
    template=_texts,
    variables=_mapping,
    instructions=st.none() | st.just(_FILE),
    images=_files,
    files=_files,
    include_dirs=_folders,
    mcp_servers=st.dictionaries(_names, _servers, max_size=2),
    max_turns=st.none() | st.integers(1, 100_000),
    max_attempts=st.none() | st.integers(1, 10),
    timeout=st.none() | _seconds,
    idle_timeout=st.none() | _seconds,
    stall_after=st.none() | _seconds,
    grace=_seconds,
    leftovers=st.sampled_from(["end", "keep"]),
    home=st.sampled_from(["user", "isolated", _HERE]),
    env=_mapping,
    env_only=st.none() | st.lists(_names, max_size=2).map(tuple),
    literal=st.booleans(),
    line_limit=st.integers(1024, 2**40),
)


@given(_options)
def test_options_survive_json_and_form(options: Options) -> None:
    """Every valid `Options` is the same after JSON and after the form, and matches the JSON Schema."""
    data = msgspec.json.encode(options)
    form = msgspec.json.decode(data)
    assert msgspec.json.decode(data, type=Options) == options
    assert build_config(form) == options
    assert list(_validator().iter_errors(form)) == []


# No strings: a form accepts a string for every type.
_wrong_types = (
    st.none() | st.booleans() | st.integers(-5, 10**7) | st.floats(allow_nan=False, allow_infinity=False)
)
_wrong_values = (
    _wrong_types
    | st.lists(_wrong_types, min_size=1, max_size=2)
    | st.dictionaries(_names, _wrong_types, min_size=1, max_size=2)
)
_top_level_names = sorted({field.name.partition(".")[0] for field in fields()})


@given(st.dictionaries(st.sampled_from(_top_level_names), _wrong_values, min_size=1, max_size=4))
def test_the_form_refuses_what_the_json_schema_refuses(form: dict[str, Any]) -> None:
    """If the JSON Schema refuses a value, the form reports a problem for the same field."""
    refused = {str(error.absolute_path[0]) for error in _validator().iter_errors(form)}
    reported = {problem.name.partition(".")[0] for problem in validate_config(form)}
    assert refused <= reported


@given(
    st.dictionaries(
        st.sampled_from(_top_level_names) | st.text(max_size=8), st.text(max_size=6) | _wrong_values
    )
)
def test_no_form_raises_another_error(form: dict[str, Any]) -> None:
    """Any form gives options or an `OptionsError`, and no other exception."""
    with contextlib.suppress(OptionsError):
        build_config(form)


def test_the_names_of_leadmetrics_are_accepted() -> None:
    """The names of the Leadmetrics document, such as `timeoutSec` and `yolo`, and camel case are
    accepted.
    """
    form = {
        "cwd": _HERE,
        "promptTemplate": "{{prompt}}",
        "instructionsFilePath": _FILE,
        "timeoutSec": 120,
        "graceSec": "5",
        "yolo": True,
        "maxTurns": "3",
        "permissions": {"denyTools": ["write_file"]},
    }
    options = build_config(form)
    assert (options.template, options.instructions, options.approval) == ("{{prompt}}", _FILE, "yolo")
    assert (options.timeout, options.grace, options.max_turns) == (120, 5, 3)
    assert options.permissions.deny_tools == ("write_file",)
    assert build_config({"yolo": False}).approval == "default"


def test_text_is_converted() -> None:
    """Text is converted to numbers, switches, lists and mappings.

    Empty text means no value, and `none` means no limit.
    """
    options = build_config(
        {
            "model": "",
            "timeout": "2.5",
            "idle_timeout": "none",
            "max_turns": "7",
            "effort": "512",
            "offline": "on",
            "literal": "false",
            "env": "A=1\nB=x=y\n",
            "permissions.only_tools": "glob, read_file",
            "permissions.allow_commands": "git log --format=%h,%s\nls",
            "mcp_servers": '{"fs": {"command": "npx", "includeTools": ["a"]}}',
        }
    )
    assert (options.model, options.timeout, options.idle_timeout, options.max_turns) == (None, 2.5, None, 7)
    assert (options.effort, options.offline, options.literal) == (512, True, False)
    assert options.env == {"A": "1", "B": "x=y"}
    assert options.permissions.only_tools == ("glob", "read_file")
    assert options.permissions.allow_commands == ("git log --format=%h,%s", "ls")
    assert options.mcp_servers == {"fs": McpServer(command="npx", include_tools=("a",))}


def test_every_problem_is_reported_with_its_field() -> None:
    """All problems are reported at once with their fields.

    For an unknown name, a similar one is suggested.
    """
    form = {
        "timeout": "soon",
        "modle": "x",
        "permissions": {"shel": "deny", "network": "maybe"},
        "mcp_servers": {"a": {"comand": "x"}},
        "maxTurns": 0,
    }
    problems = {problem.name: problem.message for problem in validate_config(form)}
    assert set(problems) == {
        "timeout",
        "modle",
        "permissions.shel",
        "permissions",
        "mcp_servers",
        "max_turns",
    }
    assert "did you mean model?" in problems["modle"]
    assert "did you mean permissions.shell?" in problems["permissions.shel"]
    assert "comand" in problems["mcp_servers"]


@pytest.mark.parametrize("form", [{"timeout": 5, "timeoutSec": 6}, {"yolo": True, "approval": "plan"}])
def test_two_values_for_one_field_are_a_problem(form: dict[str, Any]) -> None:
    """Two names of the same field in one form are a problem."""
    assert "is set twice" in validate_config(form)[0].message


def test_an_error_does_not_show_a_secret() -> None:
    """The problem of an invalid variable or server does not repeat its text, which may be a secret."""
    problems = validate_config({"env": "hunter2hunter2", "mcp_servers": "hunter2hunter2"})
    assert {problem.name for problem in problems} == {"env", "mcp_servers"}
    assert "hunter2" not in str(problems)


def _validator() -> Any:
    return jsonschema.Draft202012Validator(json_schema())
