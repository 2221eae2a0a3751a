"""Where configuration files are searched, and errors for invalid files."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from geminids import OptionsError
from geminids.config.files import FileProblem, find_project_file, read_config, user_file


def test_the_path_of_the_users_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The user's file is in the folder that platformdirs names.

    GEMINIDS_CONFIG names another file.
    """
    from platformdirs import user_config_path

    for value in ("", str(tmp_path / "xdg"), "relative"):
        monkeypatch.setenv("XDG_CONFIG_HOME", value)
        environ = {key: text for key, text in os.environ.items() if key != "GEMINIDS_CONFIG"}
        expected = user_config_path("geminids", appauthor=False) / "config.toml"
        assert user_file(environ) == str(expected)
    assert user_file({"GEMINIDS_CONFIG": "/x/y.toml"}) == "/x/y.toml"


def test_the_nearest_project_file_counts(tmp_path: Path) -> None:
    """The nearest project file counts, up to the root of the repository or the home folder, and no
    file above.
    """
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


def test_outside_of_a_repository_only_the_folder_itself_counts(tmp_path: Path) -> None:
    """Outside of a repository and of the home, only a file in the folder itself counts.

    A file in /tmp must not apply to every run below it.
    """
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
    ("make", "line", "message"),
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
def test_an_invalid_file_is_reported_with_its_line(
    config_files: Any, make: Callable[[Path], object], line: str, message: str
) -> None:
    """Invalid files of the user and of the project are reported together, with path and line."""
    make(config_files.user)
    make(config_files.project)
    with pytest.raises(OptionsError) as caught:
        config_files.load()
    problems = dict(caught.value.problems)
    for path in (config_files.user, config_files.project):
        assert message in problems[f"{path}{line}"]


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root reads everything")
def test_an_unreadable_file_is_reported(tmp_path: Path) -> None:
    """A file without read permission is an error, because it may contain a deny rule."""
    file = tmp_path / "config.toml"
    file.write_text("")
    file.chmod(0)
    with pytest.raises(FileProblem, match="cannot be read"):
        read_config(str(file))


def test_a_link_out_of_the_project_is_not_read(config_files: Any) -> None:
    """A project file that links to a file outside of the project is ignored with a warning.

    A link within the project is read.
    """
    (config_files.root / "else.toml").write_text('[gemini]\nmodel = "x"\n')
    config_files.project.symlink_to(config_files.root / "else.toml")
    loaded = config_files.load()
    assert loaded.options.model is None
    assert f"a link to a file outside {config_files.folder}" in loaded.warnings[0]
    config_files.project.unlink()
    (config_files.folder / "conf.toml").write_text('[gemini]\nmodel = "x"\n')
    config_files.project.symlink_to("conf.toml")
    assert config_files.load().options.model == "x"


def test_a_named_file_must_exist(config_files: Any) -> None:
    """A missing file in GEMINIDS_CONFIG is an error; /dev/null means no configuration."""
    with pytest.raises(OptionsError, match="GEMINIDS_CONFIG is set to this path"):
        config_files.load({"GEMINIDS_CONFIG": str(config_files.root / "absent.toml")})
    assert config_files.load({"GEMINIDS_CONFIG": os.devnull}).warnings == ()


def test_a_byte_order_mark_and_an_empty_file_are_accepted(config_files: Any) -> None:
    """A file with a byte order mark and CRLF, and an empty file, are accepted."""
    config_files.user.write_bytes(b'\xef\xbb\xbf[gemini]\r\nmodel = "x"\r\n')
    config_files.project.write_text("\n")
    assert config_files.load().options.model == "x"
