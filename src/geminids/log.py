"""The loggers of geminids, one for each package, with names such as `geminids.run`. They mask known
secrets in all messages.

They write nothing until the application configures `logging`. If the environment variable
`GEMINIDS_LOG` is set to a level such as `debug`, they write to stderr. A module gets the logger of
its package with `_log = get_logger("run")`.
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
    """Return the logger of one package of geminids. `package` is the name of the package, such as
    `run`.

    >>> get_logger("run").name
    'geminids.run'
    """
    return Log(f"geminids.{package}")


def mask_in_logs(redactor: Redactor) -> Redactor:
    """Mask the secrets of this redactor in all log messages of geminids, as long as the redactor
    object exists. Return the redactor.
    """
    _redactors.add(redactor)
    return redactor


class Log:
    """A logger that imports `logging` only if a message can be written. The import would delay the
    start of the CLI by 6 ms.

    If the application has not imported `logging`, and `GEMINIDS_LOG` is not set, messages are
    discarded, because no handler exists that could write them.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def debug(self, message: str, *args: object, error: BaseException | None = None) -> None:
        """Log a message with the level `debug`. `args` are inserted into the message with `%`, as
        in `logging`. If `error` is set, its traceback is added.
        """
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
        # This handler does nothing. Without any handler, Python prints warnings to stderr.
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
    # Do not use a lock: if a child is forked while another thread holds the lock, the child waits
    # forever.
    while True:
        try:
            return list(_redactors)
        except RuntimeError:
            continue  # another thread added a redactor during the iteration
