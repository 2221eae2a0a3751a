"""Where the files are looked for, and files that are no configuration."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from geminids import OptionsError
from geminids.config.files import FileProblem, find_project_file, read_config, user_file


def test_the_users_file_is_where_the_platform_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The same as platformdirs, which we do not load for it; `GEMINIDS_CONFIG` names another."""
    from platformdirs import user_config_path

    for value in ("", str(tmp_path / "xdg"), "relative"):
        monkeypatch.setenv("XDG_CONFIG_HOME", value)
        environ = {key: text for key, text in os.environ.items() if key != "GEMINIDS_CONFIG"}
        expected = user_config_path("geminids", appauthor=False) / "config.toml"
        assert user_file(environ) == str(expected)
    assert user_file({"GEMINIDS_CONFIG": "/x/y.toml"}) == "/x/y.toml"


def test_the_nearest_file_up_to_the_repository_counts(tmp_path: Path) -> None:
    """Not one above the repository, and above the home folder none either."""
    root = tmp_path.resolve()
    deep = root / "home" / "repo" / "a" / "b"
    deep.mkdir(parents=True)
    (root / "home" / "repo" / ".git").touch()  # a worktree has a file
    environ = {"HOME": str(root / "home")}
    for folder in (root, root / "home"):
        (folder / "geminids.toml").touch()
    assert find_project_file(str(deep), environ) is None
    for folder in (root / "home" / "repo", deep):
        (folder / "geminids.toml").touch()
        assert find_project_file(str(deep), environ) == str(folder / "geminids.toml")
    (root / "home" / "plain").mkdir()
    assert find_project_file(str(root / "home" / "plain"), environ) == str(root / "home" / "geminids.toml")


def test_outside_of_repository_and_home_only_the_folder_itself_counts(tmp_path: Path) -> None:
    """A file that somebody put into /tmp is not for every run below it."""
    inner = tmp_path.resolve() / "a"
    inner.mkdir()
    (inner.parent / "geminids.toml").touch()
    assert find_project_file(str(inner), {"HOME": "/nowhere"}) is None
    (inner / "geminids.toml").touch()
    assert find_project_file(str(inner), {"HOME": "/nowhere"}) == str(inner / "geminids.toml")


def _folder(path: Path) -> None:
    path.mkdir()


def _big(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(50_000_000)


def _fifo(path: Path) -> None:
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("make", "line", "what"),
    [
        (_folder, "", "is a folder"),
        (_big, "", "is too large: 50.0 MB"),
        (_fifo, "", "is not a regular file"),
        (lambda path: path.write_bytes(b"[gemini]\n\nmodel = '\xff'\n"), ":3", "is not UTF-8"),
        (lambda path: path.write_text("[gemini]\nmodel\n"), ":2", "is not valid TOML"),
        (lambda path: path.write_text("[gemini]\na = 1\na = 2\n"), ":3", "is not valid TOML"),
        (lambda path: path.write_text("a = " + "[" * 100_000), "", "is not valid TOML"),
    ],
)
def test_what_is_no_configuration_is_told(
    desk: Any, make: Callable[[Path], object], line: str, what: str
) -> None:
    """With the file and the line; for the user's file and the project's alike, both at once, and at once."""
    make(desk.user)
    make(desk.project)
    with pytest.raises(OptionsError) as caught:
        desk.load()
    told = dict(caught.value.problems)
    for path in (desk.user, desk.project):
        assert what in told[f"{path}{line}"]


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    """It may hold a deny."""
    file = tmp_path / "config.toml"
    file.write_text("")
    file.chmod(0)
    with pytest.raises(FileProblem, match="cannot be read"):
        read_config(str(file))


def test_a_link_out_of_the_project_is_not_read(desk: Any) -> None:
    """A repository cannot have another file of the user's read for it; one within the project is fine."""
    (desk.root / "else.toml").write_text('[gemini]\nmodel = "x"\n')
    desk.project.symlink_to(desk.root / "else.toml")
    loaded = desk.load()
    assert loaded.options.model is None
    assert "a link to a file outside its folder" in loaded.warnings[0]
    desk.project.unlink()
    (desk.folder / "conf.toml").write_text('[gemini]\nmodel = "x"\n')
    desk.project.symlink_to("conf.toml")
    assert desk.load().options.model == "x"


def test_a_named_file_must_be_there(desk: Any) -> None:
    """`GEMINIDS_CONFIG` with a typing mistake is not "no configuration"; /dev/null is."""
    with pytest.raises(OptionsError, match="GEMINIDS_CONFIG names it"):
        desk.load({"GEMINIDS_CONFIG": str(desk.root / "absent.toml")})
    assert desk.load({"GEMINIDS_CONFIG": os.devnull}).warnings == ()


def test_a_mark_at_the_beginning_and_an_empty_file_are_fine(desk: Any) -> None:
    """Editors write such things."""
    desk.user.write_bytes(b'\xef\xbb\xbf[gemini]\r\nmodel = "x"\r\n')
    desk.project.write_text("\n")
    assert desk.load().options.model == "x"
