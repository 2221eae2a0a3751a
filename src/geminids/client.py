"""`open_run`, `ask`, `ask_sync` and `stream_sync`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeVar, overload

from geminids.events.model import Event
from geminids.options import Options, make_options
from geminids.run.headless.reader import OnLine
from geminids.run.result import Result
from geminids.run.run import Run
from geminids.run.schema.answer_schema import schema_option

if TYPE_CHECKING:
    from geminids.run.starter import MakeWarm
    from geminids.spending import Budget
    from geminids.warm.permissions.decide import OnPermission

__all__ = ["ask", "ask_sync", "open_run", "stream_sync"]

T = TypeVar("T")


@overload
async def ask(
    prompt: str,
    options: Options | None = None,
    /,
    *,
    schema: type[T],
    on_permission: OnPermission | None = None,
    **fields: Any,
) -> Result[T]: ...
@overload
async def ask(
    prompt: str,
    options: Options | None = None,
    /,
    *,
    schema: Any = None,
    on_permission: OnPermission | None = None,
    **fields: Any,
) -> Result[Any]: ...
async def ask(
    prompt: str,
    options: Options | None = None,
    /,
    *,
    on_permission: OnPermission | None = None,
    **fields: Any,
) -> Result:
    """Run the agent to its end. A failed run is reported in the result, not raised."""
    async with open_run(prompt, options, on_permission=on_permission, **fields) as run:
        await _drain(run)
    return run.result


@overload
def ask_sync(
    prompt: str,
    options: Options | None = None,
    /,
    *,
    schema: type[T],
    on_permission: OnPermission | None = None,
    **fields: Any,
) -> Result[T]: ...
@overload
def ask_sync(
    prompt: str,
    options: Options | None = None,
    /,
    *,
    schema: Any = None,
    on_permission: OnPermission | None = None,
    **fields: Any,
) -> Result[Any]: ...
def ask_sync(
    prompt: str,
    options: Options | None = None,
    /,
    *,
    on_permission: OnPermission | None = None,
    **fields: Any,
) -> Result:
    """`ask` for scripts and notebooks: works inside a running event loop too.

    >>> ask_sync("", cwd=".").failure.kind
    'bad_prompt'
    """
    run = open_run(prompt, options, on_permission=on_permission, **fields)
    for _ in _stream(run):
        pass
    return run.result


def stream_sync(
    prompt: str,
    options: Options | None = None,
    /,
    *,
    on_permission: OnPermission | None = None,
    **fields: Any,
) -> Iterator[Event]:
    """The events of a run, without async. Closing the iterator ends the run and all its processes."""
    return _stream(open_run(prompt, options, on_permission=on_permission, **fields))


async def _drain(run: Run) -> None:
    async for _ in run:
        pass


def _stream(run: Run) -> Iterator[Event]:
    """Drive the run on a loop in a thread of its own: the caller's may have one already."""
    run.launch()
    from anyio.from_thread import start_blocking_portal  # imported while the CLI loads

    with start_blocking_portal() as portal, portal.wrap_async_context_manager(run):
        while (batch := portal.call(run.next_batch)) is not None:
            yield from batch


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
    given = fields.pop("schema", options.schema if isinstance(options, Options) else None)
    schema, fields["schema"] = schema_option(given)
    return Run(
        prompt,
        make_options(options, **fields),
        on_line=on_line,
        make_warm=_warm_run(on_permission),
        budgets=() if budget is None else (budget,),
        schema=schema,
    )


def _warm_run(on_permission: OnPermission | None) -> MakeWarm | None:
    """Somebody can be asked on the warm transport only."""
    if on_permission is None:
        return None
    from functools import partial

    from geminids.warm.single_run import SingleRun  # imported late: most runs ask nobody

    return partial(SingleRun, on_permission)
