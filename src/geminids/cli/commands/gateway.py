"""`geminids gateway`: serve the Gemini API on 127.0.0.1 for other programs."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import click

from geminids.errors import GeminidsError
from geminids.gateway import Gateway, Request, Upstream, load_script, offline_scene
from geminids.gateway.cassette.cassette import load_cassette
from geminids.gateway.cassette.recording import Recording
from geminids.gateway.cassette.replay import Replaying
from geminids.gateway.forward.credential import ApiKey
from geminids.gateway.forward.forward import GEMINI_URL, Forwarding
from geminids.gateway.forward.network_settings import read_network_settings
from geminids.gateway.lease import Lease, Leases
from geminids.gateway.messages import GatewayMessage
from geminids.gateway.metering import MeteredUpstream
from geminids.gateway.script.encode import error_body
from geminids.gateway.script.scripted_upstream import Scripted
from geminids.gateway.upstream import Body, Cut, Head, Mismatch, Part, UpstreamFault, is_free
from geminids.options.flag_names import error_text
from geminids.redact import secrets_of

__all__ = ["gateway"]

_STOP_SIGNALS = {signal.SIGINT, signal.SIGTERM}
# How many requests the gateway keeps in memory. Nothing reads old requests here, so keep only one.
_KEEP = 1
_MODES = {(False, False): "scripted", (True, False): "recording", (False, True): "replaying"}


class _BadFile(click.ClickException):
    exit_code = 2


@click.command()
@click.option(
    "--script",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Answer requests with this script: a JSON file as above (default: a built-in demo).",
)
@click.option(
    "--record",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write requests and responses to this cassette file.",
)
@click.option("--force", is_flag=True, help="Let --record replace an existing file.")
@click.option(
    "--replay",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Answer requests from this cassette file.",
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, help="Port on 127.0.0.1 (default: a free port)."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines to stdout.")
def gateway(
    script: Path | None, record: Path | None, force: bool, replay: Path | None, port: int, as_json: bool
) -> None:
    """Serve the Gemini API on 127.0.0.1 until Ctrl-C.

    Answers come from a script or a cassette; neither a key nor a network is needed. With --record
    but without --script, requests go to Google with the key in GEMINI_API_KEY.

    A script is a JSON list of replies, or JSON Lines with one reply per line. Each request gets the
    next reply:

    \b
      [{"calls": [{"name": "read_file", "args": {"file_path": "README.md"}}]},
       {"text": ["It is about ", "meteors."], "thought": "**Done**"},
       {"when": "(?i)weather", "text": "Rain.", "times": null},
       {"status": 429, "error": "Quota exceeded"}]

    A reply has text, thought and calls, or an HTTP status with an error. With when, it answers only
    prompts that match this regular expression; times is how many requests it answers (null: all).
    Others: usage, finish, delay, pause, stall, cut. An object {"replies": [...], "default": {...}}
    also says what to answer when no reply is left.
    """
    if replay is not None and (script is not None or record is not None):
        raise click.UsageError("--replay cannot be used with --script or --record")
    try:
        upstream = _upstream(script, record, replay, force=force)
    except GeminidsError as error:
        raise _BadFile(error_text(error)) from None
    guarded = _TokenRequired(upstream) if record is not None and script is None else None
    # Block the signals before the thread of the gateway starts, so that only `sigwait` receives
    # them.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _STOP_SIGNALS)
    try:
        with Gateway(
            guarded or _ReportsErrors(upstream), port=port, keep=_KEEP, on_answer=_Log(as_json)
        ) as served:
            env = served.env
            if guarded is not None:
                env = {**env, "GEMINI_API_KEY": guarded.open(served.port)}
            _print_address(served, env, _MODES[record is not None, replay is not None], as_json)
            signal.sigwait(_STOP_SIGNALS)
    except GeminidsError as error:
        raise click.ClickException(error_text(error)) from None
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if record is not None:
            upstream.close()


def _upstream(script: Path | None, record: Path | None, replay: Path | None, *, force: bool) -> Any:
    if replay is not None:
        return Replaying(load_cassette(replay), secrets=_secrets(), on_remark=_print_error)
    if record is None:
        return _scripted(script)
    inner = _google() if script is None else _scripted(script)
    return Recording(inner, record, overwrite=force, secrets=_secrets(), on_remark=_print_error)


def _scripted(script: Path | None) -> Upstream:
    return Scripted(offline_scene() if script is None else load_script(script))


def _google() -> Upstream:
    key = os.environ.get("GEMINI_API_KEY")
    if not key:
        raise GeminidsError(
            "--record without --script needs an API key",
            hint="Set GEMINI_API_KEY, or record the answers of a script with --script.",
        )
    return Forwarding(
        os.environ.get("GOOGLE_GEMINI_BASE_URL") or GEMINI_URL, ApiKey(key), read_network_settings(os.environ)
    )


def _secrets() -> frozenset[str]:
    return secrets_of(os.environ)


def _print_error(message: str) -> None:
    click.echo(message, err=True)


def _print_fault(message: GatewayMessage) -> None:
    fault = getattr(message, "fault", None)
    if fault is not None:
        _print_error(fault)


class _TokenRequired:
    """Forwards a request to Google only if the request contains the gateway's own token.

    The gateway adds the API key itself. So a client does not need the key and cannot read it.
    """

    def __init__(self, inner: Upstream) -> None:
        self._lease = Lease(inner, _print_fault)
        self._leases = Leases()
        self._port = 0

    def open(self, port: int) -> str:
        """Start to accept requests, and return the token that each request must contain.

        `port` is the port of the gateway.
        """
        self._port = port
        self._leases.add(self._lease)
        return self._lease.token

    def answer(self, request: Request) -> AsyncIterator[Part]:
        return MeteredUpstream(self._leases, lambda: self._port).answer(request)


class _ReportsErrors:
    """Answers requests from a script or a cassette (a file with recorded answers).

    If there is no valid answer to a request, a message is printed to stderr, and the client gets an
    error.
    """

    def __init__(self, inner: Upstream) -> None:
        self._inner = inner
        self.is_free = is_free(inner)

    async def answer(self, request: Request) -> AsyncIterator[Part]:
        try:
            async for part in self._inner.answer(request):
                yield part
        except UpstreamFault as fault:
            _print_error(fault.message)
            yield Cut()
        except Mismatch as mismatch:
            _print_error(f"{mismatch.message}\n  {mismatch.hint}")
            body = error_body(400, mismatch.message)
            yield Head(
                400, {"content-type": "application/json", "content-length": str(len(body))}, "not recorded"
            )
            yield Body(body)


def _print_address(served: Any, env: dict[str, str], mode: str, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"url": served.url, "port": served.port, "env": env}))
    else:
        variables = " ".join(f"{name}={value}" for name, value in env.items())
        click.echo(f"Gemini API ({mode}) on {served.url}  {variables}", err=True)


class _Log:
    """Prints one line for each request, as soon as the gateway starts to answer it."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json

    def __call__(self, request: Request, kind: str) -> None:
        try:
            click.echo(self._line(request, kind))
        except OSError:
            # The reader of stdout has ended: stop. Redirect stdout, so that flushing it at exit
            # works.
            with open(os.devnull, "wb") as devnull:
                os.dup2(devnull.fileno(), 1)
            os.kill(os.getpid(), signal.SIGTERM)

    def _line(self, request: Request, kind: str) -> str:
        text = _shorten(request.last_user_text)
        if self._as_json:
            fields = {"n": request.n, "method": request.method, "model": request.model}
            return json.dumps({**fields, "text": text, "reply": kind}, ensure_ascii=False)
        return f"{request.n:>4}  {request.method:<8}  {request.model or request.path}  “{text}”  -> {kind}"


def _shorten(text: str, limit: int = 60) -> str:
    # Replace the control characters of a prompt, because the text is printed to a terminal.
    text = "".join(c if c.isprintable() else "�" for c in " ".join(text.split()))
    return text if len(text) <= limit else text[: limit - 1] + "…"
