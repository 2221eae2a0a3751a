"""Install a release of Gemini CLI; run a prompt, and write a record of the run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from geminids.adapters.cakit.files import RecordFiles, RecordWriter, refused_record
from geminids.client import open_run
from geminids.dialects.record import Record
from geminids.errors import OptionsError
from geminids.options import Options

if TYPE_CHECKING:
    from pathlib import Path

    from geminids.config.paths import Places
    from geminids.gemini import Gemini
    from geminids.run.run import Run

__all__ = ["install", "run", "run_sync"]


def install(version: str = "latest", *, places: Places | None = None) -> Gemini:
    """Install an npm version or tag of Gemini CLI. Return the CLI, with its `version` and `entry`.

    Releases are installed side by side in `places`, geminids' data folder, never in the global npm
    packages. The installed CLI is started once to verify its version. To run this release, pass the
    option `gemini`: `run(prompt, gemini="0.61.0")`.

    Raises `InstallFailed` if there is no such version, or if the version cannot be downloaded.
    """
    from geminids.gemini.install.cli import install as install_release  # imported late: runs do not need it

    return install_release(version, places=places)


async def run(
    prompt: str, options: Options | None = None, /, *, record_dir: str | Path | None = None, **fields: Any
) -> Record:
    """Run the agent to its end and return the record of the run, also if the run failed.

    `fields` are fields of `Options`, such as `images`, `videos`, `cwd`, `model` and `env_file`.
    Without `options`, the agent may use all tools, as with cakit: `approval` is `yolo` unless you
    set it. With `options`, their `approval` is used.

    The files of the record are in a new folder below `record_dir` or, if that is None, below
    `records` in geminids' data folder. Raises `GeminidsError` if the new folder cannot be created.
    """
    files = RecordFiles(record_dir)
    try:
        handle = _open(prompt, options, fields, files)
    except OptionsError as error:
        return refused_record(files, error)
    return await _drive(handle, files)


def run_sync(
    prompt: str, options: Options | None = None, /, *, record_dir: str | Path | None = None, **fields: Any
) -> Record:
    """Run the agent as `run` does, in a program without async. This also works inside a running
    event loop.

    In this example, the run is refused because its prompt is empty:

    >>> record = run_sync("", cwd=".", record_dir=getfixture("tmp_path"))
    >>> record.exit_code, record.error
    (2, 'bad_prompt: the prompt is empty')
    """
    files = RecordFiles(record_dir)
    try:
        handle = _open(prompt, options, fields, files)
    except OptionsError as error:
        return refused_record(files, error)
    handle.launch()
    from anyio.from_thread import start_blocking_portal  # imported while the CLI loads

    with start_blocking_portal() as portal:
        return portal.call(_drive, handle, files)


def _open(prompt: str, options: Options | None, fields: dict[str, Any], files: RecordFiles) -> Run:
    """Open a run that writes the CLI's output to `files`. Raises `OptionsError`."""
    if fields.get("on_permission") is not None:
        problem = "cannot be used here: a process that asks for permission does not print its output"
        raise OptionsError([("on_permission", problem)])
    if options is None:
        fields = {"approval": "yolo", **fields}
    if not isinstance(options, Options) or options.telemetry is None:
        fields = {"telemetry": str(files.telemetry), **fields}
    return open_run(prompt, options, on_line=files.add_stdout, on_stderr=files.add_stderr, **fields)


async def _drive(handle: Run, files: RecordFiles) -> Record:
    writer = RecordWriter(files, handle)
    is_entered = False
    try:
        async with handle:
            is_entered = True
            while (batch := await handle.next_batch()) is not None:
                writer.feed(batch)
    except BaseException:
        # The caller was cancelled and gets no record, but the files say what happened until then.
        # The run has ended: all its events are there, and nothing waits.
        while is_entered and (batch := await handle.next_batch()) is not None:
            writer.feed(batch)
        writer.record()
        raise
    return writer.record()
