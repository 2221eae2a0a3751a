"""The functions that run the agent: `open_run`, `ask`, `ask_sync` and `stream_sync`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, overload

from geminids.events.model import Event
from geminids.options import Options, make_options
from geminids.run.headless.reader import OnLine, OnStderr, OutputCallbacks
from geminids.run.result import Result
from geminids.run.run import Run
from geminids.run.schema.answer_schema import schema_option

if TYPE_CHECKING:
    from geminids.run.starter import MakeWarm
    from geminids.spending import Budget
    from geminids.warm.permissions.answer import OnPermission

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
    """Run the agent with this prompt, and return the result when the run has ended.

    `options` and `fields` are described in `open_run`. `on_permission` answers permission requests.
    If the run fails, no exception is raised: see `Result.failure`.
    """
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
    """Run the agent with this prompt, and return the result. This is `ask` without async, for
    scripts and notebooks. It also works if an event loop is running in the caller's thread.

    In this example the prompt is empty, so the run fails:

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
    """Run the agent with this prompt, and yield the events of the run. It is a normal function, not
    an async one. The parameters are described in `open_run`.

    If the caller closes the iterator early, the run and its processes are ended.
    """
    return _stream(open_run(prompt, options, on_permission=on_permission, **fields))


async def _drain(run: Run) -> None:
    async for _ in run:
        pass


def _stream(run: Run) -> Iterator[Event]:
    """Start the run, execute it in an event loop in a new thread, and yield its events.

    A new thread is needed because an event loop may already be running in the caller's thread.
    """
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
    on_stderr: OnStderr | None = None,
    on_permission: OnPermission | None = None,
    budget: Budget | None = None,
    **fields: Any,
) -> Run:
    """Create a run of the agent. Use it as `async with open_run(...) as run`; at the end of the
    `with` block, all processes of the run are ended.

    Raises `OptionsError` immediately if an option is not valid.

    - `options` and `fields` are the options of the run. Each keyword argument in `fields` has the
      name of a field of `Options`, and overrides its value in `options`. The field `schema` is a
      JSON Schema, or a msgspec, pydantic or dataclass type; `result.value` then has that type.
    - `on_line(line, events)` is called for each line that the CLI prints. `events` are the events
      made from the line. `on_stderr(text)` is called with one or more lines of the CLI's stderr.
      Secrets are masked in the arguments of both callbacks. Both callbacks work only on the
      headless transport, which starts one CLI process for each prompt.
    - `on_permission(asked)` answers permission requests. The run then uses the warm transport (the
      CLI's ACP mode) if possible.
    - `budget` limits the dollars, tokens or requests that are used. All runs and chats that get the
      same object share the budget.
    """
    requested = fields.pop("schema", options.schema if isinstance(options, Options) else None)
    schema, fields["schema"] = schema_option(requested)
    return Run(
        prompt,
        make_options(options, **fields),
        callbacks=OutputCallbacks(on_line, on_stderr),
        make_warm=_warm_run(on_permission),
        budgets=() if budget is None else (budget,),
        schema=schema,
    )


def _warm_run(on_permission: OnPermission | None) -> MakeWarm | None:
    """Return a function that creates a warm run (a run in the CLI's ACP mode). Return None if
    `on_permission` is None: a warm run is needed only to answer permission requests.
    """
    if on_permission is None:
        return None
    from geminids.warm.single_run import SingleRun  # imported late: few runs need it

    return partial(SingleRun, on_permission)
