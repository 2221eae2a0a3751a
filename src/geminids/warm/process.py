"""One `gemini --acp` process: started, spoken to, watched, and ended with all that it has started."""

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
from geminids.warm.shell_tracker import Shells

if TYPE_CHECKING:
    import anyio

    from geminids.process.tree import Ended

__all__ = ["Listener", "WarmProcess"]

_log = get_logger("warm")


class Listener(Protocol):
    """A turn that hears what its session says, and what the process says besides."""

    def heard(self, update: Update | Unknown) -> None: ...
    def asked(self, ask: Note) -> None: ...
    def remarked(self, remarks: list[Remark], text: str) -> None: ...


# A session in which nothing was said is smaller.
_EMPTY = 64 * 1024
_PING = "_geminids/ping"
_LONGEST_STDERR_LINE = 1024 * 1024
# How long the pipes may stay open after the process is gone, where a tool holds them.
_DRAIN = 0.3


def _idle() -> Path:
    """Where these processes stand: a folder of our own, and always the same, since the CLI keeps record of folders."""
    return Places.of().root / "warm" / "idle"


class WarmProcess:
    """A process of the warm lane. `start` is synchronous, so that the CLI loads while Python still imports."""

    def __init__(self, plan: WarmPlan, *, grace: float, line_limit: int) -> None:
        self.plan = plan
        self.redactor = mask_in_logs(Redactor(plan.secrets))
        self.mark: Mark = new_mark(new_run_id())
        self.sessions = 0
        """How many were opened: their memory comes back with the process alone."""
        self.turns = 0
        self.made_at = time.monotonic()
        self.heard_at = self.made_at
        self.exit_code: int | None = None
        self.ended: list[Ended] = []
        self.retiring = False
        """No new chat begins here; it is ended when its last one has gone."""
        self._grace = grace
        self._line_limit = line_limit
        self._listeners: dict[str, Listener] = {}
        self._stderr = StderrReader()
        self._stderr_lines = LineFramer(_LONGEST_STDERR_LINE)
        self._scratch = Scratch(Places.of())
        self._child: Child | None = None
        self._connection: Connection | None = None
        self._gone: anyio.Event | None = None
        self._over: anyio.Event | None = None
        self._opening: Pending | None = None
        self._one_by_one: anyio.Lock | None = None

    def mask(self, secrets: frozenset[str]) -> None:
        """Mask these too from now on: chats that share this process may have different keys."""
        if not secrets.issubset(self.redactor.secrets):
            self.redactor = mask_in_logs(Redactor(secrets.union(self.redactor.secrets)))

    def start(self) -> None:
        """Spawn it; raises OSError where the system says no."""
        idle = private_dir(_idle())
        guard_run(self.mark)
        try:
            env = with_mark({**self.plan.env, **self._own_home()}, self.mark)
            child = spawn(self.plan.argv, cwd=str(idle), env=env)
        except BaseException:
            release_run(self.mark)
            self._scratch.close()
            raise
        self._child = child
        self.shells = Shells(child.pid, self.mark)
        self._connection = Connection(child, self._on_update, self._on_ask, line_limit=self._line_limit)

    def _own_home(self) -> dict[str, str]:
        """A home of its own where sessions sign in one by one: the CLI writes its settings anew each time, in place,
        and another process could read half of them."""
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
        """See the process through to its end, whoever wants it, and everything of it gone."""
        import anyio

        from geminids.process import terminate as stop  # psutil takes 34 ms: they pass while the CLI loads

        assert self._child is not None
        child = self._child
        self._events()
        assert self._over is not None and self._gone is not None
        try:
            async with anyio.create_task_group() as tasks:
                read = anyio.Event()
                tasks.start_soon(self._read, read)
                tasks.start_soon(self._read_stderr)
                tasks.start_soon(self.connection.pump)
                tasks.start_soon(self._watch)
                await self._over.wait()
                with anyio.CancelScope(shield=True):
                    if child.exit_code is None:
                        child.close_stdin()  # which it takes for its end
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
            self._sweep()
            self._scratch.close()
            self._gone.set()

    def _sweep(self) -> None:
        """Remove the sessions that ACP processes begin for themselves, which nobody ever speaks in."""
        from geminids.sessions.folders import chat_folders

        try:
            for folder in chat_folders(_idle(), environ=self.plan.env, quick=True):
                for file in folder.chats.glob("session-*.jsonl"):
                    if file.stat().st_size < _EMPTY and b'"type":"gemini"' not in file.read_bytes():
                        file.unlink()
        except OSError:
            return  # they are no more than clutter

    def _events(self) -> None:
        import anyio

        if self._over is None:
            self._over, self._gone = anyio.Event(), anyio.Event()

    async def open(self) -> None:
        """Wait until it has introduced itself; raises `Gone` or `RpcFailed`."""
        if self._opening is None:
            from geminids.version import __version__

            hello = Initialize(client_info=ClientInfo(name="geminids", version=__version__))
            # The question is asked once, and outlives a caller who is cancelled: others wait for the same answer.
            self._opening = self.connection.begin(hello)
        await self._opening.wait()
        self._opening.result()

    async def new_session(self, cwd: str, token: str | None = None) -> Opened:
        """Open a session, whose requests come with the `token`; raises `Gone` or `RpcFailed`.

        One after the other: of thirty that are asked for at once, the CLI answers eight, and never the others (0.61.0).
        """
        import anyio

        if self._one_by_one is None:
            self._one_by_one = anyio.Lock()
        async with self._one_by_one:
            self.sessions += 1
            if token is not None:
                await self.connection.call(Authenticate(meta=ApiKey(key=token)))
            return opened_of(await self.connection.call(NewSession(cwd=cwd)))

    async def is_well(self, patience: float = 5.0) -> bool:
        """Whether it answers: to a method that it has not, which costs it nothing."""
        import anyio

        with anyio.move_on_after(patience):
            try:
                await self.connection.call(_PING)
            except RpcFailed:
                return True
            except Gone:
                return False
            return True
        return False

    def memory(self) -> int:
        """Its resident memory in bytes, 0 where it is gone."""
        import psutil

        try:
            return int(psutil.Process(self.pid).memory_info().rss)
        except psutil.Error:
            return 0

    @property
    def busy(self) -> bool:
        """Whether a turn goes on in it."""
        return bool(self._listeners)

    @property
    def is_shared(self) -> bool:
        """Whether turns of several chats go on in it."""
        return len(self._listeners) > 1

    def attach(self, session_id: str, listener: Listener) -> None:
        self._listeners[session_id] = listener

    def detach(self, session_id: str) -> None:
        self._listeners.pop(session_id, None)

    def stop(self) -> None:
        """Ask for its end; `gone` says when all of it is gone."""
        _log.info("stopping the warm process %s", self._child.pid if self._child else "that was not started")
        self.retiring = True
        self._events()
        assert self._over is not None
        self._over.set()

    async def gone(self) -> None:
        self._events()
        assert self._gone is not None
        await self._gone.wait()

    async def _read(self, done: anyio.Event) -> None:
        await self.connection.read()
        done.set()

    async def _watch(self) -> None:
        assert self._child is not None and self._over is not None
        await self._child.wait()
        self._over.set()

    async def _read_stderr(self) -> None:
        import anyio

        assert self._child is not None
        while chunk := await self._child.read_stderr():
            block = self._stderr_lines.feed(chunk)
            if block:
                text = self.redactor.block(block).decode("utf-8", "replace")
                remarks = self._stderr.read(text)
                # Nobody can say whose they are: every turn that goes on hears them.
                for listener in list(self._listeners.values()):
                    listener.remarked(remarks, text)
            await anyio.lowlevel.checkpoint()

    def _on_update(self, update: Update | Unknown) -> None:
        self.heard_at = time.monotonic()
        if update.session_id is None:
            for listener in list(self._listeners.values()):
                listener.heard(update)
            return
        listener_of = self._listeners.get(update.session_id)
        if listener_of is not None:
            listener_of.heard(update)

    def _on_ask(self, ask: Note) -> None:
        assert ask.permission is not None
        listener = self._listeners.get(ask.permission.session_id)
        if listener is None:
            self.connection.answer(ask, None)
        else:
            listener.asked(ask)
