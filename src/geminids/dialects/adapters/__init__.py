"""The agents that can be run, by name; and how one, or many at once, are run. Public as `geminids.adapters`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from importlib.metadata import EntryPoint, entry_points

from geminids.dialects.adapters.feed import AbortSignal, Deadline, until_set
from geminids.dialects.adapters.gemini import GeminiAdapter
from geminids.dialects.adapters.options import AgentOptions, PermissionPolicy
from geminids.dialects.adapters.run import AgentAdapter, AgentInstance, AgentTask, hardened, merged_runs, told
from geminids.dialects.agent_events.model import AgentEvent
from geminids.errors import GeminidsError

__all__ = [
    "GROUP",
    "AbortSignal",
    "AgentAdapter",
    "AgentEvent",
    "AgentInstance",
    "AgentOptions",
    "AgentTask",
    "Deadline",
    "GeminiAdapter",
    "PermissionPolicy",
    "Registry",
    "get",
    "list",
    "register",
    "run_agent",
    "run_parallel",
    "unregister",
    "until_set",
]

GROUP = "geminids.adapters"
_WHAT_IT_IS = "An adapter is an object with agent (its name), run and is_available."


class Registry:
    """Adapters by name. Those that other packages bring (entry points) are loaded when they are first asked for."""

    def __init__(self) -> None:
        self._adapters: dict[str, AgentAdapter] = {}
        self._removed: set[str] = set()

    def register(self, adapter: AgentAdapter) -> None:
        """Add an adapter under its `agent`; raises `GeminidsError` where that name is taken, or this is none."""
        if not _is_adapter(adapter):
            raise GeminidsError(f"{adapter!r} is no adapter", hint=_WHAT_IT_IS)
        name = adapter.agent
        if name in self.list():
            raise GeminidsError(
                f"there is an adapter {name!r} already", hint=f"Call unregister({name!r}) first."
            )
        self._adapters[name] = adapter

    def get(self, name: str) -> AgentAdapter:
        """An adapter by its name; raises `GeminidsError`, which names those that there are."""
        found = self._adapters.get(name)
        if found is None and (entry := self._entries().get(name)) is not None:
            found = self._adapters[name] = _loaded(entry)
        if found is None:
            raise GeminidsError(
                f"there is no adapter {name!r}", hint=f"There are: {', '.join(self.list()) or 'none'}."
            )
        return found

    def list(self) -> tuple[str, ...]:
        """The names, in the order of registration; those of other packages last."""
        return tuple(dict.fromkeys((*self._adapters, *self._entries())))

    def unregister(self, name: str) -> bool:
        """Take an adapter out; says whether there was one."""
        there = name in self.list()
        self._adapters.pop(name, None)
        if there:
            self._removed.add(name)
        return there

    def _entries(self) -> dict[str, EntryPoint]:
        """What other packages bring. A name that is taken stays whose it is, and one that was taken out stays out."""
        return {entry.name: entry for entry in entry_points(group=GROUP) if entry.name not in self._removed}


def _loaded(entry: EntryPoint) -> AgentAdapter:
    try:
        loaded = entry.load()
        adapter = loaded() if isinstance(loaded, type) else loaded
    except (Exception, SystemExit) as error:
        why = told(error)
        raise GeminidsError(f"the adapter {entry.name!r} ({entry.value}) cannot be loaded: {why}") from error
    if not _is_adapter(adapter) or adapter.agent != entry.name:
        raise GeminidsError(
            f"the entry point {entry.name!r} ({entry.value}) is no adapter of that name", hint=_WHAT_IT_IS
        )
    made: AgentAdapter = adapter
    return made


def _is_adapter(value: object) -> bool:
    # A class has all that its objects have, and could not be run.
    if isinstance(value, type) or not isinstance(value, AgentAdapter):
        return False
    return isinstance(value.agent, str) and bool(value.agent)


_registry = Registry()
_registry.register(GeminiAdapter())
register = _registry.register
get = _registry.get
list = _registry.list
unregister = _registry.unregister


def run_agent(
    agent: AgentAdapter | str, prompt: str, options: AgentOptions | None = None
) -> AsyncIterator[AgentEvent]:
    """The events of one run of any agent: exactly one `done`, last, whatever the adapter does.

    A name that is not there raises at once. Breaking off ends the run.
    """
    adapter = get(agent) if isinstance(agent, str) else agent
    return hardened(adapter, prompt, options or AgentOptions())


def run_parallel(tasks: Iterable[AgentTask]) -> AsyncIterator[AgentEvent]:
    """Many runs at once, their events as they arrive; each run has its own `done`, and none ends another."""
    return merged_runs(tasks, get)
