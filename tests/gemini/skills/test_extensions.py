"""The extensions that the CLI loads for a folder. tests/real/workspace/test_skills.py compares them with the
CLI.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from geminids.gemini.skills.extensions import active_extensions


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "extensions"
    (place / "one").mkdir(parents=True)
    (place / "one/gemini-extension.json").write_text('{"name": "one", "version": "1"}')
    return place


def _names(folder: Path, cwd: str = "/place/here", **settings: Any) -> list[str]:
    return [extension.name for extension in active_extensions(folder, cwd, settings)]


@pytest.mark.parametrize(
    ("rules", "active"),
    [
        ([], True),
        (["!/*"], False),
        (["!/place/*"], False),
        (["!/place/here/"], False),
        (["!/else/*"], True),
        (["!/place/"], True),
        (["!/*", "/place/here/*"], True),
        (["/place/here/*", "!/*"], False),
        ([1, None], True),
    ],
)
def test_the_last_matching_rule_decides(folder: Path, rules: list[Any], active: bool) -> None:
    """The last matching rule decides.

    A rule is a path, `!` disables, and `*` includes all folders below.
    """
    (folder / "extension-enablement.json").write_text(json.dumps({"one": {"overrides": rules}}))

    assert _names(folder) == (["one"] if active else [])


@pytest.mark.parametrize(
    "config",
    ["", "[]", "{}", '{"name": "x"}', '{"name": "a b", "version": "1"}', '{"name": 1, "version": 1}'],
)
def test_broken_extensions_are_skipped(folder: Path, config: str) -> None:
    """An extension without name, version or valid JSON is not loaded; the others are."""
    (folder / "two").mkdir()
    (folder / "two/gemini-extension.json").write_text(config)
    (folder / "a-file").write_text("x")
    assert _names(folder) == ["one"]


def test_settings_can_block_extensions(folder: Path) -> None:
    """The settings can block extensions from git, or allow only some sources."""
    origin = folder / "one/.gemini-extension-install.json"
    origin.write_text('{"type": "git", "source": "/good/place"}')
    assert _names(folder, security={"blockGitExtensions": True}) == []
    assert _names(folder, security={"allowedExtensions": ["^/good/"]}) == ["one"]
    assert _names(folder, security={"allowedExtensions": ["^/bad/", "("]}) == []
    origin.unlink()
    assert _names(folder, security={"allowedExtensions": [".*"]}) == []
    assert _names(folder, security={"blockGitExtensions": True}) == ["one"]
