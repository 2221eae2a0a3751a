"""One `gemini --acp` process: starts it, routes its messages, and ends it with all its children."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from geminids.config.paths import Places, private_dir
from geminids.gemini.protocol.acp.calls import (
    ApiKey,
    Authenticate,
    ClientInfo,
    Initialize,
    NewSession,
    Opened,
    opened_of,
)
from geminids.gemini.protocol.acp.messages import Note, Unknown, Update
from geminids.gemini.protocol.stderr import Remark, StderrReader
from geminids.ids import new_run_id
from geminids.launch.plan import WarmPlan
from geminids.launch.scratch import Scratch
from geminids.log import get_logger, mask_in_logs
from geminids.process.child import Child, spawn
from geminids.process.guard import guard_run, release_run
from geminids.process.line_framer import LineFramer
from geminids.process.marker import Mark, new_mark, with_mark
from geminids.redact import Redactor
from geminids.warm.connection import Connection, Gone, Pending, RpcFailed
from geminids.warm.shell_tracker import ShellTracker

if TYPE_CHECKING:
    import anyio

    from geminids.process.tree import Ended

__all__ = ["Listener", "WarmProcess"]

_log = get_logger("warm")


class Listener(Protocol):
    """A turn that receives the messages of its session, and the stderr of the process."""

    def on_update(self, update: Update | Unknown) -> None: ...
    def on_permission_request(self, ask: Note) -> None: ...
    def on_stderr(self, remarks: list[Remark], text: str) -> None: ...


# The file of a session without prompts is smaller.
_EMPTY_SESSION_SIZE = 64 * 1024
_PING = "_geminids/ping"
_LONGEST_STDERR_LINE = 1024 * 1024
# Seconds to keep reading after the process exited: a tool may hold its pipes open.
_DRAIN = 0.3


def _idle_dir() -> Path:
    """The working directory of warm processes. Always the same one: the CLI remembers each directory."""
    return Places.of().root / "warm" / "idle"


class WarmProcess:
    """A warm process. `start` is synchronous, so that the CLI loads while Python still imports."""

    def __init__(self, plan: WarmPlan, *, grace: float, line_limit: int) -> None:
        self.plan = plan
        self.redactor = mask_in_logs(Redactor(plan.secrets))
        self.mark: Mark = new_mark(new_run_id())
        self.sessions = 0
        """The number of sessions opened. The CLI frees their memory only when the process ends."""
        self.turns = 0
        self.created_at = time.monotonic()
        self.last_update_at = self.created_at
        self.exit_code: int | None = None
        self.ended: list[Ended] = []
        self.retiring = False
        """The process gets no new chats and stops after its last one."""
        self._grace = grace
        self._line_limit = line_limit
        self._listeners: dict[str, Listener] = {}
        self._stderr = StderrReader()
        self._stderr_lines = LineFramer(_LONGEST_STDERR_LINE)
        self._scratch = Scratch(Places.of())
        self._child: Child | None = None
        self._connection: Connection | None = None
        self._gone: anyio.Event | None = None
        self._shutdown: anyio.Event | None = None
        self._opening: Pending | None = None
        self._session_lock: anyio.Lock | None = None

    def mask(self, secrets: frozenset[str]) -> None:
        """Also redact these secrets: chats that share this process may have different keys."""
        if not secrets.issubset(self.redactor.secrets):
            self.redactor = mask_in_logs(Redactor(secrets.union(self.redactor.secrets)))

    def start(self) -> None:
        """Spawn the process; raises OSError if that fails."""
        idle = private_dir(_idle_dir())
        guard_run(self.mark)
        try:
            env = with_mark({**self.plan.env, **self._own_home()}, self.mark)
            child = spawn(self.plan.argv, cwd=str(idle), env=env)
        except BaseException:
            release_run(self.mark)
            self._scratch.close()
            raise
        self._child = child
        self.shells = ShellTracker(child.pid, self.mark)
        self._connection = Connection(
            child, self._on_update, self._on_permission_request, line_limit=self._line_limit
        )

    def _own_home(self) -> dict[str, str]:
        """Give the process its own home if each session authenticates: the CLI then rewrites its settings in place,
        and another process could read a half-written file."""
        if not self.plan.signs_in_sessions:
            return {}
        import shutil

        home = self._scratch.folder / "home"
        shutil.copytree(self.plan.env["GEMINI_CLI_HOME"], home, symlinks=True)
        return {"GEMINI_CLI_HOME": str(home)}

    @property
    def pid(self) -> int:
        assert self._child is not None
        return self._child.pid

    @property
    def connection(self) -> Connection:
        assert self._connection is not None
        return self._connection

    @property
    def alive(self) -> bool:
        return self._child is not None and not self.connection.closed and self._child.exit_code is None

    @property
    def stderr_tail(self) -> str:
        return self._stderr.tail

    async def serve(self) -> None:
        """Run the process until it exits or `stop` is called, then end everything that it started."""
        import anyio

        from geminids.process import terminate as stop  # psutil: 34 ms, while the CLI loads

        assert self._child is not None
        child = self._child
        self._make_events()
        assert self._shutdown is not None and self._gone is not None
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
                        child.close_stdin()  # the CLI exits at the end of stdin
                        self.ended = await stop.end_tree(child, self.mark, self._grace)
                    else:
                        with anyio.move_on_after(_DRAIN):
                            await read.wait()
                        self.connection.close()
                        self.ended = await stop.end_leftovers(self.mark, self._grace)
                tasks.cancel_scope.cancel()
        except BaseException:
            self.ended = stop.end_now(child, self.mark)
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
        """Remove the empty session that each ACP process creates at its start."""
        from geminids.sessions.folders import chat_folders

        try:
            for folder in chat_folders(_idle_dir(), environ=self.plan.env, quick=True):
                for file in folder.chats.glob("session-*.jsonl"):
                    if (
                        file.stat().st_size < _EMPTY_SESSION_SIZE
                        and b'"type":"gemini"' not in file.read_bytes()
                    ):
                        file.unlink()
        except OSError:
            return  # harmless: the files are only clutter

    def _make_events(self) -> None:
        import anyio

        if self._shutdown is None:
            self._shutdown, self._gone = anyio.Event(), anyio.Event()

    async def open(self) -> None:
        """Wait for the answer to `initialize`; raises `Gone` or `RpcFailed`."""
        if self._opening is None:
            from geminids.version import __version__

            initialize = Initialize(client_info=ClientInfo(name="geminids", version=__version__))
            # Sent once. If this caller is cancelled, others still wait for the same answer.
            self._opening = self.connection.begin(initialize)
        await self._opening.wait()
        self._opening.result()

    async def new_session(self, cwd: str, token: str | None = None) -> Opened:
        """Open a session whose requests carry `token`; raises `Gone` or `RpcFailed`.

        Opens one session at a time: of thirty concurrent requests, CLI 0.61.0 answers eight and never the others.
        """
        import anyio

        if self._session_lock is None:
            self._session_lock = anyio.Lock()
        async with self._session_lock:
            self.sessions += 1
            if token is not None:
                await self.connection.call(Authenticate(meta=ApiKey(key=token)))
            return opened_of(await self.connection.call(NewSession(cwd=cwd)))

    async def is_responsive(self, timeout: float = 5.0) -> bool:
        """Whether the process answers a call to an unknown method, which costs it nothing."""
        import anyio

        with anyio.move_on_after(timeout):
            try:
                await self.connection.call(_PING)
            except RpcFailed:
                return True
            except Gone:
                return False
            return True
        return False

    def memory(self) -> int:
        """Resident memory in bytes; 0 if the process is gone."""
        import psutil

        try:
            return int(psutil.Process(self.pid).memory_info().rss)
        except psutil.Error:
            return 0

    @property
    def busy(self) -> bool:
        """Whether a turn is running in it."""
        return bool(self._listeners)

    @property
    def is_shared(self) -> bool:
        """Whether turns of several chats are running in it."""
        return len(self._listeners) > 1

    def attach(self, session_id: str, listener: Listener) -> None:
        self._listeners[session_id] = listener

    def detach(self, session_id: str) -> None:
        self._listeners.pop(session_id, None)

    def stop(self) -> None:
        """Request the end of the process; `gone` waits for it."""
        _log.info("stopping the warm process %s", self._child.pid if self._child else "that was not started")
        self.retiring = True
        self._make_events()
        assert self._shutdown is not None
        self._shutdown.set()

    async def gone(self) -> None:
        """Wait until the process and everything that it started has ended."""
        self._make_events()
        assert self._gone is not None
        await self._gone.wait()

    async def _read(self, done: anyio.Event) -> None:
        await self.connection.read()
        done.set()

    async def _watch(self) -> None:
        assert self._child is not None and self._shutdown is not None
        await self._child.wait()
        self._shutdown.set()

    async def _read_stderr(self) -> None:
        import anyio

        assert self._child is not None
        while chunk := await self._child.read_stderr():
            block = self._stderr_lines.feed(chunk)
            if block:
                text = self.redactor.block(block).decode("utf-8", "replace")
                remarks = self._stderr.read(text)
                # stderr does not name a session: pass it to every running turn.
                for listener in list(self._listeners.values()):
                    listener.on_stderr(remarks, text)
            await anyio.lowlevel.checkpoint()

    def _on_update(self, update: Update | Unknown) -> None:
        self.last_update_at = time.monotonic()
        if update.session_id is None:
            for listener in list(self._listeners.values()):
                listener.on_update(update)
            return
        owner = self._listeners.get(update.session_id)
        if owner is not None:
            owner.on_update(update)

    def _on_permission_request(self, ask: Note) -> None:
        assert ask.permission is not None
        listener = self._listeners.get(ask.permission.session_id)
        if listener is None:
            self.connection.answer(ask, None)
        else:
            listener.on_permission_request(ask)
