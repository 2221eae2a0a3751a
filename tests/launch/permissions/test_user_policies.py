"""Tests of the user's own policies: found where the CLI finds them, kept in order, and refused if
the CLI would drop them."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from geminids.gemini.settings_file import SettingsProblem
from geminids.launch.home import SourceHome
from geminids.launch.permissions.user_policies import UserPolicies, user_policies

RULE = '[[rule]]\ntoolName = "{}"\ndecision = "{}"\npriority = {}\n'


@pytest.fixture
def home(tmp_path: Path) -> Any:
    """A function that writes policy files into a home and reads them with the given settings."""

    def read(files: dict[str, str], **settings: Any) -> UserPolicies:
        for name, text in files.items():
            file = tmp_path / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        source = SourceHome("user", tmp_path, settings)
        return user_policies(source, str(tmp_path / "work"), {"WHERE": str(tmp_path / "else")})

    return read


def _rules(policies: UserPolicies) -> list[tuple[str, str, int]]:
    assert policies.text is not None
    return [(r["toolName"], r["decision"], r["priority"]) for r in tomllib.loads(policies.text)["rule"]]


def test_a_home_without_policies(home: Any) -> None:
    """A home without policy files has no policies."""
    assert home({}) == UserPolicies()
    assert home({".gemini/policies/notes.txt": "no policy"}) == UserPolicies()


def test_files_are_passed_by_path(home: Any, tmp_path: Path) -> None:
    """If no priority conflicts with ours, the paths of the files themselves are passed to the
    CLI."""
    files = {f".gemini/policies/{name}.toml": RULE.format("glob", "deny", 500) for name in "ba"}
    policies = home(files)
    assert policies.paths == tuple(str(tmp_path / name) for name in sorted(files))
    assert policies.text is None


@pytest.mark.parametrize("path", ["$WHERE", "${WHERE}/x.toml", "~/else", "../else", "${NONE:-../else}"])
def test_policy_paths(home: Any, tmp_path: Path, path: str) -> None:
    """`policyPaths` are resolved like in the CLI, and replace the usual folder."""
    files = {name: RULE.format("glob", "deny", 500) for name in ("else/x.toml", ".gemini/policies/no.toml")}
    assert home(files, policyPaths=[path]).paths == (str(tmp_path / "else" / "x.toml"),)


@pytest.mark.parametrize("paths", [["nowhere"], ["else/notes.txt"], [3, ""], "else", None])
def test_policy_paths_without_policies_are_ignored(home: Any, paths: Any) -> None:
    """`policyPaths` without policy files are ignored, like in the CLI."""
    assert home({"else/notes.txt": "no policy"}, policyPaths=paths) == UserPolicies()


def test_conflicting_priorities_are_moved(home: Any) -> None:
    """A user's rule with a priority that is reserved for ours (998 and above, 2 and below) gets the
    nearest free one, and the rules keep their order."""
    low, high = RULE.format("a", "allow", 998), RULE.format("b", "deny", 999)
    files = {".gemini/policies/1.toml": RULE.format("c", "allow", 0) + low, ".gemini/policies/2.toml": high}
    assert _rules(home(files)) == [("b", "deny", 997), ("a", "allow", 997), ("c", "allow", 3)]


_TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
_FIELD = st.one_of(
    _TEXT, st.integers(0, 999), st.booleans(), st.lists(_TEXT), st.dictionaries(_TEXT, _TEXT, max_size=2)
)


@settings(suppress_health_check=[HealthCheck.too_slow])  # a slow machine is no error
@given(st.dictionaries(_TEXT.filter(lambda name: name not in ("toolName", "decision", "priority")), _FIELD))
def test_other_fields_of_a_rule_are_kept(tmp_path_factory: pytest.TempPathFactory, more: Any) -> None:
    """A rule whose priority is moved keeps all its other fields."""
    from geminids.launch.permissions.policy import policy_text

    rule = {"toolName": "glob", "decision": "deny", "priority": 999, **more}
    folder = tmp_path_factory.mktemp("home")
    file = folder / ".gemini" / "policies" / "mine.toml"
    file.parent.mkdir(parents=True)
    file.write_text(policy_text([rule], [{"toolName": "*", "checker": {"type": "external", "name": "x"}}]))
    policies = user_policies(SourceHome("user", folder, {}), str(folder), {})
    assert tomllib.loads(policies.text or "") == {
        "rule": [{**rule, "priority": 997}],
        "safety_checker": [{"toolName": "*", "checker": {"type": "external", "name": "x"}, "priority": 3}],
    }


def test_denied_tools_are_listed(home: Any) -> None:
    """`denied` lists tools that the user denies by name, by server or in the settings.

    Rules for some arguments and allows are not listed.
    """
    text = (
        RULE.format("glob", "deny", 5)
        + RULE.format("read_file", "allow", 5)
        + RULE.format("replace", "ask_user", 5)
        + RULE.format("*", "deny", 5)
        + 'mcpName = "lab"\n'
        + RULE.format("run_shell_command", "deny", 5)
        + 'commandPrefix = "rm"\n'
    )
    policies = home({".gemini/policies/mine.toml": text}, tools={"exclude": ["web_fetch"]})
    assert policies.denied == ("web_fetch", "glob", "replace", "mcp_lab_*")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[rule]", "cannot be read"),
        ("rule = 3", "its 'rule' is not a [[rule]] table"),
        ("rule = [3]", "rule number 1 is not a table"),
        (
            RULE.format("glob", "block", 5),
            "rule number 1 has a decision that is not one of allow, deny, ask_user",
        ),
        (
            RULE.format("glob", "deny", 1000),
            "rule number 1 has a priority that is not a whole number from 0 to 999",
        ),
        (RULE.format("glob", "deny", "true"), "has a priority that is not a whole number"),
        ('[[rule]]\ntoolName = "glob"\ndecision = "deny"\n', "has a priority that is not a whole number"),
        ('[[rule]]\ndecision = "deny"\npriority = 5\n', "rule number 1 has no toolName"),
        (
            RULE.format("glob", "deny", 5) + RULE.replace('"{}"', "[1]", 1).format("deny", 5),
            "rule number 2 has a toolName that is not a text or a list of texts",
        ),
        ("[[safety_checker]]\ntoolName = 3\n", "safety_checker number 1 has a toolName"),
    ],
)
def test_an_invalid_file_is_refused(home: Any, tmp_path: Path, text: str, message: str) -> None:
    """A file that the CLI would ignore is refused with its path and the error, because it may
    contain a deny."""
    with pytest.raises(SettingsProblem) as caught:
        home({".gemini/policies/mine.toml": text})
    assert str(tmp_path / ".gemini/policies/mine.toml") in str(caught.value)
    assert message in str(caught.value)
