"""The command line: one file a command, loaded when it is called."""

from __future__ import annotations

import errno
import os
import signal
import sys
from importlib import import_module

import click

from geminids.errors import GeminidsError, OptionsError
from geminids.log import LEVELS

__all__ = ["app", "main"]

# What a write to a full disk says, to a quota that is used up, and to a file that may not grow.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# The help lines stand here, so that `geminids --help` loads no command.
_COMMANDS = {
    "run": "Run the agent once.",
    "chat": "Talk with the agent, turn by turn.",
    "warm": "The CLI that `run --warm` keeps ready: status, stop.",
    "doctor": "Check whether a run would work here, and what to do where not.",
    "install": "Install a release of Gemini CLI, beside the others.",
    "versions": "List the releases that are here.",
    "uninstall": "Remove an installed release.",
    "config": "Show and change what runs are configured with.",
    "sessions": "Stored sessions: list, show, export, fork, rescue.",
    "usage": "Tokens and cost of all stored sessions, by day, model, project, session.",
    "convert": "A recorded run or a session file in another format.",
    "skills": "Agent skills: list, lint, add, remove.",
    "gateway": "A Gemini API on loopback, by itself.",
}


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in _COMMANDS:
            return None
        command = getattr(import_module(f"geminids.cli.commands.{name}"), name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))


@click.command(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog='Try: geminids run --offline "What is in this folder?"',
)
@click.version_option(package_name="geminids", message="geminids %(version)s")
def app() -> None:
    """Run Gemini CLI, and always know the truth about the run."""
    level = os.environ.get("GEMINIDS_LOG", "")
    if level and level.lower() not in LEVELS:
        raise click.UsageError(f"GEMINIDS_LOG is {level!r}; use one of: {', '.join(LEVELS)}")


def main() -> None:
    """The entry point: errors become one clear message and an exit code, never a traceback."""
    _heed_children()
    try:
        code = app.main(standalone_mode=False)
        _leave(code if isinstance(code, int) else 0)
    except click.exceptions.Exit as leaving:
        _leave(leaving.exit_code)
    except click.ClickException as error:
        error.show()
        _leave(2 if isinstance(error, click.UsageError) else error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        _leave(130)
    except BrokenPipeError:
        _leave(141)
    except OSError as error:
        if error.errno not in _FULL or error.filename is not None:
            raise
        click.echo(f"geminids: stdout cannot be written: {error.strerror}", err=True)
        _leave(1)
    except GeminidsError as error:
        from geminids.views.sanitize import clean  # imported late: only an error needs it

        # Names of files and ids of sessions may hold anything.
        click.echo(f"geminids: {clean(str(error))}", err=True)
        for line in getattr(error, "output", "").strip().splitlines()[-12:]:
            click.echo(f"  | {line}", err=True)
        _leave(2 if isinstance(error, OptionsError) else 1)


def _heed_children() -> None:
    """A supervisor that ignores SIGCHLD hands that down to us, and every exit code would read as 0."""
    if hasattr(signal, "SIGCHLD") and signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def _leave(code: int) -> None:
    try:
        if sys.stdout:
            sys.stdout.flush()
    except OSError:
        # Whoever read us has gone, or the disk is full: say nothing more, and nothing at interpreter exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)
