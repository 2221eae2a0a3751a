"""One `gemini --acp` process. It serves sessions. When it ends, all processes that it started end
too.
"""

from __future__ import annotations

import time
from typing import Protocol

import anyio
import anyio.lowlevel
import psutil

from geminids.gemini.protocol.acp.calls import (
    ApiKeyMeta,
    Authenticate,
    ClientInfo,
    Initialize,
    NewSession,
    NewSessionResult,
    new_session_result,
)
from geminids.gemini.protocol.acp.messages import RpcRequest, Unknown, Update
from geminids.gemini.protocol.stderr import StderrNotice, StderrReader
from geminids.launch.plan import WarmPlan
from geminids.log import get_logger, mask_in_logs
from geminids.process.guard import release_run
from geminids.process.line_framer import LineFramer
from geminids.process.marker import Mark
from geminids.process.terminate import end_found, end_leftovers, end_now, end_tree
from geminids.process.tree import Ended
from geminids.redact import Redactor
from geminids.sessions.folders import chat_folders
from geminids.version import __version__
from geminids.warm.acp.connection import AcpConnection, PendingRequest, ProcessGone, RpcFailed
from geminids.warm.acp.spawn import SpawnedCli, idle_dir
from geminids.warm.shell_tracker import ShellTracker

__all__ = ["TurnListener", "WarmProcess"]

_log = get_logger("warm")


class TurnListener(Protocol):
    """A turn that receives the messages of its session, and the stderr of the process."""

    def on_update(self, update: Update | Unknown) -> None: ...
    def on_permission_request(self, request: RpcRequest) -> None: ...
    def on_stderr(self, remarks: list[StderrNotice], text: str) -> None: ...


# A session file that contains no prompt is smaller than this many bytes.
_EMPTY_SESSION_SIZE = 64 * 1024
_PING = "_geminids/ping"
_LONGEST_STDERR_LINE = 1024 * 1024
# After the process has exited, read its pipes for at most this many seconds: a tool may keep the
# pipes open.
_DRAIN = 0.3


class WarmProcess:
    """A CLI process that stays alive and serves sessions. `serve` runs until the process ends."""

    def __init__(self, plan: WarmPlan, cli: SpawnedCli, *, grace: float, line_limit: int) -> None:
        self.plan = plan
        self.redactor = mask_in_logs(Redactor(plan.secrets))
        self.mark: Mark = cli.mark
        self.pid: int = cli.child.pid
        self.shells = ShellTracker(cli.child.pid, cli.mark)
        self.connection = AcpConnection(
            cli.child, self._on_update, self._on_permission_request, line_limit=line_limit
        )
        self.sessions = 0
        """The number of sessions that were opened. The CLI frees their memory only when it ends."""
        self.turns = 0
        self.created_at = time.monotonic()
        self.last_update_at = self.created_at
        self.exit_code: int | None = None
        self.ended: list[Ended] = []
        self.retiring = False
        """Whether the process gets no new chats and stops after its last chat."""
        self._child = cli.child
        self._scratch = cli.scratch
        self._grace = grace
        self._listeners: dict[str, TurnListener] = {}
        """The turns that run, by session id."""
        self._stderr = StderrReader()
        self._stderr_lines = LineFramer(_LONGEST_STDERR_LINE)
        self._gone = anyio.Event()
        self._shutdown = anyio.Event()
        self._initialize: PendingRequest | None = None
        self._session_lock = anyio.Lock()

    def mask(self, secrets: frozenset[str]) -> None:
        """Also mask `secrets` in the texts that come from this process.

        This is needed because chats that share the process may have different keys.
        """
        if not secrets.issubset(self.redactor.secrets):
            self.redactor = mask_in_logs(Redactor(secrets.union(self.redactor.secrets)))

    @property
    def alive(self) -> bool:
        return not self.connection.closed and self._child.exit_code is None

    @property
    def stderr_tail(self) -> str:
        return self._stderr.tail

    async def serve(self) -> None:
        """Run the process until it exits or `stop` is called. Then end all processes that it
        started.
        """
        child = self._child
        try:
            async with anyio.create_task_group() as tasks:
                read = anyio.Event()
                tasks.start_soon(self._read, read)
                tasks.start_soon(self._read_stderr)
                tasks.start_soon(self.connection.pump)
                tasks.start_soon(self._watch)
                await self._shutdown.wait()
                with anyio.CancelScope(shield=True):
                    if child.exit_code is None:
                        child.close_stdin()  # then the CLI exits
                        self.ended = await end_tree(child, self.mark, self._grace)
                    else:
                        with anyio.move_on_after(_DRAIN):
                            await read.wait()
                        self.connection.close()
                        self.ended = await end_leftovers(self.mark, self._grace)
                tasks.cancel_scope.cancel()
        except BaseException:
            self.ended = end_now(child, self.mark)
            raise
        finally:
            self.exit_code = child.exit_code
            self.connection.close()
            child.close()
            release_run(self.mark)
            self._remove_empty_sessions()
            self._scratch.close()
            self._gone.set()

    def _remove_empty_sessions(self) -> None:
        """Remove the empty session file that each ACP process creates when it starts."""
        try:
            for folder in chat_folders(idle_dir(), environ=self.plan.env, quick=True):
                for file in folder.chats.glob("session-*.jsonl"):
                    if (
                        file.stat().st_size < _EMPTY_SESSION_SIZE
                        and b'"type":"gemini"' not in file.read_bytes()
                    ):
                        file.unlink()
        except OSError:
            return  # harmless: the files only use disk space

    async def open(self) -> None:
        """Wait until the CLI has answered `initialize`, the first request.

        Raises `RpcFailed` if the CLI answers with an error, and `ProcessGone` if the process ends
        before it answers.
        """
        if self._initialize is None:
            initialize = Initialize(client_info=ClientInfo(name="geminids", version=__version__))
            # Send `initialize` only once: if this caller is cancelled, others still wait for it.
            self._initialize = self.connection.begin(initialize)
        await self._initialize.wait()
        self._initialize.result()

    async def new_session(self, cwd: str, token: str | None = None) -> NewSessionResult:
        """Open a session in the folder `cwd`, and return the CLI's answer.

        If `token` is not None, the session signs in to the gateway with it. Sessions are opened one
        after the other, because CLI 0.61.0 answers only 8 of 30 requests that are sent at the same
        time.

        Raises `RpcFailed` if the CLI answers with an error, and `ProcessGone` if the process ends
        before it answers.
        """
        async with self._session_lock:
            self.sessions += 1
            if token is not None:
                await self.connection.call(Authenticate(meta=ApiKeyMeta(key=token)))
            return new_session_result(await self.connection.call(NewSession(cwd=cwd)))

    async def is_responsive(self, timeout: float = 5.0) -> bool:
        """Return whether the process answers within `timeout` seconds.

        The test calls an unknown method, which causes no work for the CLI.
        """
        with anyio.move_on_after(timeout):
            try:
                await self.connection.call(_PING)
            except RpcFailed:
                return True
            except ProcessGone:
                return False
            return True
        return False

    def memory(self) -> int:
        """Return the memory of the process in bytes (resident set size); 0 if it has ended."""
        try:
            return int(psutil.Process(self.pid).memory_info().rss)
        except psutil.Error:
            return 0

    @property
    def busy(self) -> bool:
        """Whether a turn runs in this process."""
        return bool(self._listeners)

    @property
    def is_shared(self) -> bool:
        """Whether turns of several chats run in this process."""
        return len(self._listeners) > 1

    def attach(self, session_id: str, listener: TurnListener) -> None:
        self._listeners[session_id] = listener

    def detach(self, session_id: str) -> None:
        self._listeners.pop(session_id, None)

    async def end_shells(self, session_id: str, grace: float, since: float = 0.0) -> list[Ended]:
        """End the shells of a session, with their child processes. Return the ended processes.

        Only shells that started at the time `since` (Unix) or later are ended.
        """
        return await end_found(lambda: self.shells.processes_of(session_id, since), grace)

    def stop(self) -> None:
        """Ask the process to end. Use `wait_gone` to wait for its end."""
        _log.info("stopping the warm process %s", self.pid)
        self.retiring = True
        self._shutdown.set()

    async def wait_gone(self) -> None:
        """Wait until the process, and all processes that it started, have ended."""
        await self._gone.wait()

    async def _read(self, done: anyio.Event) -> None:
        await self.connection.read()
        done.set()

    async def _watch(self) -> None:
        await self._child.wait()
        self._shutdown.set()

    async def _read_stderr(self) -> None:
        while chunk := await self._child.read_stderr():
            block = self._stderr_lines.feed(chunk)
            if block:
                text = self.redactor.block(block).decode("utf-8", "replace")
                remarks = self._stderr.read(text)
                # It is unknown to which session the text on stderr belongs: pass it to all turns.
                for listener in list(self._listeners.values()):
                    listener.on_stderr(remarks, text)
            await anyio.lowlevel.checkpoint()

    def _on_update(self, update: Update | Unknown) -> None:
        self.last_update_at = time.monotonic()
        if update.session_id is None:
            for listener in list(self._listeners.values()):
                listener.on_update(update)
            return
        turn = self._listeners.get(update.session_id)
        if turn is not None:
            turn.on_update(update)

    def _on_permission_request(self, request: RpcRequest) -> None:
        assert request.permission is not None
        listener = self._listeners.get(request.permission.session_id)
        if listener is None:
            self.connection.answer(request, None)
        else:
            listener.on_permission_request(request)
