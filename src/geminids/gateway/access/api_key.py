"""Read the API key from a file or from the keyring of the operating system."""

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
# The characters that are allowed in a header. Google's keys contain no others.
_KEY = re.compile(r"[!-~]+")
_MAX_SIZE = 64 * 1024
_GROUP_AND_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def read_key(key_from: str) -> str:
    """Read the API key from the place that `key_from` names: `file:PATH` or `keyring:SERVICE/USER`.
    Raises `KeyProblem` if there is no usable key.
    """
    scheme, _, place = key_from.partition(":")
    if scheme == "file" and place:
        return _from_file(os.path.expanduser(place))
    if scheme == "keyring" and place:
        return _from_keyring(place)
    raise KeyProblem(
        "the source of the API key must be `file:PATH` or `keyring:SERVICE/USER`",
        hint="Do not pass the key itself: store it in a file or in the keyring.",
    )


def _from_file(path: str) -> str:
    try:
        text = _private_text(path)
    except UnicodeDecodeError:
        raise KeyProblem(
            f"the key file {path} is not a text file",
            hint="Put only the API key into this file, on one line.",
        ) from None
    except OSError as error:
        raise KeyProblem(
            f"the key file {path} cannot be read: {error.strerror or type(error).__name__}",
            hint="Check that this file exists, and that your user may read it.",
        ) from None
    return _checked(_key_in(text, path), f"the key file {path}")


def _private_text(path: str) -> str:
    # O_NONBLOCK, because opening a FIFO without a writer would wait for ever.
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NONBLOCK", 0))
    try:
        # Check the open file instead of the path, because the path could be replaced in between.
        _check_file(os.fstat(fd), path)
        return os.read(fd, _MAX_SIZE).decode("utf-8-sig")
    finally:
        os.close(fd)


def _check_file(status: os.stat_result, path: str) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise KeyProblem(
            f"the key file {path} is not a regular file",
            hint="Store the API key in a file, not in a folder or a device, and use the path of that file.",
        )
    if os.name != "nt" and status.st_mode & _GROUP_AND_OTHERS:
        raise KeyProblem(
            f"the key file {path} can be read or changed by other users (mode {stat.S_IMODE(status.st_mode):04o})",
            hint=f"Make the file private: `chmod 600 {path}`",
        )
    if status.st_size > _MAX_SIZE:
        raise KeyProblem(
            f"the key file {path} is too large for a key ({status.st_size} bytes)",
            hint="Put only the API key into this file, on one line.",
        )


def _key_in(text: str, path: str) -> str:
    """Return the API key from `text`, the content of the key file `path`.

    The key is the value in the line `GEMINI_API_KEY=…`. If there is no such line, the file must
    have only one line: the key itself, or `NAME=KEY` with any name. Empty lines and comments are
    ignored. Raises `KeyProblem` if the text has any other form.
    """
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not line.startswith("#")]
    if not lines:
        raise KeyProblem(
            f"the key file {path} is empty", hint="Put only the API key into this file, on one line."
        )
    named = {match[1]: _unquoted(match[2]) for line in lines if (match := _NAMED.fullmatch(line))}
    if _USUAL_NAME in named:
        return named[_USUAL_NAME]
    if len(lines) > 1:
        raise KeyProblem(
            f"the key file {path} has {len(lines)} lines, but none of them begins with `{_USUAL_NAME}=`",
            hint="Put only the API key into this file, on one line.",
        )
    return next(iter(named.values()), lines[0])


def _unquoted(value: str) -> str:
    quoted = len(value) >= 2 and value[0] == value[-1] and value[0] in "'\""
    return value[1:-1] if quoted else value


def _from_keyring(place: str) -> str:
    service, slash, user = place.rpartition("/")
    if not (slash and service and user):
        raise KeyProblem("the keyring needs a service and a user", hint="Write `keyring:SERVICE/USER`.")
    try:
        import keyring  # imported late: it is optional, and its import searches for backends
    except ImportError:
        raise KeyProblem(
            "the keyring cannot be read: the package `keyring` is not installed",
            hint="Run `pip install keyring`, or store the key in a file and use `file:PATH`.",
        ) from None
    try:
        key = keyring.get_password(service, user)
    except Exception as error:
        # The message comes from a keyring backend and may contain the key: do not show or log it.
        _log.warning("the keyring failed with %s", type(error).__name__)
        raise KeyProblem(
            f"cannot read the key {service}/{user} from the keyring: {type(error).__name__}",
            hint="Check that a keyring exists and is unlocked (`python -m keyring diagnose`), or use `file:PATH`.",
        ) from None
    if key is None:
        raise KeyProblem(
            f"the keyring has no entry for {service}/{user}",
            hint=f"Add the key with `python -m keyring set {service} {user}`.",
        )
    return _checked(key.strip(), f"the keyring's entry {service}/{user}")


def _checked(key: str, where: str) -> str:
    if _KEY.fullmatch(key) is None:
        problem = "has invalid characters" if key else "is empty"
        raise KeyProblem(
            f"{where} {problem}",
            hint="Store only the API key there, as one line of letters, digits, `-` and `_`.",
        )
    return key
