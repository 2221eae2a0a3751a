"""Where the API key is kept when it is not in the environment: a file of its user's alone, or the keyring."""

from __future__ import annotations

import os
import re
import stat

from geminids.errors import KeyProblem
from geminids.log import get_logger

__all__ = ["read_key"]

_log = get_logger("gateway")

_USUAL_NAME = "GEMINI_API_KEY"
_NAMED = re.compile(r"(?:export[ \t]+)?([A-Za-z_]\w*)[ \t]*=[ \t]*(.*)")
# What a header can carry, and every key that Google gives out consists of.
_KEY = re.compile(r"[!-~]+")
_LARGEST = 64 * 1024
_OF_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def read_key(key_from: str) -> str:
    """The key that `file:PATH` or `keyring:SERVICE/USER` names; raises `KeyProblem`."""
    scheme, _, place = key_from.partition(":")
    if scheme == "file" and place:
        return _from_file(os.path.expanduser(place))
    if scheme == "keyring" and place:
        return _from_keyring(place)
    raise KeyProblem("a key is read from file:PATH or keyring:SERVICE/USER, and from nowhere else")


def _from_file(path: str) -> str:
    try:
        text = _private_text(path)
    except UnicodeDecodeError:
        raise KeyProblem(f"the key file {path} is not a text file") from None
    except OSError as error:
        raise KeyProblem(
            f"the key file {path} cannot be read: {error.strerror or type(error).__name__}",
            hint="Name the file that holds the API key as file:PATH.",
        ) from None
    return _checked(_key_in(text, path), f"the key file {path}")


def _private_text(path: str) -> str:
    # Not blocking: a FIFO that nobody writes to would be waited for without end.
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NONBLOCK", 0))
    try:
        # Of what was opened, not of the name: another file could stand there a moment later.
        _check_file(os.fstat(fd), path)
        return os.read(fd, _LARGEST).decode("utf-8-sig")
    finally:
        os.close(fd)


def _check_file(found: os.stat_result, path: str) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise KeyProblem(
            f"the key file {path} is not a regular file",
            hint="Name the file that holds the API key as file:PATH.",
        )
    if os.name != "nt" and found.st_mode & _OF_OTHERS:
        raise KeyProblem(
            f"the key file {path} is open to other users (mode {stat.S_IMODE(found.st_mode):04o})",
            hint=f"Keep it to yourself: chmod 600 {path}",
        )
    if found.st_size > _LARGEST:
        raise KeyProblem(
            f"the key file {path} is too large for a key ({found.st_size} bytes)",
            hint="Put the API key into it, alone on a line.",
        )


def _key_in(text: str, path: str) -> str:
    """The one line of a file, or the value of its one NAME=value line; of several, that of GEMINI_API_KEY."""
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not line.startswith("#")]
    if not lines:
        raise KeyProblem(f"the key file {path} is empty", hint="Put the API key into it, alone on a line.")
    named = {match[1]: _unquoted(match[2]) for line in lines if (match := _NAMED.fullmatch(line))}
    if _USUAL_NAME in named:
        return named[_USUAL_NAME]
    if len(lines) > 1:
        raise KeyProblem(
            f"the key file {path} has {len(lines)} lines, and none of them is {_USUAL_NAME}=…",
            hint="Put the API key into it, alone on a line.",
        )
    return next(iter(named.values()), lines[0])


def _unquoted(value: str) -> str:
    quoted = len(value) >= 2 and value[0] == value[-1] and value[0] in "'\""
    return value[1:-1] if quoted else value


def _from_keyring(place: str) -> str:
    service, slash, user = place.rpartition("/")
    if not (slash and service and user):
        raise KeyProblem("a key in the keyring is named as keyring:SERVICE/USER")
    try:
        import keyring  # imported late: few have it, and it looks for its backends
    except ImportError:
        raise KeyProblem(
            "the keyring cannot be asked: the package `keyring` is not installed",
            hint="pip install keyring (or geminids[keyring]), or keep the key in a file: file:PATH",
        ) from None
    try:
        key = keyring.get_password(service, user)
    except Exception as error:
        # Its message is a backend's, and may say anything: it is neither shown nor logged.
        _log.warning("the keyring failed with %s", type(error).__name__)
        raise KeyProblem(
            f"the keyring cannot be asked for {service}/{user}: {type(error).__name__}",
            hint="See that a keyring is there and unlocked (`python -m keyring diagnose`), or use file:PATH.",
        ) from None
    if key is None:
        raise KeyProblem(
            f"the keyring has nothing for {service}/{user}",
            hint=f"Put it there with `python -m keyring set {service} {user}`.",
        )
    return _checked(key.strip(), f"the keyring's entry {service}/{user}")


def _checked(key: str, where: str) -> str:
    if _KEY.fullmatch(key) is None:
        what = "holds characters that no key has" if key else "is empty"
        raise KeyProblem(f"{where} {what}", hint="Put the API key there, and nothing else.")
    return key
