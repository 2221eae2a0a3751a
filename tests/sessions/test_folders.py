"""Where the sessions of a project lie."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from geminids.config.paths import Places
from geminids.errors import SessionError
from geminids.sessions.folders import chat_folders, home_of


def _found(shelf: Any, project: Path | None, **how: Any) -> list[Path]:
    return [folder.chats for folder in chat_folders(project, **shelf.where, **how)]


def test_the_marker_says_whose_a_slug_is(shelf: Any) -> None:
    """Not its name: `app` can be another project's."""
    other = shelf.chats(Path("/elsewhere/app"), slug="app")
    own = shelf.chats(slug="app-1")
    for quick in (True, False):
        assert _found(shelf, shelf.project, quick=quick) == [own]
    assert _found(shelf, Path("/elsewhere/app")) == [other]
    assert _found(shelf, Path("/nobody/app")) == []


def test_two_slugs_of_one_project_and_its_old_folder_are_all_searched(shelf: Any) -> None:
    """Newer ones first; a quick look is content with the usual names."""
    hashed = shelf.hashed()
    odd, own = shelf.chats(slug="odd"), shelf.chats(slug="app")
    shelf.hashed(Path("/elsewhere"))
    assert _found(shelf, shelf.project) == [own, odd, hashed]
    assert _found(shelf, shelf.project, quick=True) == [own]


def test_a_quick_look_that_finds_nothing_becomes_a_thorough_one(shelf: Any) -> None:
    """An odd slug, or none but the old folder."""
    hashed = shelf.hashed()
    assert _found(shelf, shelf.project, quick=True) == [hashed]
    odd = shelf.chats(slug="odd")
    assert _found(shelf, shelf.project, quick=True) == [odd, hashed]


def test_a_link_to_the_project_is_the_project(shelf: Any, tmp_path: Path) -> None:
    """As Node sees it, and as it was given."""
    link = tmp_path / "link"
    link.symlink_to(shelf.project)
    own, other = shelf.chats(slug="app"), shelf.chats(link, slug="link")
    assert sorted(_found(shelf, link)) == [own, other]
    assert _found(shelf, shelf.project) == [own]


@pytest.mark.parametrize("private", [False, True])
def test_a_slug_without_a_marker_is_found_by_a_registry(shelf: Any, private: bool) -> None:
    """The user's own `projects.json`, or that of a private home that leads into this tree; not of another one."""
    own = shelf.chats(slug="lost", marker=False)
    places: Places = shelf.where["places"]
    gemini = places.homes / "given-1" / ".gemini" if private else shelf.home / ".gemini"
    gemini.mkdir(parents=True, exist_ok=True)
    (gemini / "projects.json").write_text(json.dumps({"projects": {str(shelf.project): "lost"}}))
    assert _found(shelf, shelf.project) == ([] if private else [own])
    if private:
        (gemini / "tmp").symlink_to(shelf.home / ".gemini" / "tmp")
        assert _found(shelf, shelf.project) == [own]


def test_all_projects_and_what_is_known_of_them(shelf: Any) -> None:
    """A hash is undone where its path is known from elsewhere, else the project is None."""
    shelf.chats(slug="app")
    shelf.hashed()
    shelf.hashed(Path("/elsewhere"))
    shelf.chats(slug="lost", marker=False)
    found = {(folder.project, folder.hashed) for folder in chat_folders(None, **shelf.where)}
    assert found == {(str(shelf.project), False), (str(shelf.project), True), (None, True), (None, False)}


@pytest.mark.parametrize("text", ["", "\0", "[]", '{"projects": 1}', '{"projects": {"a": 1}}', "[" * 100_000])
def test_a_broken_registry_and_marker_are_passed_over(shelf: Any, text: str) -> None:
    """They are other people's files."""
    shelf.chats(slug="lost", marker=False)
    own = shelf.chats(slug="app")
    (shelf.home / ".gemini" / "projects.json").write_text(text)
    (shelf.home / ".gemini" / "tmp" / "lost" / ".project_root").mkdir()
    (shelf.home / ".gemini" / "tmp" / "a-file").write_text(text)
    assert _found(shelf, shelf.project) == [own]


def test_which_home(tmp_path: Path) -> None:
    """The user's is the one that an outer run names, then GEMINI_CLI_HOME, then HOME."""
    places = Places(tmp_path)
    environ = {"HOME": "/h", "GEMINI_CLI_HOME": "/g", "GEMINI_CLI_GEMINIDS_SOURCE": "/s"}
    assert home_of("user", environ, places) == Path("/s")
    assert home_of("user", {"HOME": "/h", "GEMINI_CLI_HOME": "/g"}, places) == Path("/g")
    assert home_of("user", {"HOME": "/h"}, places) == Path("/h")
    assert home_of("isolated", environ, places) == tmp_path / "homes" / "isolated"
    assert home_of("/given", environ, places) == Path("/given")


def test_a_path_with_nul_is_refused(shelf: Any) -> None:
    """One clear error."""
    with pytest.raises(SessionError, match="NUL"):
        chat_folders("a\0b", **shelf.where)
