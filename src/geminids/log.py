"""Loggers named `geminids.*`.

They are silent until the application configures them, and mask known secrets.

`GEMINIDS_LOG=debug` logs to stderr. Each package has one logger: `_log = get_logger("run")`.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING
from weakref import WeakSet

from geminids.redact import Redactor, secrets_of

if TYPE_CHECKING:
    import logging

__all__ = ["LEVELS", "Log", "get_logger", "mask_in_logs"]

LEVELS = ("debug", "info", "warning", "error")
_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_DEBUG, _INFO, _WARNING, _ERROR = 10, 20, 30, 40

_redactors: WeakSet[Redactor] = WeakSet()
_is_set_up = False


def get_logger(package: str) -> Log:
    """Return the logger of one of our packages.

    >>> get_logger("run").name
    'geminids.run'
    """
    return Log(f"geminids.{package}")


def mask_in_logs(redactor: Redactor) -> Redactor:
    """Mask this redactor's secrets in log messages while the redactor is referenced somewhere."""
    _redactors.add(redactor)
    return redactor


class Log:
    """A logger that does not import `logging`, because the import delays the spawn by 6 ms.

    If the application has not imported `logging`, it has no handler, and the message would be lost
    anyway.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def debug(self, message: str, *args: object, error: BaseException | None = None) -> None:
        """Log a message, with the traceback of `error` if given."""
        self._write(_DEBUG, message, args, error)

    def info(self, message: str, *args: object, error: BaseException | None = None) -> None:
        self._write(_INFO, message, args, error)

    def warning(self, message: str, *args: object, error: BaseException | None = None) -> None:
        self._write(_WARNING, message, args, error)

    def error(self, message: str, *args: object, error: BaseException | None = None) -> None:
        self._write(_ERROR, message, args, error)

    def _write(self, level: int, message: str, args: tuple[object, ...], error: BaseException | None) -> None:
        logger = _logger(self.name)
        if logger is None or not logger.isEnabledFor(level):
            return
        file, line, function, _ = logger.findCaller(stacklevel=3)
        text = _masked(message % args if args else message)
        record = logger.makeRecord(self.name, level, file, line, text, (), None, function)
        if error is not None:
            import traceback

            record.exc_text = _masked("".join(traceback.format_exception(error)).rstrip())
        logger.handle(record)


def _logger(name: str) -> logging.Logger | None:
    level = os.environ.get("GEMINIDS_LOG", "").lower()
    if "logging" not in sys.modules and level not in LEVELS:
        return None
    import logging

    global _is_set_up
    if not _is_set_up:
        _is_set_up = True
        root = logging.getLogger("geminids")
        # Without a handler, Python prints warnings to stderr.
        root.addHandler(logging.NullHandler())
        if level in LEVELS:
            handler = logging.StreamHandler()
            handler.setFormatter(logging.Formatter(_FORMAT))
            root.addHandler(handler)
            root.setLevel(level.upper())
    return logging.getLogger(name)


def _masked(text: str) -> str:
    for redactor in (*_live_redactors(), Redactor(secrets_of(os.environ))):
        text = redactor.text(text)
    return text


def _live_redactors() -> list[Redactor]:
    # Do not use a lock: a child forked while another thread holds it would wait forever.
    while True:
        try:
            return list(_redactors)
        except RuntimeError:
            continue  # another thread added one during the iteration
