"""Install a release of Gemini CLI, or run a prompt and write a record of the run."""

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
    """Install a release of Gemini CLI from npm. Return the installed CLI, with its `version` and
    `entry`.

    `version` is a version number or an npm tag. Releases are installed side by side in geminids'
    data folder, which `places` can change, and never in the global npm packages. The installed CLI
    is started once to verify its version. To run this release, pass the option `gemini`:
    `run(prompt, gemini="0.61.0")`.

    Raises `InstallFailed` if there is no such version, or if the version cannot be downloaded.
    """
    from geminids.gemini.install.cli import install as install_release  # imported late: runs do not need it

    return install_release(version, places=places)


async def run(
    prompt: str, options: Options | None = None, /, *, record_dir: str | Path | None = None, **fields: Any
) -> Record:
    """Run the agent until it ends, and return the record of the run, even if the run failed or an
    option is invalid.

    `fields` are fields of `Options`, such as `images`, `videos`, `cwd`, `model` and `env_file`.
    Without `options`, `approval` is `yolo` unless you set it: the agent may use all tools, as with
    cakit. With `options`, their `approval` is used.

    The files of the record are written to a new folder. This folder is below `record_dir` or, if
    that is None, below `records` in geminids' data folder. Raises `GeminidsError` if the new folder
    cannot be created.
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
    """Create a run that writes the CLI's output to `files`, but do not start it yet. Raises
    `OptionsError` if an option is invalid or `on_permission` is set."""
    if fields.get("on_permission") is not None:
        problem = (
            "cannot be used for a record: a CLI that can ask for permission does not print "
            "the output that a record needs"
        )
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
        # The caller was cancelled and gets no record, but the files show what happened until then.
        # The run has ended, so all its remaining events are available without waiting.
        while is_entered and (batch := await handle.next_batch()) is not None:
            writer.feed(batch)
        writer.record()
        raise
    return writer.record()
