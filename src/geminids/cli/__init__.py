"""The command line `geminids`. The module of a command is imported only when the command runs."""

from __future__ import annotations

import errno
import os
import signal
import sys
from importlib import import_module
from typing import TYPE_CHECKING

import click

from geminids.errors import GeminidsError, OptionsError
from geminids.log import LEVELS
from geminids.views.sanitize import clean

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

__all__ = ["app", "main"]

# Error numbers for a full disk, an exhausted disk quota, and a file that has reached its size
# limit.
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# The commands and their short help. It is here, so that `geminids --help` imports no command.
_COMMANDS = {
    "run": "Run the agent once.",
    "chat": "Chat with the agent, turn by turn.",
    "warm": "Show or stop the background process of `run --warm`.",
    "doctor": "Check whether a run would work here; if not, show what to fix.",
    "install": "Install a release of Gemini CLI. Several can be installed.",
    "versions": "List the installed releases of Gemini CLI.",
    "uninstall": "Remove an installed release of Gemini CLI.",
    "config": "Show and change the configuration of runs.",
    "sessions": "List, show, export, fork or rescue stored sessions.",
    "usage": "Show tokens and cost by day, model, project or session.",
    "convert": "Convert a recorded run or a session file to another format.",
    "skills": "List, lint, add or remove agent skills.",
    "gateway": "Serve the Gemini API on 127.0.0.1: scripted, recorded or replayed.",
    "completion": "Print a script that completes commands and flags in your shell.",
}
# The modules of the commands that do not have a module with their own name.
_MODULES = dict.fromkeys(("install", "versions", "uninstall"), "releases")


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in _COMMANDS:
            return None
        command = getattr(import_module(f"geminids.cli.commands.{_MODULES.get(name, name)}"), name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in _COMMANDS and not args[0].startswith("-") and not ctx.resilient_parsing:
            from geminids.cli.shared.suggest import unknown_command  # imported late: rarely needed

            raise unknown_command(args, _COMMANDS, ctx)
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the names of the commands, without importing the commands."""
        from click.shell_completion import CompletionItem

        names = [
            CompletionItem(name, help=text) for name, text in _COMMANDS.items() if name.startswith(incomplete)
        ]
        return names + click.Command.shell_complete(self, ctx, incomplete)

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
    """Run Gemini CLI, and see what it did, what it cost and why it ended."""
    level = os.environ.get("GEMINIDS_LOG", "")
    if level and level.lower() not in LEVELS:
        raise click.UsageError(f"GEMINIDS_LOG is {level!r}; use one of: {', '.join(LEVELS)}")


def main() -> None:
    """Run the command line, and exit the process. An expected error is printed as a message,
    without a traceback."""
    _reset_sigchld()
    try:
        code = app.main(standalone_mode=False)
        _exit(code if isinstance(code, int) else 0)
    except click.exceptions.Exit as error:
        _exit(error.exit_code)
    except click.ClickException as error:
        if isinstance(error, click.NoSuchOption):
            from geminids.cli.shared.suggest import unknown_flag  # imported late: rarely needed

            error = unknown_flag(error, app)
        error.show()
        _exit(2 if isinstance(error, click.UsageError) else error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        _exit(130)
    except BrokenPipeError:
        _exit(141)
    except OSError as error:
        if error.errno not in _DISK_FULL or error.filename is not None:
            raise
        click.echo(f"geminids: cannot write to stdout: {error.strerror}", err=True)
        _exit(1)
    except GeminidsError as error:
        # Clean the message, because file names and session ids can contain control characters.
        click.echo(f"geminids: {clean(_text(error))}", err=True)
        for line in getattr(error, "output", "").strip().splitlines()[-12:]:
            click.echo(f"  | {line}", err=True)
        _exit(2 if isinstance(error, OptionsError) else 1)


def _text(error: GeminidsError) -> str:
    if sys.argv[1:2] == ["config"]:
        return str(error)  # the keys of the configuration are the Python names
    from geminids.options.flag_names import error_text  # imported late: `--help` does not need it

    return error_text(error)


def _reset_sigchld() -> None:
    """Make sure that this process does not ignore the signal SIGCHLD.

    If the parent process ignores SIGCHLD, this process ignores it too. The exit code of every child
    process is then reported as 0.
    """
    if hasattr(signal, "SIGCHLD") and signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def _exit(code: int) -> None:
    try:
        if sys.stdout:
            sys.stdout.flush()
    except OSError:
        # The reader of stdout has ended, or the disk is full. Discard the remaining output, so that
        # Python does not report the error again when it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)
