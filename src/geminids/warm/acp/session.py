"""One ACP session in a warm process, with the state that its turns share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from geminids.errors import GeminidsError
from geminids.gemini.protocol.acp.calls import SetMode, SetModel
from geminids.run.accounting.lease import RunLease
from geminids.sessions.finder import journal_of
from geminids.warm.acp.connection import RpcFailed

if TYPE_CHECKING:
    from geminids.warm.acp.process import WarmProcess

__all__ = ["AcpSession"]


class AcpSession(msgspec.Struct):
    """A session in a warm process, with the state that its turns share."""

    process: WarmProcess
    session_id: str
    cwd: str
    reported_calls: set[str]
    """The ids of the tool calls whose results were already reported, in any turn."""
    lease: RunLease
    default_model: str | None = None
    """The model with which the session started, or None if the CLI did not report it."""
    model: str | None = None
    """The model that `set_model` has set. None means `default_model`."""
    is_model_known: bool = True
    """False while the CLI has not confirmed a change of the model."""
    journal: Path | None = None
    is_broken: bool = False
    """Whether the session cannot be used any more, for example because the CLI ignored a cancel."""

    @property
    def is_usable(self) -> bool:
        return self.process.alive and not self.is_broken

    def find_journal(self, home: str) -> Path | None:
        """Return the path of the session's file. Return None if the CLI has not created it yet."""
        if self.journal is None:
            self.journal = journal_of(self.session_id, self.cwd, home=home, environ=self.process.plan.env)
        return self.journal

    async def set_model(self, model: str | None) -> None:
        """Use this model, beginning with the next prompt. None means `default_model`."""
        model_id = model or self.default_model
        if (model != self.model or not self.is_model_known) and model_id is not None:
            self.is_model_known = False
            await self.process.connection.call(SetModel(session_id=self.session_id, model_id=model_id))
            self.model, self.is_model_known = model, True

    async def set_mode(self, mode: str) -> None:
        """Use this approval mode. Raises `GeminidsError` if the CLI rejects the mode for the
        folder.
        """
        try:
            await self.process.connection.call(SetMode(session_id=self.session_id, mode_id=mode))
        except RpcFailed as failed:
            message = f"the approval mode cannot be {mode}: {failed.error.details or failed.error.message}"
            hint = "Use the mode `default`, or trust the folder with `trust_workspace`."
            raise GeminidsError(message, hint=hint) from None
