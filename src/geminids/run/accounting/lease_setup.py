"""Open the lease of a run, which is its access to the gateway.

This module reads the API key, and builds the rate limiter and the upstream. The upstream is the
object that answers the run's requests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from geminids.errors import GeminidsError
from geminids.gateway.access.api_key import read_key
from geminids.gateway.forward.credential import ApiKey, CliLogin, VertexCredentials
from geminids.gateway.forward.forward import Forwarding, default_base_url
from geminids.gateway.forward.network_settings import NetworkSettings, read_network_settings
from geminids.gateway.lease import Lease
from geminids.gateway.limits.rate_limiter import RateLimiter, rate_limiter_for
from geminids.gateway.messages import Remark
from geminids.gateway.registry import OpenLease, open_lease
from geminids.gateway.route import Route
from geminids.gateway.upstream import Upstream
from geminids.launch.errors import Refused
from geminids.options import Options
from geminids.redact import secrets_of
from geminids.run.accounting.gateway_queue import GatewayQueue

if TYPE_CHECKING:
    from geminids.gateway.cassette.recording import Recording
    from geminids.spending.budget import BaseBudget

__all__ = ["AnsweredBy", "build_upstream", "check_gateway_lease", "open_gateway_lease"]

AnsweredBy = tuple[Upstream, "Recording | None"]
"""The object that answers the requests of a run, and the recording; None if nothing is recorded."""

# Shorter keys are not masked, because ordinary words may contain them (see `redact`).
_SHORTEST = 4


def open_gateway_lease(
    options: Options,
    route: Route,
    env: Mapping[str, str],
    budgets: Sequence[BaseBudget],
    queue: GatewayQueue,
    max_attempts: int | None,
    upstream: Upstream | None = None,
) -> tuple[OpenLease, str | None]:
    """Open a lease on the gateway, and return it with the API key (None if there is none).

    `max_attempts` is how often the CLI may send a request; None leaves that to the CLI. `upstream`
    answers the requests; without it, they are forwarded to the API. Raises `Refused` if the lease
    cannot be opened.
    """
    try:
        key = _read_api_key(options, route)
        rate_limiter = _build_rate_limiter(options, route, key)
        if upstream is None:
            upstream = _forwarding(route, env, key)
    except GeminidsError as error:
        raise Refused("bad_option", error.message, error.hint or "") from None
    lease = Lease(
        upstream,
        queue.put,
        api=route.api,
        budgets=budgets,
        rate_limiter=rate_limiter,
        wake=queue.wake,
        only_models=options.only_models,
        max_attempts=max_attempts,
    )
    try:
        return open_lease(lease), key
    except GeminidsError as error:
        raise Refused("network", error.message, error.hint or "") from None


def check_gateway_lease(options: Options, route: Route, env: Mapping[str, str]) -> None:
    """Check that a run with this route could open its lease. Raises `Refused` if it could not.

    No socket is opened and no file is written.
    """
    try:
        key = _read_api_key(options, route)
        _build_upstream(msgspec.structs.replace(options, record=None), route, env, key, lambda _: None)
        if options.record is not None:
            from geminids.gateway.cassette.recording import check_record_path

            check_record_path(options.record, overwrite=options.overwrite)
    except GeminidsError as error:
        raise Refused("bad_option", error.message, error.hint or "") from None


def build_upstream(
    options: Options, route: Route, env: Mapping[str, str], on_message: Callable[[Remark], None]
) -> AnsweredBy:
    """Return the object that answers the run's requests, and the recording.

    The recording is None if nothing is recorded. Otherwise the caller must close it at the end of
    the run. `on_message` gets the remarks of both. Raises `Refused` if an option has a wrong value.
    """
    try:
        return _build_upstream(options, route, env, _read_api_key(options, route), on_message)
    except GeminidsError as error:
        raise Refused("bad_option", error.message, error.hint or "") from None


def _read_api_key(options: Options, route: Route) -> str | None:
    """Return the key that the option `key_from` names or, without that option, `route.key`.

    Return None if there is no key. Raises `GeminidsError` if the named key cannot be read.
    """
    if options.key_from is None or route.sign_in != "api_key":
        return route.key
    try:
        return read_key(options.key_from)
    except GeminidsError as error:
        raise GeminidsError(f"`key_from`: {error.message}", hint=error.hint) from None


def _build_upstream(
    options: Options,
    route: Route,
    env: Mapping[str, str],
    key: str | None,
    on_message: Callable[[Remark], None],
) -> AnsweredBy:
    def on_remark(text: str) -> None:
        code = "record" if options.record is not None else "replay"
        on_message(Remark(code=code, text=text))

    secrets = secrets_of(env) | ({key} if key is not None and len(key) >= _SHORTEST else set())
    inner: Upstream
    if options.is_scripted:
        inner = _scripted(options.script)
    elif options.replay is not None:
        # Imported late (15 ms, mostly hashlib), because few runs replay a cassette.
        from geminids.gateway.cassette import cassette, replay

        recorded = cassette.load_cassette(options.replay)
        inner = replay.Replaying(recorded, secrets=secrets, on_remark=on_remark)
    else:
        inner = _forwarding(route, env, key)
    if options.record is None:
        return inner, None
    # Imported late (17 ms, mostly hashlib), because few runs record a cassette.
    from geminids.gateway.cassette.recording import Recording

    recording = Recording(
        inner, options.record, overwrite=options.overwrite, secrets=secrets, on_remark=on_remark
    )
    return recording, recording


def _forwarding(route: Route, env: Mapping[str, str], key: str | None) -> Forwarding:
    network = read_network_settings(env)
    credential = _credential(route, key, env, network)
    return Forwarding(route.base_url or default_base_url(credential, route.api), credential, network)


def _scripted(path: str | None) -> Upstream:
    """Return an upstream that answers from the script file `path`; without one, from the built-in
    demo."""
    # Imported late (4 ms), because few runs have a scripted model.
    from geminids.gateway.script import demo, load, scripted_upstream

    return scripted_upstream.Scripted(demo.offline_scene() if path is None else load.load_script(path))


def _build_rate_limiter(options: Options, route: Route, key: str | None) -> RateLimiter | None:
    """Return the rate limiter of the run, or None if the run uses no real API.

    All runs of this process with the same sign-in and the same API address share one rate limiter.
    `key` is the API key; None if the run signs in without an API key.
    """
    if route.sign_in == "none":
        return None
    identity = key or f"{route.sign_in} {route.project} {route.location}"
    return rate_limiter_for(identity, route.base_url or "", options.requests_per_minute)


def _credential(
    route: Route, key: str | None, env: Mapping[str, str], network: NetworkSettings
) -> ApiKey | VertexCredentials | CliLogin:
    if route.sign_in == "account":
        return CliLogin()
    if route.sign_in == "vertex_credentials":
        credentials = VertexCredentials(route.project, route.location, env, network)
        credentials.check_available()
        return credentials
    return ApiKey(key or "")
