"""Tests of reading the API key from a file or a keyring. No message contains the key."""

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
def test_formats_of_a_key_file(key_file: Path, text: str) -> None:
    """A key file contains the key alone, or as the value of a `NAME=value` line.
    Blanks, quotes, comments and a byte order mark are not part of the key."""
    key_file.write_text(text)
    assert read_key(f"file:{key_file}") == KEY


def test_tilde_is_expanded(key_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`~` in a `file:` path means the user's home, because a shell does not expand it there."""
    key_file.write_text(KEY)
    monkeypatch.setenv("HOME", str(key_file.parent))
    assert read_key("file:~/key") == KEY


def test_symbolic_link_to_a_key_file(key_file: Path, tmp_path: Path) -> None:
    """A key file may be a symbolic link. The mode of the file behind the link is checked."""
    key_file.write_text(KEY)
    (tmp_path / "link").symlink_to(key_file)
    assert read_key(f"file:{tmp_path}/link") == KEY
    key_file.chmod(0o644)
    with pytest.raises(KeyProblem, match="can be read or changed by other users"):
        read_key(f"file:{tmp_path}/link")


@pytest.mark.parametrize("mode", [0o400, 0o600, 0o700])
def test_private_key_file_is_read(key_file: Path, mode: int) -> None:
    """A key file that only its owner can read is accepted."""
    key_file.write_text(KEY)
    key_file.chmod(mode)
    assert read_key(f"file:{key_file}") == KEY


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o620, 0o660, 0o777])
def test_key_file_open_to_others_is_refused(key_file: Path, mode: int) -> None:
    """A key file that others can read or write is refused. The hint has the chmod command."""
    key_file.write_text(KEY)
    key_file.chmod(mode)
    with pytest.raises(KeyProblem) as caught:
        read_key(f"file:{key_file}")
    assert f"mode {mode:04o}" in caught.value.message
    assert caught.value.hint == f"Make the file private: `chmod 600 {key_file}`"


@pytest.mark.parametrize(
    ("content", "message"),
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
def test_an_invalid_key_is_reported_without_showing_it(key_file: Path, content: bytes, message: str) -> None:
    """The error names the problem of an invalid key file.
    Neither the error nor its traceback contains the key."""
    key_file.write_bytes(content)
    with pytest.raises(KeyProblem, match=message) as caught:
        read_key(f"file:{key_file}")
    shown = "".join(traceback.format_exception(caught.value)) + repr(caught.value) + str(caught.value)
    assert KEY not in shown
    assert "schl" not in shown


def test_missing_key_file(tmp_path: Path) -> None:
    """The error for a missing key file contains the path and the system's reason."""
    with pytest.raises(KeyProblem, match=f"{tmp_path}/none cannot be read: No such file"):
        read_key(f"file:{tmp_path}/none")


def test_folder_or_pipe_is_not_a_key_file(tmp_path: Path) -> None:
    """A folder or a named pipe is refused at once. Reading does not block on the pipe."""
    os.mkfifo(tmp_path / "pipe", 0o600)
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(KeyProblem, match="not a regular file") as caught:
            read_key(f"file:{path}")
        assert caught.value.hint


@pytest.mark.parametrize("place", [KEY, "file:", "keyring:", "env:GEMINI_API_KEY", "", "keyring:service"])
def test_unknown_key_location_is_not_shown(place: str) -> None:
    """An invalid location is refused without quoting it, because it may be the key itself."""
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
    """Install a fake `keyring` package with a few entries."""
    (tmp_path / "keyring.py").write_text(RING.format(key=KEY))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "keyring", raising=False)


@pytest.mark.usefixtures("ring")
def test_keyring_by_service_and_user() -> None:
    """The last slash separates service and user, because service names may contain slashes.
    Keyring errors are reported without the key."""
    try:
        assert read_key("keyring:google/gemini/me") == KEY
        with pytest.raises(KeyProblem, match="has no entry for google/you"):
            read_key("keyring:google/you")
        with pytest.raises(KeyProblem, match="invalid characters"):
            read_key("keyring:google/blank")
        with pytest.raises(
            KeyProblem, match="cannot read the key broken/me from the keyring: RuntimeError"
        ) as caught:
            read_key("keyring:broken/me")
        assert KEY not in "".join(traceback.format_exception(caught.value))
    finally:
        del sys.modules["keyring"]


def test_missing_keyring_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the optional `keyring` package, the hint has the command that installs it."""
    monkeypatch.setitem(sys.modules, "keyring", None)
    with pytest.raises(KeyProblem, match="not installed") as caught:
        read_key("keyring:google/me")
    assert "pip install keyring" in str(caught.value.hint)
