"""One child process in its own session, with raw pipes that any event loop can wait on."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence

from geminids.log import get_logger

__all__ = ["Child", "spawn", "taskkill"]

_log = get_logger("process")


def taskkill(pid: int, *, force: bool) -> tuple[str, ...]:
    """The command that ends a process and its tree: the `.cmd` shim alone would leave its node behind.

    >>> taskkill(42, force=True)
    ('taskkill', '/PID', '42', '/T', '/F')
    """
    if pid <= 0:
        raise ValueError(f"{pid} is no process id")
    return ("taskkill", "/PID", str(pid), "/T", *(("/F",) if force else ()))


# Fewer and larger reads; Linux alone can set it, and may refuse.
_PIPE_SIZE = 1024 * 1024
_READ_SIZE = 256 * 1024


class Child:
    """A running child: read its pipes, feed it, wait for it, signal its group.

    This is subprocess.Popen with non-blocking pipes rather than the event loop's own process transport: it can
    be spawned before an event loop is even imported, it works the same on asyncio and trio, and its exit is
    seen by a pidfd, so that a grandchild which holds the pipes cannot hide it.
    """

    def __init__(self, popen: subprocess.Popen[bytes]) -> None:
        assert popen.stdin and popen.stdout and popen.stderr
        self._popen = popen
        self.pid = popen.pid
        self._stdin: int | None = popen.stdin.fileno()
        self._stdout: int | None = popen.stdout.fileno()
        self._stderr: int | None = popen.stderr.fileno()
        self._files = (popen.stdin, popen.stdout, popen.stderr)
        for fd in (self._stdin, self._stdout, self._stderr):
            os.set_blocking(fd, False)
        _widen(self._stdout)

    @property
    def exit_code(self) -> int | None:
        """The exit code, negative for a signal, None while it runs."""
        return self._popen.poll()

    async def wait(self) -> int:
        """Wait for the exit of this very process, whoever else holds its pipes."""
        import anyio

        try:
            pidfd = os.pidfd_open(self.pid)
        except (AttributeError, OSError):
            # macOS, or an old kernel: a thread that waits.
            return await anyio.to_thread.run_sync(self._popen.wait, abandon_on_cancel=True)
        try:
            await anyio.wait_readable(pidfd)
        finally:
            os.close(pidfd)
        return self._popen.wait()

    async def read_stdout(self) -> bytes:
        """The next chunk of stdout; empty at its end."""
        return await _read(self._stdout)

    async def read_stderr(self) -> bytes:
        """The next chunk of stderr; empty at its end."""
        return await _read(self._stderr)

    def stdout_now(self) -> bytes:
        """What stdout holds, without waiting; empty where it holds nothing."""
        return _read_now(self._stdout)

    def stderr_now(self) -> bytes:
        """What stderr holds, without waiting; empty where it holds nothing."""
        return _read_now(self._stderr)

    def write_now(self, data: bytes) -> bytes:
        """Write what fits into the pipe at once; return the rest."""
        if self._stdin is None:
            return b""
        try:
            return data[os.write(self._stdin, data) :]
        except BlockingIOError:
            return data
        except BrokenPipeError:
            # The child has closed its stdin (or died): how it ends tells more than this.
            return b""

    async def feed(self, data: bytes) -> None:
        """Write all of `data`, then close stdin: the CLI waits for its end."""
        await self.write(data)
        self.close_stdin()

    async def write(self, data: bytes) -> None:
        """Write all of `data`."""
        import anyio

        view = memoryview(data)
        while view and self._stdin is not None:
            await anyio.wait_writable(self._stdin)
            view = self._push(view)

    def _push(self, view: memoryview) -> memoryview:
        piece = bytes(view[:_READ_SIZE])
        left = self.write_now(piece)
        return view[len(piece) - len(left) :]

    def close_stdin(self) -> None:
        self._close(0)

    def close(self) -> None:
        """Close all pipes; what is still in them is given up."""
        for which in range(3):
            self._close(which)

    def _close(self, which: int) -> None:
        name = ("_stdin", "_stdout", "_stderr")[which]
        if getattr(self, name) is not None:
            setattr(self, name, None)
            self._files[which].close()

    def signal_group(self, name: str) -> bool:
        """Signal the child's own group, while its pid cannot have been given to a stranger."""
        if self._popen.poll() is not None:
            return False
        if os.name == "nt":
            return (
                subprocess.run(taskkill(self.pid, force=name == "KILL"), capture_output=True).returncode == 0
            )
        try:
            os.killpg(self.pid, signal.SIGKILL if name == "KILL" else signal.SIGTERM)
        except OSError:
            return False
        return True


def spawn(argv: Sequence[str], *, cwd: str, env: Mapping[str, str]) -> Child:
    """Start a child in its own session; raises OSError where the system says no."""
    popen = subprocess.Popen(
        argv,
        cwd=cwd,
        env=dict(env),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        start_new_session=True,
    )
    _log.info("spawned pid %d in %s: %s", popen.pid, cwd, " ".join(argv))
    return Child(popen)


async def _read(fd: int | None) -> bytes:
    import anyio

    while fd is not None:
        try:
            return os.read(fd, _READ_SIZE)
        except BlockingIOError:
            await anyio.wait_readable(fd)
        except OSError:
            return b""
    return b""


def _read_now(fd: int | None) -> bytes:
    try:
        return os.read(fd, _READ_SIZE) if fd is not None else b""
    except OSError:
        return b""


def _widen(fd: int) -> None:
    try:
        import fcntl  # none on Windows

        fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, _PIPE_SIZE)
    except (ImportError, AttributeError, OSError):
        pass
