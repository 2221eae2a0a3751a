"""Where a key may be kept, and that nothing is ever told of it."""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path

import pytest

from geminids.errors import KeyProblem
from geminids.gateway.access.api_key import read_key

KEY = "AIzaSy" + "K3y-0f-a-T3st_" * 2


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    file = tmp_path / "key"
    file.touch(mode=0o600)
    return file


@pytest.mark.parametrize(
    "text",
    [
        KEY,
        f"{KEY}\n",
        f"\ufeff  {KEY}  \r\n\n",
        f"# my key\n\n{KEY}\n",
        f"GEMINI_API_KEY={KEY}\n",
        f'export GEMINI_API_KEY = "{KEY}"\n',
        f"MY_KEY='{KEY}'",
        f"OTHER=1\nGEMINI_API_KEY={KEY}\nLAST=2\n",
    ],
    ids=["alone", "line", "windows", "comment", "named", "exported", "another name", "of several"],
)
def test_a_file_has_the_key_alone_or_by_name(key_file: Path, text: str) -> None:
    """A key is the one line of its file, or the value of one; blanks, quotes and comments are not part of it."""
    key_file.write_text(text)
    assert read_key(f"file:{key_file}") == KEY


def test_a_home_is_understood(key_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`~` is the user's home, which no shell puts in behind `file:`."""
    key_file.write_text(KEY)
    monkeypatch.setenv("HOME", str(key_file.parent))
    assert read_key("file:~/key") == KEY


def test_a_link_to_a_file_will_do(key_file: Path, tmp_path: Path) -> None:
    """Secrets that a system mounts are links: what counts is the file behind."""
    key_file.write_text(KEY)
    (tmp_path / "link").symlink_to(key_file)
    assert read_key(f"file:{tmp_path}/link") == KEY
    key_file.chmod(0o644)
    with pytest.raises(KeyProblem, match="open to other users"):
        read_key(f"file:{tmp_path}/link")


@pytest.mark.parametrize("mode", [0o400, 0o600, 0o700])
def test_a_file_of_its_user_alone_is_read(key_file: Path, mode: int) -> None:
    """0600 or stricter."""
    key_file.write_text(KEY)
    key_file.chmod(mode)
    assert read_key(f"file:{key_file}") == KEY


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o620, 0o660, 0o777])
def test_a_file_that_others_reach_is_refused(key_file: Path, mode: int) -> None:
    """Whoever else may read or change it: the error has the command that mends it."""
    key_file.write_text(KEY)
    key_file.chmod(mode)
    with pytest.raises(KeyProblem) as caught:
        read_key(f"file:{key_file}")
    assert f"mode {mode:04o}" in caught.value.message
    assert caught.value.hint == f"Make it private: chmod 600 {key_file}"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b" \n# nothing\n", "is empty"),
        (b"GEMINI_API_KEY=\n", "is empty"),
        (KEY.encode() + b" and more", "invalid characters"),
        ("schl\u00fcssel-der-keiner-ist".encode(), "invalid characters"),
        (KEY.encode() + b"\x00", "invalid characters"),
        (KEY.encode() + b"\nanother\n", "has 2 lines"),
        (b"A=1\nB=" + KEY.encode(), "has 2 lines"),
        (b"\xff\xfe" + KEY.encode("utf-16-le"), "not a text file"),
        (KEY.encode() * 4000, "too large"),
    ],
    ids=[
        "empty",
        "comment alone",
        "no value",
        "blanks",
        "letters",
        "NUL",
        "two",
        "two names",
        "UTF-16",
        "large",
    ],
)
def test_what_is_no_key_is_told_without_showing_it(key_file: Path, content: bytes, says: str) -> None:
    """An error says what is wrong with a file, and never what is in it, its traceback included."""
    key_file.write_bytes(content)
    with pytest.raises(KeyProblem, match=says) as caught:
        read_key(f"file:{key_file}")
    shown = "".join(traceback.format_exception(caught.value)) + repr(caught.value) + str(caught.value)
    assert KEY not in shown
    assert "schl" not in shown


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    """The error has the path and the system's own word."""
    with pytest.raises(KeyProblem, match=f"{tmp_path}/none cannot be read: No such file"):
        read_key(f"file:{tmp_path}/none")


def test_a_folder_and_a_pipe_are_no_files(tmp_path: Path) -> None:
    """Neither is waited for."""
    os.mkfifo(tmp_path / "pipe", 0o600)
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(KeyProblem, match="not a regular file") as told:
            read_key(f"file:{path}")
        assert told.value.hint


@pytest.mark.parametrize("place", [KEY, "file:", "keyring:", "env:GEMINI_API_KEY", "", "keyring:service"])
def test_other_places_are_refused_without_being_shown(place: str) -> None:
    """Somebody may have given the key itself."""
    with pytest.raises(KeyProblem, match="keyring:SERVICE/USER") as caught:
        read_key(place)
    assert KEY not in str(caught.value)


RING = """
def get_password(service, user):
    if service == "broken":
        raise RuntimeError("the secret is " + {key!r})
    return {{("google/gemini", "me"): {key!r} + "\\n", ("google", "blank"): "a b"}}.get((service, user))
"""


@pytest.fixture
def ring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A `keyring` package as programs know it, with one entry."""
    (tmp_path / "keyring.py").write_text(RING.format(key=KEY))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "keyring", raising=False)


@pytest.mark.usefixtures("ring")
def test_the_keyring_is_asked_by_service_and_user() -> None:
    """The last slash parts the two: names of services have slashes."""
    try:
        assert read_key("keyring:google/gemini/me") == KEY
        with pytest.raises(KeyProblem, match="has no entry for google/you"):
            read_key("keyring:google/you")
        with pytest.raises(KeyProblem, match="invalid characters"):
            read_key("keyring:google/blank")
        with pytest.raises(KeyProblem, match="cannot be read for broken/me: RuntimeError") as caught:
            read_key("keyring:broken/me")
        assert KEY not in "".join(traceback.format_exception(caught.value))
    finally:
        del sys.modules["keyring"]


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """`keyring` is nobody's dependency."""
    monkeypatch.setitem(sys.modules, "keyring", None)
    with pytest.raises(KeyProblem, match="not installed") as caught:
        read_key("keyring:google/me")
    assert "pip install keyring" in str(caught.value.hint)
