"""Tests of logging: silent by default, complete on request, and never with a secret."""

from __future__ import annotations

import ast
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from geminids.log import get_logger, mask_in_logs
from geminids.redact import Redactor

SOURCE = Path(__file__).parents[1] / "src" / "geminids"
SECRET = "hunter2hunter2hunter2"


def test_records_are_those_of_a_plain_logger(caplog: pytest.LogCaptureFixture) -> None:
    """A record has the level, the logger and the calling function of a plain logger; lower levels
    are not logged."""
    caplog.set_level(logging.INFO, "geminids")
    get_logger("run").info("stopping: %s", "asked for")
    get_logger("run").debug("not asked for")
    (record,) = caplog.records
    assert (record.name, record.levelname, record.getMessage()) == (
        "geminids.run",
        "INFO",
        "stopping: asked for",
    )
    assert record.funcName == "test_records_are_those_of_a_plain_logger"


def test_secrets_are_masked(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Secrets of a run and of the environment are masked in messages and in tracebacks."""
    caplog.set_level(logging.DEBUG, "geminids")
    monkeypatch.setenv("SOME_API_KEY", "key-of-the-environment")
    redactor = mask_in_logs(Redactor([SECRET]))
    try:
        raise ValueError(f"{SECRET} and key-of-the-environment")
    except ValueError as error:
        get_logger("run").warning("failed with %s", SECRET, error=error)
    assert redactor
    assert SECRET not in caplog.text and "key-of-the-environment" not in caplog.text
    assert "ValueError: *** and ***" in caplog.text and "failed with ***" in caplog.text


@pytest.mark.parametrize(
    ("level", "logged"), [(None, False), ("debug", True), ("INFO", True), ("error", False)]
)
@pytest.mark.parametrize("imports", ["", "import logging; "])
def test_logging_is_silent_by_default(level: str | None, logged: bool, imports: str) -> None:
    """Nothing is printed without GEMINIDS_LOG, also if the application has imported `logging` and
    configured nothing."""
    program = f"{imports}from geminids.log import get_logger; get_logger('run').warning('it happened')"
    env = {name: value for name, value in os.environ.items() if name != "GEMINIDS_LOG"}
    env |= {} if level is None else {"GEMINIDS_LOG": level}
    done = subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True
    )
    assert ("WARNING geminids.run: it happened" in done.stderr) is logged
    assert logged or done.stderr == ""


def test_logging_is_imported_late() -> None:
    """Our logger does not import `logging`, which would delay the spawn."""
    program = (
        "import sys, geminids.log; geminids.log.get_logger('run').error('x'); print('logging' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_an_unknown_level_is_refused() -> None:
    """The command line refuses an unknown level and lists the known ones."""
    argv = [sys.executable, "-m", "geminids", "versions"]
    env = {**os.environ, "GEMINIDS_LOG": "loud"}
    done = subprocess.run(argv, env=env, capture_output=True, text=True)
    assert done.returncode == 2
    assert "GEMINIDS_LOG is 'loud'; use one of: debug, info, warning, error" in done.stderr


def test_no_exception_is_swallowed_silently() -> None:
    """Each handler of `Exception` or `BaseException` in the source raises again or logs."""
    silent = [
        f"{file.relative_to(SOURCE)}:{handler.lineno}"
        for file in sorted(SOURCE.rglob("*.py"))
        for handler in ast.walk(ast.parse(file.read_bytes()))
        if isinstance(handler, ast.ExceptHandler) and _is_broad(handler) and not _is_visible(handler)
    ]
    assert silent == []


def _is_broad(handler: ast.ExceptHandler) -> bool:
    caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(
        kind is None or (isinstance(kind, ast.Name) and kind.id in ("Exception", "BaseException"))
        for kind in caught
    )


def _is_visible(handler: ast.ExceptHandler) -> bool:
    """Whether the handler logs, raises, or hands the exception to a function that logs it."""
    for node in ast.walk(handler):
        if isinstance(node, ast.Raise):
            return True
        if isinstance(node, ast.Call):
            called = node.func
            if (
                isinstance(called, ast.Attribute)
                and isinstance(called.value, ast.Name)
                and called.value.id == "_log"
            ):
                return True
            if isinstance(called, ast.Name) and called.id in (
                "ending_of_error",
                "our_fault",
                "_broken",
                "_log",
            ):
                return True
    return False
