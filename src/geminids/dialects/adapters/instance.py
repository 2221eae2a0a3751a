"""An agent with a role and defaults, that goes on with its own conversation from run to run."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec

from geminids.dialects.adapters.options import AgentOptions, merged
from geminids.dialects.adapters.run import AgentAdapter, hardened
from geminids.dialects.agent_events.model import AgentEvent
from geminids.errors import GeminidsError, OptionsError

__all__ = ["AgentInstance"]


class AgentInstance:
    """One agent of a team. One run at a time; each goes on where the last has ended, unless it is told otherwise."""

    def __init__(
        self, adapter: AgentAdapter, defaults: AgentOptions | None = None, *, role: str | None = None
    ) -> None:
        self.adapter = adapter
        self.role = role or None
        self.defaults = defaults or AgentOptions()
        of_a_call = [name for name in ("resume", "abort") if getattr(self.defaults, name) is not None]
        if of_a_call:
            raise OptionsError([(name, "belongs to a call, not to an instance") for name in of_a_call])
        self._token: str | None = None
        self._active: object | None = None

    @property
    def resume_token(self) -> str | None:
        """What the next run goes on with."""
        return self._token

    async def run(self, prompt: str, options: AgentOptions | None = None) -> AsyncIterator[AgentEvent]:
        """The events of one run, each with the role. Raises on the first step where another run goes on."""
        if self._active is not None:
            raise GeminidsError(
                f"{self.role or self.adapter.agent} is running already",
                hint="Read that run to its end, or make another instance.",
            )
        self._active = mine = object()
        events = hardened(self.adapter, prompt, merged(self.defaults, options, self._token), self._keep)
        try:
            async for event in events:
                if event.type == "done":
                    self._let_go(
                        mine
                    )  # whoever has the `done` may begin anew, also without another step here
                yield event if event.role == self.role else msgspec.structs.replace(event, role=self.role)
        finally:
            self._let_go(mine)
            await events.aclose()  # type: ignore[attr-defined]

    def _keep(self, token: str | None) -> None:
        self._token = token

    def _let_go(self, mine: object) -> None:
        if self._active is mine:
            self._active = None
