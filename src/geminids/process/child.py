"""Start a child process with pipes, read and write the pipes, and send signals to the process.

On POSIX systems, the child gets a new process session. The pipes are non-blocking and work with
asyncio and trio.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence

from geminids.log import get_logger

__all__ = ["Child", "spawn", "taskkill"]

_log = get_logger("process")


def taskkill(pid: int, *, force: bool) -> tuple[str, ...]:
    """Return the Windows command that ends a process and all its descendants.

    If `force` is true, the processes get no time to clean up. Raises `ValueError` if `pid` is not
    positive.

    The descendants must end too. A `.cmd` script starts the CLI as its child process (node). If
    only the script ended, the CLI would continue.

    >>> taskkill(42, force=True)
    ('taskkill', '/PID', '42', '/T', '/F')
    """
    if pid <= 0:
        raise ValueError(f"{pid} is not a process id")
    return ("taskkill", "/PID", str(pid), "/T", *(("/F",) if force else ()))


# Size of the stdout pipe in bytes: a larger pipe means fewer reads. Only Linux can set the size,
# and it may refuse.
_PIPE_SIZE = 1024 * 1024
_READ_SIZE = 256 * 1024


class Child:
    """A running child process. This class reads and writes the pipes of the process, waits for its
    exit, and sends signals to its process group.

    The class uses `subprocess.Popen` with non-blocking pipes, not the child processes of an event
    loop. So the process can be started before an event loop is imported, and both asyncio and trio
    work. A pidfd (a file descriptor for a process) reports the exit, so the exit is noticed even if
    a grandchild keeps the pipes open.
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
        _enlarge_pipe(self._stdout)

    @property
    def exit_code(self) -> int | None:
        """The exit code of the process. It is negative if a signal ended the process, and None
        while the process runs.
        """
        return self._popen.poll()

    async def wait(self) -> int:
        """Wait until this process exits, and return its exit code. The pipes may stay open,
        because descendants of the process can still use them.
        """
        import anyio

        try:
            pidfd = os.pidfd_open(self.pid)
        except (AttributeError, OSError):
            # There is no pidfd on macOS and on old kernels: wait in a thread.
            return await anyio.to_thread.run_sync(self._popen.wait, abandon_on_cancel=True)
        try:
            await anyio.wait_readable(pidfd)
        finally:
            os.close(pidfd)
        return self._popen.wait()

    async def read_stdout(self) -> bytes:
        """Wait for the next chunk of stdout, and return it. Empty bytes mean the end of stdout."""
        return await _read(self._stdout)

    async def read_stderr(self) -> bytes:
        """Wait for the next chunk of stderr, and return it. Empty bytes mean the end of stderr."""
        return await _read(self._stderr)

    def stdout_now(self) -> bytes:
        """Return the bytes that can be read from stdout without waiting. Return empty bytes if
        there are none.
        """
        return _read_now(self._stdout)

    def stderr_now(self) -> bytes:
        """Return the bytes that can be read from stderr without waiting. Return empty bytes if
        there are none.
        """
        return _read_now(self._stderr)

    def write_now(self, data: bytes) -> bytes:
        """Write as much of `data` to the child's stdin as the pipe accepts without waiting. Return
        the bytes that were not written.

        If stdin is closed, discard `data` and return empty bytes.
        """
        if self._stdin is None:
            return b""
        try:
            return data[os.write(self._stdin, data) :]
        except BlockingIOError:
            return data
        except BrokenPipeError:
            # The child closed its stdin or exited. Its exit code explains more than this error.
            return b""

    async def feed(self, data: bytes) -> None:
        """Write all of `data` to the child's stdin, then close stdin. The CLI starts its work only
        when stdin ends.
        """
        await self.write(data)
        self.close_stdin()

    async def write(self, data: bytes) -> None:
        """Write all of `data` to the child's stdin. If stdin is closed during the write, the rest
        of `data` is discarded.
        """
        import anyio

        view = memoryview(data)
        while view and self._stdin is not None:
            await anyio.wait_writable(self._stdin)
            view = self._write_chunk(view)

    def _write_chunk(self, view: memoryview) -> memoryview:
        chunk = bytes(view[:_READ_SIZE])
        unwritten = self.write_now(chunk)
        return view[len(chunk) - len(unwritten) :]

    def close_stdin(self) -> None:
        self._close(0)

    def close(self) -> None:
        """Close all pipes. Unread data is lost."""
        for index in range(3):
            self._close(index)

    def _close(self, index: int) -> None:
        name = ("_stdin", "_stdout", "_stderr")[index]
        if getattr(self, name) is not None:
            setattr(self, name, None)
            self._files[index].close()

    def signal_group(self, name: str) -> bool:
        """Send the signal `name` ("TERM" or "KILL") to the child's process group. Return whether
        the signal was sent.

        If the child has exited, no signal is sent, because another process may have the same
        process id now.
        """
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
    """Start a child process in a new process session. `argv` is the command line, `cwd` the working
    folder, and `env` the environment. Raises `OSError` if the process cannot be started.
    """
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
        # Let other tasks run: if the child writes fast, each read finds data, and this function
        # would never wait.
        await anyio.lowlevel.checkpoint()
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


def _enlarge_pipe(fd: int) -> None:
    try:
        import fcntl  # not available on Windows

        fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, _PIPE_SIZE)
    except (ImportError, AttributeError, OSError):
        pass
