"""`geminids chat`: chat with the agent in a terminal, or send it prompts through a pipe."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from geminids.cli.shared.flag_parser import GroupedCommand, field_flags, own_flag, parse_flags
from geminids.config.loader import load_options
from geminids.options import Options

__all__ = ["chat", "split_options"]

# The options that apply only to the first prompt of a chat.
_FIRST_PROMPT_ONLY = ("files", "images", "instructions", "template", "variables", "videos")
# The options of `geminids run` that a chat does not have, because they are for a single run.
_RUN_ONLY = ("schema", "schema_tries", "session_id", "telemetry")

# A run denies what its approval mode does not allow; a chat asks the user.
_APPROVAL = (
    "What the agent does without asking you: default only reads, auto_edit also edits files, yolo does "
    "everything, plan only reads and plans.  [default: default]"
)


@click.command(cls=GroupedCommand, context_settings={"max_content_width": 110})
@click.argument("prompt", required=False)
@field_flags
@own_flag("--json", "as_json", is_flag=True, help="Print one JSON object per turn.")
def chat(prompt: str | None, as_json: bool, no_config: bool, continue_latest: bool, **params: Any) -> int:
    """Chat with the agent, turn by turn. PROMPT is the first prompt.

    By default, the agent may only read; it asks before anything else: press y to allow an action
    once, a to allow it always, n to deny it. Ctrl-C ends the turn; in an empty prompt it leaves the
    chat, and so does Ctrl-D. Alt-Enter begins a new line, Tab completes commands and @paths, and
    /help lists the commands. Files, images, instructions and a template apply to the first prompt.

    Without a terminal, each line of stdin is a prompt, permissions are denied without asking, and the
    exit code is that of the last turn, as in geminids run. A chat in a terminal exits with 0, or with 130
    after a second Ctrl-C.
    """
    flags = parse_flags(params, continue_latest=continue_latest)
    loaded = load_options(flags=flags, config=not no_config)
    for warning in loaded.warnings:
        click.echo(f"geminids: {warning}", err=True)
    from geminids.cli.chat.start import start_chat  # imported late: --help does not need it

    options, fields = split_options(loaded.options)
    return start_chat(prompt, options, fields, as_json=as_json)


chat.params = [param for param in chat.params if param.name not in _RUN_ONLY]
for _param in chat.params:
    if _param.name == "approval" and isinstance(_param, click.Option):
        _param.help = _APPROVAL


def split_options(options: Options) -> tuple[Options, dict[str, Any]]:
    """Split the options of a chat into two parts.

    Return the options for all prompts, and a dict of the options that apply only to the first
    prompt.
    """
    fields = {name: getattr(options, name) for name in _FIRST_PROMPT_ONLY}
    default = Options()
    defaults = {name: getattr(default, name) for name in (*_FIRST_PROMPT_ONLY, *_RUN_ONLY)}
    return msgspec.structs.replace(options, **defaults), fields
