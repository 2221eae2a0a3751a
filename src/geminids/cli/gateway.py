"""`geminids gateway`: the Gemini API on loopback, by itself."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from geminids.gateway import Request
    from geminids.gateway.script import ScriptLike

__all__ = ["gateway"]

_ENDS = {signal.SIGINT, signal.SIGTERM}
# Nobody asks this command for old requests: their bodies must not pile up.
_KEEP = 1


class _BadScript(click.ClickException):
    exit_code = 2


@click.command()
@click.option(
    "--script", type=click.Path(path_type=Path), help="Answer from this file (default: the offline scene)."
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, help="Port on 127.0.0.1 (default: a free one)."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line on stdout.")
def gateway(script: Path | None, port: int, as_json: bool) -> None:
    """Serve the Gemini API on 127.0.0.1 from a script: no key, no network. Ctrl-C ends it."""
    from geminids.errors import GeminidsError, ScriptError
    from geminids.gateway import Gateway

    try:
        answers = _read(script)
    except ScriptError as error:
        raise _BadScript(str(error)) from None
    # Blocked before the thread starts, which inherits it: the signals wait for sigwait below.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDS)
    try:
        with Gateway(answers, port=port, keep=_KEEP, on_answer=_Log(as_json)) as served:
            _greet(served, as_json)
            signal.sigwait(_ENDS)
    except GeminidsError as error:
        raise click.ClickException(str(error)) from None
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _read(script: Path | None) -> ScriptLike:
    from geminids.gateway import load_script, offline_scene

    return offline_scene() if script is None else load_script(script)


def _greet(served: Any, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"url": served.url, "port": served.port, "env": served.env}))
    else:
        env = " ".join(f"{name}={value}" for name, value in served.env.items())
        click.echo(f"Gemini API (scripted) on {served.url}  {env}", err=True)


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
