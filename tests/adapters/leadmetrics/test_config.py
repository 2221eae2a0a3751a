"""Tests of the Leadmetrics configuration: form fields, stored values, problems and the identity."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from geminids import OptionsError
from geminids.adapters.leadmetrics import (
    GeminiLocalConfig,
    agent_configuration_doc,
    build_config,
    config_fields,
    identity,
    models,
    options_of,
    validate_config,
)
from geminids.config.schema import config_fields as option_fields
from geminids.gemini import release_of


def _names(config: dict[str, Any]) -> list[str]:
    return [problem.name for problem in validate_config(config)]


def test_documented_fields(tmp_path: Path) -> None:
    """Every field of the document sets its option. A missing `cwd` will be created."""
    file = tmp_path / "AGENT.md"
    file.write_text("Be kind.\n")
    config = {
        "cwd": str(tmp_path / "new"),
        "model": "gemini-2.5-pro",
        "promptTemplate": "You are {{agent.name}}.",
        "instructionsFilePath": str(file),
        "env": {"GEMINI_API_KEY": "k"},
        "timeoutSec": 90,
        "graceSec": 2,
        "yolo": True,
    }
    options = options_of(config)
    assert (options.cwd, options.make_cwd) == (config["cwd"], True)
    assert (options.model, options.template) == ("gemini-2.5-pro", "You are {{agent.name}}.")
    assert (options.instructions, options.env) == (str(file), {"GEMINI_API_KEY": "k"})
    assert (options.timeout, options.grace, options.approval) == (90, 2, "yolo")


def test_documented_defaults() -> None:
    """The defaults are 120 seconds, 5 seconds of grace, no yolo, and the CLI's own model."""
    options = options_of({"cwd": "."})
    assert (options.timeout, options.grace, options.approval, options.model) == (120, 5, "default", None)


@pytest.mark.parametrize("zero", [0, 0.0, "0", " 0 "])
def test_timeout_0_means_no_limit(zero: object) -> None:
    """`timeoutSec` 0 means no time limit, as in Paperclip."""
    assert options_of({"cwd": ".", "timeoutSec": zero}).timeout is None


def test_values_of_a_form_are_text() -> None:
    """Numbers, switches and variables may be text. Empty values count as missing."""
    form = {"cwd": ".", "timeoutSec": "60", "yolo": "on", "model": "", "env": "A=1\nB=2", "graceSec": ""}
    config = build_config(form)
    assert config == GeminiLocalConfig(cwd=".", timeout_sec=60, yolo=True, env={"A": "1", "B": "2"})


def test_stored_configuration_is_read_back() -> None:
    """A configuration that is stored as JSON gives the same options when it is read."""
    form = {
        "cwd": ".",
        "maxTurns": "5",
        "idle_timeout": "none",
        "approval": "auto_edit",
        "permissions.shell": "deny",
        "timeoutSec": 0,
        "command": "0.61.0",
        "helloProbeTimeoutSec": 20,
    }
    config = build_config(form)
    stored = json.loads(msgspec.json.encode(config))
    assert set(stored) == {"cwd", "timeoutSec", "command", "options", "helloProbeTimeoutSec"}
    options = options_of(stored)
    assert options == options_of(form) == options_of(config)
    assert (options.max_turns, options.idle_timeout, options.timeout) == (5, None, None)
    assert (options.approval, options.permissions.shell, options.gemini) == ("auto_edit", "deny", "0.61.0")
    assert build_config(stored) == config


def test_all_problems_are_reported() -> None:
    """All problems are reported at once, by their field names.
    They are invalid values, unknown and forbidden names, and a missing `cwd`."""
    config = {
        "timeoutSec": "soon",
        "graceSec": -1,
        "modle": "pro",
        "resume": "latest",
        "sandbox": True,
        "maxTurns": 0,
        "helloProbeTimeoutSec": "x",
        "yolo": "perhaps",
    }
    assert sorted(_names(config)) == sorted([*config, "cwd"])
    with pytest.raises(OptionsError) as raised:
        build_config(config)
    assert len(raised.value.problems) == 9


@pytest.mark.parametrize("value", ["maybe", "plan", "auto_edit", 2, []])
def test_yolo_is_true_or_false(value: Any) -> None:
    """`yolo` is a switch. Any other value is a problem that says so; it is no approval mode."""
    [problem] = validate_config({"cwd": ".", "yolo": value})
    assert (problem.name, problem.message) == ("yolo", "is not true or false")


@pytest.mark.parametrize("config", [None, [], "cwd", 42])
def test_configuration_that_is_not_an_object(config: Any) -> None:
    """A stored value that is not an object is one problem, and
    `build_config` raises OptionsError."""
    [problem] = validate_config(config)
    assert problem.name == "config"
    with pytest.raises(OptionsError, match="not an object"):
        build_config(config)


def test_options_must_be_an_object() -> None:
    """A value of `options` that is not an object is a problem. Empty values are accepted."""
    assert _names({"cwd": ".", "options": [1]}) == ["options"]
    assert _names({"cwd": ".", "options": ""}) == _names({"cwd": ".", "options": None}) == []


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ({"cwd": ".", "options": {"cwd": "elsewhere"}}, "cwd"),
        ({"cwd": ".", "graceSec": 5, "grace": 9}, "grace"),
        ({"cwd": ".", "timeoutSec": 5, "options": {"timeout": 9}}, "timeout"),
        ({"cwd": ".", "command": "0.61.0", "gemini": "0.41.2"}, "gemini"),
    ],
    ids=["cwd", "grace", "timeout", "command"],
)
def test_conflicting_values(config: dict[str, Any], name: str) -> None:
    """Two different values for the same option are a problem. The same value twice is not."""
    [problem] = validate_config(config)
    assert (problem.name, problem.message) == (name, "is set twice, with different values")
    assert validate_config({"cwd": ".", "options": {"cwd": "."}}) == ()


def test_extreme_values() -> None:
    """A very large number and a very deep value are reported as problems of their fields."""
    deep: dict[str, Any] = {}
    for _ in range(3000):
        deep = {"a": deep}
    assert _names({"cwd": ".", "helloProbeTimeoutSec": 10**400}) == ["helloProbeTimeoutSec"]
    assert _names({"cwd": ".", "model": deep, "timeoutSec": deep}) == ["model", "timeoutSec"]


def test_paperclip_fields_with_default_values() -> None:
    """Paperclip's own fields are accepted if their values change nothing."""
    config = {
        "cwd": ".",
        "command": "gemini",
        "extraArgs": [],
        "sandbox": False,
        "engine": "cli",
        "mode": "",
        "stateDir": None,
        "warmHandleIdleMs": 0,
    }
    assert _names(config) == []
    assert options_of(config).gemini is None
    assert _names(config | {"extraArgs": ["--debug"], "engine": "acp"}) == ["extraArgs", "engine"]


@pytest.mark.parametrize("seconds", [0, -1, True, "", [], "1e99"])
def test_probe_timeout(seconds: object) -> None:
    """`helloProbeTimeoutSec` must be a number above 0, or empty for the default."""
    expected = [] if seconds == "" else ["helloProbeTimeoutSec"]
    assert _names({"cwd": ".", "helloProbeTimeoutSec": seconds}) == expected


def test_unknown_names_in_a_template() -> None:
    """A template name that no run can have is a problem that lists the known names."""
    template = r"{{agent.nme}} {{agentId}} {{company.id}} {{context.issue.id}} {{prompt}} \{{plain}} {{x:1}}"
    (problem,) = validate_config({"cwd": ".", "promptTemplate": template})
    assert problem.name == "promptTemplate"
    assert problem.message.startswith("unknown names: {{agent.nme}}; the known names are prompt, agentId, ")
    assert validate_config({"cwd": ".", "promptTemplate": template.replace("nme", "name")}) == ()


@pytest.mark.parametrize("seconds", [-1, "-1", -0.5])
def test_a_negative_timeout(seconds: object) -> None:
    """The problem of a negative `timeoutSec` says that 0 is allowed."""
    (problem,) = validate_config({"cwd": ".", "timeoutSec": seconds})
    assert (problem.name, problem.message) == (
        "timeoutSec",
        f"is {seconds} seconds; it must be 0 (no limit) or more",
    )


def test_cwd_must_be_a_folder(tmp_path: Path) -> None:
    """A file as `cwd` is a problem."""
    file = tmp_path / "file"
    file.touch()
    assert _names({"cwd": str(file)}) == ["cwd"]


def test_secrets_are_not_shown() -> None:
    """Neither the repr of a configuration nor a problem contains the value of a variable."""
    config = build_config({"cwd": ".", "env": {"GEMINI_API_KEY": "very-secret"}})
    assert "very-secret" not in repr(config)
    problems = validate_config({"cwd": ".", "env": "GEMINI_API_KEY very-secret"})
    assert [problem.name for problem in problems] == ["env"]
    assert "very-secret" not in repr(problems)


def test_identity() -> None:
    """The identity has the type, the label, the models of the release and
    the documentation page."""
    encoded = json.loads(msgspec.json.encode(identity()))
    assert (encoded["type"], encoded["label"], encoded["defaultModel"]) == (
        "gemini_local",
        "Gemini CLI (local)",
        "auto",
    )
    assert {"id": "gemini-2.5-pro", "label": "Gemini 2.5 Pro"} in encoded["models"]
    assert encoded["models"][0] == {"id": "auto", "label": "Auto"}
    assert encoded["agentConfigurationDoc"] == agent_configuration_doc()
    old = {model.id for model in identity(release_of("0.54.4")).models}
    assert "gemini-3.8-flash" not in old and "gemini-2.5-pro" in old
    assert models("0.54.4") == identity(release_of("0.54.4")).models == identity("0.54.4").models
    means = {model.id: model.means for model in models("0.61.0")}
    assert (means["pro"], means["flash"]) == ("gemini-3.1-pro-preview", "gemini-3.8-flash")
    assert means["auto"] is means["gemini-2.5-pro"] is None


def test_form_fields() -> None:
    """The form has the documented fields first and then every option that
    is not set for each run."""
    names = [field.name for field in config_fields()]
    assert names[:8] == [
        "cwd",
        "model",
        "promptTemplate",
        "instructionsFilePath",
        "env",
        "timeoutSec",
        "graceSec",
        "yolo",
    ]
    assert len(names) == len(set(names))
    # Five options are fixed or set for each run; `approval` appears as `yolo`. The time limit of the
    # probe is a field of the adapter alone.
    assert len(names) == len(option_fields()) - 5 + 1
    by_name = {field.name: field for field in config_fields()}
    assert by_name["cwd"].required
    assert (by_name["timeoutSec"].default, by_name["graceSec"].default) == (120, 5)
    assert by_name["env"].secret
    assert "variables" not in by_name["promptTemplate"].description
    defaults = {name: field.default for name, field in by_name.items() if field.default is not None}
    assert _names({"cwd": ".", **defaults}) == []


def test_page_describes_every_field() -> None:
    """The documentation page describes every field with its kind, its default and its meaning."""
    page = agent_configuration_doc()
    for field in config_fields():
        assert f"- `{field.name}` (" in page
        assert field.description in page
    assert "`timeoutSec` (number, default 120)" in page
    assert "`cwd` (path, required)" in page
