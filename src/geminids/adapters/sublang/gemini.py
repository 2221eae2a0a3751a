"""SubLang's adapter for Gemini CLI, and functions that run the CLI without an adapter object."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from geminids.adapters.sublang.agent import run_adapter
from geminids.adapters.sublang.denials import NOBODY, Denials
from geminids.adapters.sublang.feed import watch
from geminids.adapters.sublang.options import AgentOptions
from geminids.adapters.sublang.policy import is_within, options_for, writable_folders
from geminids.client import open_run
from geminids.dialects.agent_events import Translator
from geminids.dialects.agent_events.done import STATUSES
from geminids.dialects.agent_events.model import AgentEvent
from geminids.events.model import PermissionAsked
from geminids.gemini import Availability
from geminids.gemini import is_available as check_availability
from geminids.gemini.protocol.outcome.judge import ProcessEvidence, without_result
from geminids.gemini.tools import tools_with
from geminids.options import Options
from geminids.warm.permissions.answer import PermissionAnswer

if TYPE_CHECKING:
    from geminids.warm.permissions.answer import OnPermission

__all__ = ["GeminiAdapter", "done_status", "is_available", "run"]

_PROBE = 5.0
# Seconds, in addition to the grace periods, to end a run after an abort and to report its usage.
_ABORT_SLACK = 10.0


class GeminiAdapter:
    """Runs Gemini CLI. One adapter can run many prompts at the same time.

    `base` has geminids options for all runs; the options of a run override them. `on_permission` is
    called for each tool call that needs permission. Without `on_permission`, these calls are
    denied.

    >>> GeminiAdapter().agent
    'gemini'
    """

    agent = "gemini"

    def __init__(self, base: Options | None = None, *, on_permission: OnPermission | None = None) -> None:
        self._base = base or Options()
        self._on_permission = on_permission

    @property
    def abort_timeout(self) -> float:
        """How many seconds `run_agent` waits after an abort for the event `done` of the run.

        The run emits `done` when all its processes have ended, which takes up to two grace periods.
        """
        return 2 * self._base.grace + _ABORT_SLACK

    def is_available(self, *, timeout: float = _PROBE) -> bool:
        """Return whether the CLI starts within `timeout` seconds and is a supported release.

        After the check, no process and no file is left.
        """
        return self.availability(timeout=timeout).ok

    def availability(self, *, timeout: float = _PROBE) -> Availability:
        """Return whether the CLI can be run, and a text: which CLI was found, or why it cannot be
        run."""
        return check_availability(self._base.gemini, timeout=timeout)

    def run(self, prompt: str, options: AgentOptions | None = None) -> AsyncIterator[AgentEvent]:
        """Return an async iterator of the events of one run. Raises `OptionsError` if an option is
        invalid or cannot be enforced.

        The task that starts to read the events must also read them to the end or close the
        iterator. `run_agent(adapter, prompt)` does not have this restriction.
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
        denials = Denials(requested, can_ask=self._on_permission is not None)
        async with open_run(prompt, options, on_permission=self._decider(requested, options)) as run:
            unwatch = watch(requested.abort_signal, lambda: run.stop("aborted by the caller"))
            try:
                while (batch := await run.next_batch()) is not None:
                    for event in translator.translate(batch):
                        yield denials.explain(event)
            finally:
                unwatch()

    def _decider(self, requested: AgentOptions, options: Options) -> OnPermission | None:
        """Return the callback that answers permission requests; None if there is none.

        If the policy has `writable_paths`, these paths decide whether a file may be changed. The
        caller's callback answers all other requests.
        """
        policy = requested.permissions
        folders = writable_folders(policy, options.cwd)
        callback = self._on_permission
        allows_writes = policy is not None and policy.file_write == "allow"
        if folders is None or (callback is None and not allows_writes):
            return callback

        async def decide(request: PermissionAsked) -> object:
            if request.tool in tools_with("file_write"):
                if not is_within(request, folders):
                    return PermissionAnswer("deny", "rule", "the file is not in permissions.writable_paths")
                if allows_writes:
                    return PermissionAnswer("allow", "rule", "the file is in permissions.writable_paths")
            if callback is None:
                return PermissionAnswer("deny", "rule", f"{request.tool} needs permission, but {NOBODY}")
            answer = callback(request)
            return await answer if inspect.isawaitable(answer) else answer

        return decide  # type: ignore[return-value]


def run(prompt: str, options: AgentOptions | None = None) -> AsyncIterator[AgentEvent]:
    """Run Gemini CLI and return the events of the run. The last event is `done`, and it occurs only
    once.

    Closing the iterator stops the run.
    """
    return run_adapter(GeminiAdapter(), prompt, options or AgentOptions())


def is_available(*, timeout: float = _PROBE) -> bool:
    """Return whether Gemini CLI can be run. The check takes at most `timeout` seconds."""
    return GeminiAdapter().is_available(timeout=timeout)


def done_status(exit_code: int, *, has_result: bool = True) -> str:
    """Return the status that the event `done` contains for an exit code of Gemini CLI.

    Exit code 0 is a success only if the CLI also printed its `result` line (`has_result`).

    >>> [done_status(code) for code in (0, 1, 42, 53)]
    ['success', 'error', 'error', 'max_turns']
    >>> done_status(0, has_result=False)
    'error'
    """
    if exit_code == 0 and has_result:
        return "success"
    return STATUSES[without_result(ProcessEvidence(exit_code=exit_code)).outcome]
