"""The configuration of an agent: the form, what is stored, what is wrong with it, and who the adapter is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from geminids import OptionsError
from geminids.adapters.leadmetrics import (
    GeminiLocalConfig,
    build_config,
    config_fields,
    configuration_doc,
    identity,
    options_of,
    validate_config,
)
from geminids.config.schema import config_fields as option_fields
from geminids.gemini import release_of


def _names(config: dict[str, Any]) -> list[str]:
    return [problem.name for problem in validate_config(config)]


def test_the_documents_configuration(tmp_path: Path) -> None:
    """Every field of the document becomes the option that does it; a folder that is absent will be made."""
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


def test_the_documents_defaults() -> None:
    """120 seconds, 5 of grace, no yolo, and the model of the CLI's own choice."""
    options = options_of({"cwd": "."})
    assert (options.timeout, options.grace, options.approval, options.model) == (120, 5, "default", None)


@pytest.mark.parametrize("zero", [0, 0.0, "0", " 0 "])
def test_no_limit_is_0(zero: object) -> None:
    """Paperclip's word for "no time-out"."""
    assert options_of({"cwd": ".", "timeoutSec": zero}).timeout is None


def test_a_form_gives_text() -> None:
    """Numbers, switches and variables as text; what is empty was not given."""
    form = {"cwd": ".", "timeoutSec": "60", "yolo": "on", "model": "", "env": "A=1\nB=2", "graceSec": ""}
    config = build_config(form)
    assert config == GeminiLocalConfig(cwd=".", timeout_sec=60, yolo=True, env={"A": "1", "B": "2"})


def test_what_is_stored_is_read_again() -> None:
    """A configuration as JSON, and back: the same options, further ones and taken-away limits too."""
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
    again = options_of(stored)
    assert again == options_of(form) == options_of(config)
    assert (again.max_turns, again.idle_timeout, again.timeout) == (5, None, None)
    assert (again.approval, again.permissions.shell, again.gemini) == ("auto_edit", "deny", "0.61.0")
    assert build_config(stored) == config


def test_every_problem_is_told_at_once_by_the_forms_own_names() -> None:
    """Wrong values, unknown names, what is missing, and what only the orchestrator may say."""
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


@pytest.mark.parametrize("config", [None, [], "cwd", 42])
def test_what_is_no_configuration_at_all(config: Any) -> None:
    """A stored value that is no object is one problem, and no exception of Python's."""
    [problem] = validate_config(config)
    assert problem.name == "config"
    with pytest.raises(OptionsError, match="not an object"):
        build_config(config)


def test_further_options_that_are_no_object() -> None:
    """They are not passed over."""
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
def test_two_values_for_one_thing(config: dict[str, Any], name: str) -> None:
    """Nobody could say which of them is meant; the same value twice is no problem."""
    [problem] = validate_config(config)
    assert (problem.name, problem.message) == (name, "is given twice, with two values")
    assert validate_config({"cwd": ".", "options": {"cwd": "."}}) == ()


def test_values_beyond_all_bounds() -> None:
    """A number that no float can be, and a value as deep as JSON can be: problems, by their names."""
    deep: dict[str, Any] = {}
    for _ in range(3000):
        deep = {"a": deep}
    assert _names({"cwd": ".", "helloProbeTimeoutSec": 10**400}) == ["helloProbeTimeoutSec"]
    assert _names({"cwd": ".", "model": deep, "timeoutSec": deep}) == ["model", "timeoutSec"]


def test_a_configuration_of_paperclips_that_asks_for_nothing_else() -> None:
    """Its own fields are no problem while they ask for what is done anyway."""
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
def test_the_limit_of_the_probe(seconds: object) -> None:
    """A number of seconds above 0; empty is the default."""
    wrong = [] if seconds == "" else ["helloProbeTimeoutSec"]
    assert _names({"cwd": ".", "helloProbeTimeoutSec": seconds}) == wrong


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    """A file cannot be worked in."""
    file = tmp_path / "file"
    file.touch()
    assert _names({"cwd": str(file)}) == ["cwd"]


def test_secrets_are_not_shown() -> None:
    """The text of a configuration in a log has none of its variables."""
    config = build_config({"cwd": ".", "env": {"GEMINI_API_KEY": "very-secret"}})
    assert "very-secret" not in repr(config)
    problems = validate_config({"cwd": ".", "env": "GEMINI_API_KEY very-secret"})
    assert [problem.name for problem in problems] == ["env"]
    assert "very-secret" not in repr(problems)


def test_who_the_adapter_is() -> None:
    """Type key, label, default model, the models of a release, the form, and the page about it: plain data."""
    said = json.loads(msgspec.json.encode(identity()))
    assert (said["type"], said["label"], said["defaultModel"]) == (
        "gemini_local",
        "Gemini CLI (local)",
        "auto",
    )
    assert {"id": "gemini-2.5-pro", "label": "Gemini 2.5 Pro"} in said["models"]
    assert said["models"][0] == {"id": "auto", "label": "Auto"}
    assert said["agentConfigurationDoc"] == configuration_doc()
    old = {model.id for model in identity(release_of("0.54.4")).models}
    assert "gemini-3.8-flash" not in old and "gemini-2.5-pro" in old


def test_the_form_has_the_documented_fields_first_and_then_every_option() -> None:
    """One schema: what the form offers is what is read, and nothing of ours is left out but what is the run's."""
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
    # Five are said for each run, or always so; `approval` is `yolo` here.
    assert len(names) == len(option_fields()) - 5
    by_name = {field.name: field for field in config_fields()}
    assert by_name["cwd"].required
    assert (by_name["timeoutSec"].default, by_name["graceSec"].default) == (120, 5)
    assert by_name["env"].secret
    defaults = {name: field.default for name, field in by_name.items() if field.default is not None}
    assert _names({"cwd": ".", **defaults}) == []


def test_the_page_names_every_field() -> None:
    """With its kind, its default, and what it does."""
    page = configuration_doc()
    for field in config_fields():
        assert f"- `{field.name}` (" in page
        assert field.description in page
    assert "`timeoutSec` (number, default 120)" in page
    assert "`cwd` (path, required)" in page
