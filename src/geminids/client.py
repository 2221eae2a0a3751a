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
    """Run the agent and return its result. A failed run does not raise: see `Result.failure`."""
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
    """`ask` without async, for scripts and notebooks. It also works inside a running event loop.

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
    """Iterate over the events of a run without async.

    Closing the iterator ends the run and its processes.
    """
    return _stream(open_run(prompt, options, on_permission=on_permission, **fields))


async def _drain(run: Run) -> None:
    async for _ in run:
        pass


def _stream(run: Run) -> Iterator[Event]:
    """Drive the run on an event loop in a new thread: the caller's may already run one."""
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
    """Open a run of the agent: `async with open_run(...) as run`.

    Leaving the block ends all its processes.

    Raises `OptionsError` immediately if options are bad.

    `fields` are fields of `Options`. `on_line(line, events)` is called for each line that the CLI
    prints, with secrets masked, and the events made from it (headless transport only).
    `on_permission(asked)` answers permission requests; the run then uses the warm transport if it
    can. A `budget` is shared by all runs and chats that get it. `schema` is a JSON Schema, or a
    msgspec, pydantic or dataclass type; `result.value` then has that type.
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
    """Only the warm transport can ask for permission."""
    if on_permission is None:
        return None
    from functools import partial

    from geminids.warm.single_run import SingleRun  # imported late: most runs do not ask

    return partial(SingleRun, on_permission)
