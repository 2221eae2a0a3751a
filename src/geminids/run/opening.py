"""`open_run`: options and fields, checked, and the run that is made of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from geminids.options import Options, make_options
from geminids.run.reading import OnLine
from geminids.run.run import Run

if TYPE_CHECKING:
    from geminids.prices import Budget
    from geminids.run.warm.permission import OnPermission

__all__ = ["open_run"]


def open_run(
    prompt: str,
    options: Options | None = None,
    /,
    *,
    on_line: OnLine | None = None,
    on_permission: OnPermission | None = None,
    budget: Budget | None = None,
    **fields: Any,
) -> Run:
    """A run of the agent, ended with all its processes when the block is left.

    Raises `OptionsError` for bad options at once. `fields` are fields of `Options`. `on_line(line, events)` is
    called with each line that the CLI printed, secrets masked, and the events that it became (headless lane only).
    `on_permission(asked)` decides when the agent asks: the run then takes the warm lane, where it can. A `budget` is
    shared with all other runs and chats that it is given to. `schema` is a JSON Schema, or a msgspec, pydantic or
    dataclass type: `result.value` is then of that type.
    """
    wanted = None
    schema = fields.pop("schema", options.schema if isinstance(options, Options) else None)
    if schema is not None:
        from geminids.run.wanted import wanted_of  # imported late: few runs want a form

        wanted = wanted_of(schema)
    fields["schema"] = wanted.text if wanted is not None else None
    return Run(
        prompt,
        make_options(options, **fields),
        on_line=on_line,
        on_permission=on_permission,
        budgets=() if budget is None else (budget,),
        wanted=wanted,
    )
