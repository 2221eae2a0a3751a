"""`geminids gateway`: the Gemini API on loopback, by itself."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from geminids.gateway import Request, Upstream
    from geminids.gateway.messages import GatewayMessage
    from geminids.gateway.upstream import Part

__all__ = ["gateway"]

_ENDS = {signal.SIGINT, signal.SIGTERM}
# Nobody asks this command for old requests: their bodies must not pile up.
_KEEP = 1


_WHO = {(False, False): "scripted", (True, False): "recording", (False, True): "replaying"}


class _BadFile(click.ClickException):
    exit_code = 2


@click.command()
@click.option(
    "--script", type=click.Path(path_type=Path), help="Answer from this file (default: the offline scene)."
)
@click.option("--record", type=click.Path(path_type=Path), help="Write what passes to this cassette file.")
@click.option("--replay", type=click.Path(path_type=Path), help="Answer from this cassette file.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, help="Port on 127.0.0.1 (default: a free one)."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line on stdout.")
def gateway(script: Path | None, record: Path | None, replay: Path | None, port: int, as_json: bool) -> None:
    """Serve the Gemini API on 127.0.0.1: from a script or a cassette without key and network, or recorded from Google
    with the key in GEMINI_API_KEY. Ctrl-C ends it."""
    from geminids.errors import GeminidsError
    from geminids.gateway import Gateway

    if replay is not None and (script is not None or record is not None):
        raise click.UsageError("--replay goes with neither --script nor --record")
    try:
        answers = _answers(script, record, replay)
    except GeminidsError as error:
        raise _BadFile(str(error)) from None
    door = _Door(answers) if record is not None and script is None else None
    # Blocked before the thread starts, which inherits it: the signals wait for sigwait below.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDS)
    try:
        with Gateway(door or _Honest(answers), port=port, keep=_KEEP, on_answer=_Log(as_json)) as served:
            env = served.env if door is None else {**served.env, "GEMINI_API_KEY": door.opened(served.port)}
            _greet(served, env, _WHO[record is not None, replay is not None], as_json)
            signal.sigwait(_ENDS)
    except GeminidsError as error:
        raise click.ClickException(str(error)) from None
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if record is not None:
            answers.close()


def _answers(script: Path | None, record: Path | None, replay: Path | None) -> Any:
    if replay is not None:
        from geminids.gateway.cassette.cassette import load_cassette
        from geminids.gateway.cassette.replay import Replaying

        return Replaying(load_cassette(replay), secrets=_secrets(), on_remark=_say)
    if record is None:
        return _scripted(script)
    from geminids.gateway.cassette.recording import Recording

    inner = _google() if script is None else _scripted(script)
    return Recording(inner, record, secrets=_secrets(), on_remark=_say)


def _scripted(script: Path | None) -> Upstream:
    from geminids.gateway import load_script, offline_scene
    from geminids.gateway.script.scripted import Scripted

    return Scripted(offline_scene() if script is None else load_script(script))


def _google() -> Upstream:
    from geminids.errors import GeminidsError
    from geminids.gateway.forward.credential import ApiKey
    from geminids.gateway.forward.forward import GEMINI_URL, Forwarding
    from geminids.gateway.forward.network_settings import read_network_settings

    key = os.environ.get("GEMINI_API_KEY")
    if not key:
        raise GeminidsError(
            "there is no key to record with", hint="Set GEMINI_API_KEY, or record a script with --script."
        )
    return Forwarding(
        os.environ.get("GOOGLE_GEMINI_BASE_URL") or GEMINI_URL, ApiKey(key), read_network_settings(os.environ)
    )


def _secrets() -> frozenset[str]:
    from geminids.redact import secrets_of

    return secrets_of(os.environ)


def _say(remark: str) -> None:
    click.echo(remark, err=True)


def _heard(told: GatewayMessage) -> None:
    fault = getattr(told, "fault", None)
    if fault is not None:
        _say(fault)


class _Door:
    """Stands before Google: only who has the token, which takes the place of the key, gets through to spend it."""

    def __init__(self, inner: Upstream) -> None:
        from geminids.gateway.lease import Lease, Leases

        self._lease = Lease(inner, _heard)
        self._leases = Leases()
        self._port = 0

    def opened(self, port: int) -> str:
        """Let requests in from now on; gives the token."""
        self._port = port
        self._leases.add(self._lease)
        return self._lease.token

    def answer(self, request: Request) -> AsyncIterator[Part]:
        from geminids.gateway.metering import MeteredUpstream

        return MeteredUpstream(self._leases, lambda: self._port).answer(request)


class _Honest:
    """Tells a client what went wrong as the API would, and people in words."""

    def __init__(self, inner: Upstream) -> None:
        self._inner = inner

    async def answer(self, request: Request) -> AsyncIterator[Part]:
        from geminids.gateway.script.encode import error_body
        from geminids.gateway.upstream import Body, Cut, Head, Mismatch, UpstreamFault

        try:
            async for part in self._inner.answer(request):
                yield part
        except UpstreamFault as fault:
            _say(fault.message)
            yield Cut()
        except Mismatch as mismatch:
            _say(f"{mismatch.message}\n  {mismatch.hint}")
            body = error_body(400, mismatch.message)
            yield Head(
                400, {"content-type": "application/json", "content-length": str(len(body))}, "not recorded"
            )
            yield Body(body)


def _greet(served: Any, env: dict[str, str], who: str, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"url": served.url, "port": served.port, "env": env}))
    else:
        words = " ".join(f"{name}={value}" for name, value in env.items())
        click.echo(f"Gemini API ({who}) on {served.url}  {words}", err=True)


class _Log:
    """Prints one line for each request, as its answer begins."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json

    def __call__(self, request: Request, kind: str) -> None:
        try:
            click.echo(self._line(request, kind))
        except OSError:
            # Whoever read our lines is gone: end as if asked to, and let no flush at exit fail again.
            with open(os.devnull, "wb") as nowhere:
                os.dup2(nowhere.fileno(), 1)
            os.kill(os.getpid(), signal.SIGTERM)

    def _line(self, request: Request, kind: str) -> str:
        text = _shown(request.last_user_text)
        if self._as_json:
            fields = {"n": request.n, "method": request.method, "model": request.model}
            return json.dumps({**fields, "text": text, "reply": kind}, ensure_ascii=False)
        return f"{request.n:>4}  {request.method:<8}  {request.model or request.path}  “{text}”  -> {kind}"


def _shown(text: str, most: int = 60) -> str:
    # Control characters of a prompt must not reach the terminal.
    text = "".join(c if c.isprintable() else "�" for c in " ".join(text.split()))
    return text if len(text) <= most else text[: most - 1] + "…"
