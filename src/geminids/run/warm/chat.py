"""A chat: one conversation whose turns are prompts in a session of a warm process."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from geminids.errors import GeminidsError
from geminids.events.cost import Cost
from geminids.events.model import Usage
from geminids.options import Approval, Options, make_options
from geminids.run.result import Result
from geminids.run.stopping import see_through
from geminids.run.warm.permission import OnPermission
from geminids.run.warm.seating import Seating
from geminids.run.warm.sending import Sending

if TYPE_CHECKING:
    import anyio

    from geminids.run.warm.pool import Pool

__all__ = ["Chat"]

# What may be said anew with each prompt; all else belongs to the chat.
_OF_A_TURN = (
    "files",
    "grace",
    "idle_timeout",
    "images",
    "instructions",
    "literal",
    "max_turns",
    "permission_timeout",
    "stall_after",
    "template",
    "timeout",
    "variables",
    "videos",
)


class Chat:
    """One conversation. Made by `Pool.chat`; leaving its block ends its turn and the shells that it has left."""

    def __init__(
        self,
        pool: Pool,
        options: Options,
        on_permission: OnPermission | None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.on_permission = on_permission
        self.usage: list[Usage] = []
        """The tokens of each turn so far."""
        self.costs: list[Cost] = []
        """What each turn so far has cost."""
        self.discarded: list[int] = []
        """The numbers of the requests whose answers the CLI discarded."""
        self.seating = Seating(pool, options, environ, asks=on_permission is not None)
        self._pool = pool
        self._sendings: set[Sending] = set()
        self._turns: anyio.Lock | None = None
        self._open = False
        self._closed: anyio.Event | None = None

    @property
    def options(self) -> Options:
        return self.seating.options

    @property
    def model(self) -> str | None:
        return self.options.model

    @property
    def mode(self) -> Approval:
        return self.options.approval

    @property
    def session_id(self) -> str | None:
        """The session that the conversation is in now; after a handover it is another one."""
        return self.seating.session_id

    async def __aenter__(self) -> Chat:
        self._open = True
        await self.seating.begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def send(self, prompt: str, **fields: Any) -> Sending:
        """A prompt: iterate what this returns for its events. `fields` are options of this turn alone.

        One turn goes on at a time; a second one waits for the first.
        """
        strange = [name for name in fields if name not in _OF_A_TURN]
        if strange:
            raise GeminidsError(
                f"{', '.join(strange)}: belongs to the chat, not to one prompt",
                hint="Say it when the chat is opened, or use set_model and set_mode.",
            )
        if not self._open:
            raise GeminidsError(
                "the chat is not open", hint="Use it within `async with pool.chat(…) as chat`."
            )
        sending = Sending(self, prompt, make_options(self.options, **fields) if fields else self.options)
        self._sendings.add(sending)
        self._pool.begin(self._drive, sending)
        return sending

    async def ask(self, prompt: str, **fields: Any) -> Result:
        """A prompt to its end. Never raises for how that was."""
        async with self.send(prompt, **fields) as sending:
            async for _ in sending:
                pass
        return sending.result

    async def _drive(self, sending: Sending) -> None:
        try:
            await sending.drive()
        finally:
            self._sendings.discard(sending)
            self._pool.turn_ended(self.seating.process)

    async def set_model(self, model: str) -> None:
        """Another model from the next prompt on."""
        async with self.turns:
            await self.seating.set_model(model)

    async def set_mode(self, mode: Approval) -> None:
        """Another approval mode from the next prompt on; raises `GeminidsError` where the folder forbids it."""
        async with self.turns:
            await self.seating.set_mode(mode)

    def stop(self) -> None:
        """Ask the turn that goes on, and those that wait behind it, to end."""
        for sending in self._sendings:
            sending.stop()

    async def close(self) -> None:
        """End the turn that goes on, the shells that are left, and let the session go."""
        import anyio

        if self._open:
            self._open = False
            self._closed = anyio.Event()
            self._pool.begin(self._close, self._closed)
        if self._closed is not None:
            await see_through(self._closed)

    async def _close(self, over: anyio.Event) -> None:
        import anyio

        try:
            with anyio.CancelScope(shield=True):
                self.stop()
                for sending in list(self._sendings):
                    await sending.done.wait()
                await self.seating.leave()
                self.seating.close()
        finally:
            self._pool.closed(self)
            over.set()

    # What a turn needs of its chat.

    @property
    def turns(self) -> anyio.Lock:
        import anyio

        if self._turns is None:
            self._turns = anyio.Lock()
        return self._turns

    def went_on(self, prompt: str, result: Result) -> None:
        """A turn was taken on the headless lane."""
        self.seating.session_id = result.session_id or self.session_id
        self.ended(prompt, result)

    def ended(self, prompt: str, result: Result) -> None:
        if result.usage is not None:
            self.usage.append(result.usage)
        if result.cost is not None:
            self.costs.append(result.cost)
        self.discarded += result.discarded
        self.seating.ended(prompt, result)
