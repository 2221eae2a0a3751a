"""Gemini CLI as an adapter of SubLang's interface."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from geminids.adapters.sublang.feed import watch
from geminids.adapters.sublang.options import AgentOptions
from geminids.adapters.sublang.policy import is_within, options_for, writable_folders
from geminids.client import open_run
from geminids.dialects.agent_events import Translator
from geminids.dialects.agent_events.model import AgentEvent
from geminids.events.model import PermissionAsked
from geminids.gemini import Availability, is_available
from geminids.gemini.tools import tools_with
from geminids.options import Options

if TYPE_CHECKING:
    from geminids.warm.permissions.decide import OnPermission

__all__ = ["GeminiAdapter"]

_PROBE = 5.0


class GeminiAdapter:
    """Runs Gemini CLI. A call's options override `base`; `on_permission` answers permission requests.

    >>> GeminiAdapter().agent
    'gemini'
    """

    agent = "gemini"

    def __init__(self, base: Options | None = None, *, on_permission: OnPermission | None = None) -> None:
        self._base = base or Options()
        self._on_permission = on_permission

    def is_available(self) -> bool:
        """Whether the CLI starts within five seconds and is a supported release."""
        return self.availability().ok

    def availability(self) -> Availability:
        """Like `is_available`, with the reason."""
        return is_available(self._base.gemini, timeout=_PROBE)

    def run(self, prompt: str, options: AgentOptions | None = None) -> AsyncIterator[AgentEvent]:
        """Yield the events of one run; raises `OptionsError` at once if an option cannot be enforced.

        Read the events to the end or close them, in one task; `run_agent` does that for you.
        """
        requested = options or AgentOptions()
        return self._events(prompt, requested, options_for(requested, self._base))

    async def _events(
        self, prompt: str, requested: AgentOptions, options: Options
    ) -> AsyncIterator[AgentEvent]:
        translator = Translator(
            agent=self.agent,
            disallowed_tools=requested.disallowed_tools or (),
            resume=requested.resume or None,
        )
        async with open_run(prompt, options, on_permission=self._decider(requested, options)) as run:
            unwatch = watch(requested.abort, lambda: run.stop("aborted by the caller"))
            try:
                while (batch := await run.next_batch()) is not None:
                    for event in translator.translate(batch):
                        yield event
            finally:
                unwatch()

    def _decider(self, requested: AgentOptions, options: Options) -> OnPermission | None:
        """Return the permission callback: writable paths decide first, then the caller's own callback."""
        policy = requested.permissions
        folders = writable_folders(policy, options.cwd)
        callback = self._on_permission
        allows_writes = policy is not None and policy.file_write == "allow"
        if folders is None or (callback is None and not allows_writes):
            return callback

        async def decide(request: PermissionAsked) -> object:
            if request.tool in tools_with("file_write"):
                if not is_within(request, folders):
                    return "deny"
                if allows_writes:
                    return "allow"
            if callback is None:
                return "deny"
            answer = callback(request)
            return await answer if inspect.isawaitable(answer) else answer

        return decide  # type: ignore[return-value]
