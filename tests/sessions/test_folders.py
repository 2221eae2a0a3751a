"""The folders in which the CLI stores the sessions of a project."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from geminids.config.paths import Places
from geminids.errors import SessionError
from geminids.sessions.folders import chat_folders, home_of


def _find_chats(session_files: Any, project: Path | None, **kwargs: Any) -> list[Path]:
    return [folder.chats for folder in chat_folders(project, **session_files.where, **kwargs)]


def test_the_marker_names_the_project_of_a_folder(session_files: Any) -> None:
    """The file `.project_root` decides which project a folder belongs to, not the folder's name."""
    other = session_files.chats(Path("/elsewhere/app"), slug="app")
    own = session_files.chats(slug="app-1")
    for quick in (True, False):
        assert _find_chats(session_files, session_files.project, quick=quick) == [own]
    assert _find_chats(session_files, Path("/elsewhere/app")) == [other]
    assert _find_chats(session_files, Path("/nobody/app")) == []


def test_all_folders_of_a_project_are_found(session_files: Any) -> None:
    """All folders of a project are found: those with a slug name first, then the one with a hash
    name.

    A quick search returns only the usual slug.
    """
    hashed = session_files.hashed()
    odd, own = session_files.chats(slug="odd"), session_files.chats(slug="app")
    session_files.hashed(Path("/elsewhere"))
    assert _find_chats(session_files, session_files.project) == [own, odd, hashed]
    assert _find_chats(session_files, session_files.project, quick=True) == [own]


def test_a_quick_search_without_result_becomes_a_full_one(session_files: Any) -> None:
    """If a quick search finds no usual folder, it becomes a full search."""
    hashed = session_files.hashed()
    assert _find_chats(session_files, session_files.project, quick=True) == [hashed]
    odd = session_files.chats(slug="odd")
    assert _find_chats(session_files, session_files.project, quick=True) == [odd, hashed]


def test_a_link_to_the_project(session_files: Any, tmp_path: Path) -> None:
    """For a link, the folders of the link and of its target are found."""
    link = tmp_path / "link"
    link.symlink_to(session_files.project)
    own, other = session_files.chats(slug="app"), session_files.chats(link, slug="link")
    assert sorted(_find_chats(session_files, link)) == [own, other]
    assert _find_chats(session_files, session_files.project) == [own]


@pytest.mark.parametrize("private", [False, True])
def test_a_folder_without_a_marker_is_found_by_the_registry(session_files: Any, private: bool) -> None:
    """A folder without a marker is found through `projects.json` of the user.

    A private home's `projects.json` counts if its `tmp` links to this tree.
    """
    own = session_files.chats(slug="lost", marker=False)
    places: Places = session_files.where["places"]
    gemini = places.homes / "given-1" / ".gemini" if private else session_files.home / ".gemini"
    gemini.mkdir(parents=True, exist_ok=True)
    (gemini / "projects.json").write_text(json.dumps({"projects": {str(session_files.project): "lost"}}))
    assert _find_chats(session_files, session_files.project) == ([] if private else [own])
    if private:
        (gemini / "tmp").symlink_to(session_files.home / ".gemini" / "tmp")
        assert _find_chats(session_files, session_files.project) == [own]


def test_folders_of_all_projects(session_files: Any) -> None:
    """Without a project, all folders are listed.

    The project of a hash name is known only if its path is known from elsewhere.
    """
    session_files.chats(slug="app")
    session_files.hashed()
    session_files.hashed(Path("/elsewhere"))
    session_files.chats(slug="lost", marker=False)
    projects = {(folder.project, folder.hashed) for folder in chat_folders(None, **session_files.where)}
    assert projects == {
        (str(session_files.project), False),
        (str(session_files.project), True),
        (None, True),
        (None, False),
    }


@pytest.mark.parametrize("text", ["", "\0", "[]", '{"projects": 1}', '{"projects": {"a": 1}}', "[" * 100_000])
def test_a_broken_registry_or_marker_is_ignored(session_files: Any, text: str) -> None:
    """A broken `projects.json` or marker is ignored."""
    session_files.chats(slug="lost", marker=False)
    own = session_files.chats(slug="app")
    (session_files.home / ".gemini" / "projects.json").write_text(text)
    (session_files.home / ".gemini" / "tmp" / "lost" / ".project_root").mkdir()
    (session_files.home / ".gemini" / "tmp" / "a-file").write_text(text)
    assert _find_chats(session_files, session_files.project) == [own]


def test_which_home(tmp_path: Path) -> None:
    """The user's home is GEMINI_CLI_GEMINIDS_SOURCE of an outer run, or else GEMINI_CLI_HOME, or
    else HOME.
    """
    places = Places(tmp_path)
    environ = {"HOME": "/h", "GEMINI_CLI_HOME": "/g", "GEMINI_CLI_GEMINIDS_SOURCE": "/s"}
    assert home_of("user", environ, places) == Path("/s")
    assert home_of("user", {"HOME": "/h", "GEMINI_CLI_HOME": "/g"}, places) == Path("/g")
    assert home_of("user", {"HOME": "/h"}, places) == Path("/h")
    assert home_of("isolated", environ, places) == tmp_path / "homes" / "isolated"
    assert home_of("/given", environ, places) == Path("/given")


def test_a_path_with_nul_is_refused(session_files: Any) -> None:
    """A project path with a NUL character is an error."""
    with pytest.raises(SessionError, match="NUL"):
        chat_folders("a\0b", **session_files.where)
