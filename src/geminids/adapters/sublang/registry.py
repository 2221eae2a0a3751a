"""The registry of adapters: register an adapter by name, and run it with `run_agent`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from importlib.metadata import EntryPoint, entry_points

from geminids.adapters.sublang.agent import AgentAdapter, describe_error, run_adapter
from geminids.adapters.sublang.gemini import GeminiAdapter
from geminids.adapters.sublang.options import AgentOptions
from geminids.dialects.agent_events.model import AgentEvent
from geminids.errors import GeminidsError

__all__ = ["GROUP", "Registry", "get", "list", "register", "run_agent", "unregister"]

GROUP = "geminids.adapters"
_ADAPTER_HINT = (
    "An adapter is an object with the attribute agent (its name) and the methods run and is_available."
)


class Registry:
    """Holds adapters, and finds them by name.

    Installed packages can provide adapters through an entry point. Such an adapter is loaded
    when it is first used.
    """

    def __init__(self) -> None:
        self._adapters: dict[str, AgentAdapter] = {}
        self._removed: set[str] = set()

    def register(self, adapter: AgentAdapter) -> None:
        """Add an adapter under the name that its attribute `agent` contains.

        Raises `GeminidsError` if the object is not an adapter, or if another adapter has the same
        name.
        """
        if not _is_adapter(adapter):
            raise GeminidsError(f"{adapter!r} is not an adapter", hint=_ADAPTER_HINT)
        name = adapter.agent
        if name in self.list():
            raise GeminidsError(
                f"an adapter {name!r} is already registered", hint=f"Call unregister({name!r}) first."
            )
        self._adapters[name] = adapter

    def get(self, name: str) -> AgentAdapter:
        """Return the adapter with this name.

        Raises `GeminidsError`, which lists the known names, if there is no such adapter. Also
        raises `GeminidsError` if the adapter of an installed package cannot be loaded.
        """
        adapter = self._adapters.get(name)
        if adapter is None and (entry := self._entries().get(name)) is not None:
            adapter = self._adapters[name] = _load(entry)
        if adapter is None:
            raise GeminidsError(
                f"there is no adapter {name!r}", hint=f"Known adapters: {', '.join(self.list()) or 'none'}."
            )
        return adapter

    def list(self) -> tuple[str, ...]:
        """Return the names of all adapters in the order of registration. The adapters of other
        packages come last."""
        return tuple(dict.fromkeys((*self._adapters, *self._entries())))

    def unregister(self, name: str) -> bool:
        """Remove the adapter with this name, and return whether there was one."""
        existed = name in self.list()
        self._adapters.pop(name, None)
        if existed:
            self._removed.add(name)
        return existed

    def _entries(self) -> dict[str, EntryPoint]:
        """Return the entry points of the adapters that other packages provide, as a dict with the
        names as keys.

        Names that were removed with `unregister` are left out. If an adapter with the same name was
        registered, its name stays in the dict, but the registry uses the registered adapter.
        """
        return {entry.name: entry for entry in entry_points(group=GROUP) if entry.name not in self._removed}


def _load(entry: EntryPoint) -> AgentAdapter:
    try:
        loaded = entry.load()
        adapter = loaded() if isinstance(loaded, type) else loaded
    except (Exception, SystemExit) as error:
        why = describe_error(error)
        raise GeminidsError(
            f"cannot load the adapter {entry.name!r} ({entry.value}): {why}",
            hint="Repair or uninstall the package that has this entry point.",
        ) from error
    if not _is_adapter(adapter):
        raise GeminidsError(
            f"the entry point {entry.name!r} ({entry.value}) is not an adapter", hint=_ADAPTER_HINT
        )
    if adapter.agent != entry.name:
        raise GeminidsError(
            f"the entry point {entry.name!r} ({entry.value}) is an adapter with another name: its "
            f"attribute `agent` is {adapter.agent!r}",
            hint="The entry point and the attribute `agent` must have the same name.",
        )
    checked: AgentAdapter = adapter
    return checked


def _is_adapter(value: object) -> bool:
    # A class has the attributes of its instances, but only an instance can be run.
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
    """Run an agent and return its events. The last event is `done`, even if the adapter fails, and
    it occurs only once.

    `agent` is an adapter or the name of an adapter. Raises `GeminidsError` at once if the name is
    unknown. Closing the iterator stops the run.
    """
    adapter = get(agent) if isinstance(agent, str) else agent
    return run_adapter(adapter, prompt, options or AgentOptions())
