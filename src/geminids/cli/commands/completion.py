"""`geminids completion`: print a script that completes commands and flags in a shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

__all__ = ["completion"]

_SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(_SHELLS))
def completion(shell: str) -> None:
    """Print a script that completes commands, flags and values when you press Tab.

    Turn it on once; it works in every new shell.

    \b
    bash (4.4 or newer):
      echo 'eval "$(geminids completion bash)"' >> ~/.bashrc
    zsh (after compinit):
      echo 'eval "$(geminids completion zsh)"' >> ~/.zshrc
    fish:
      geminids completion fish > ~/.config/fish/completions/geminids.fish
    """
    # The shell calls `geminids` with the variable `_GEMINIDS_COMPLETE`, which click reads.
    script = get_completion_class(shell)
    assert script is not None
    app = click.get_current_context().find_root().command
    click.echo(script(app, {}, "geminids", "_GEMINIDS_COMPLETE").source())
