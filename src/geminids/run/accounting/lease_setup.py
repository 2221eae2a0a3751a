"""Open the lease of a run, which is its access to the gateway.

This module reads the API key, and builds the rate limiter and the upstream. The upstream is the
object that answers the run's requests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

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

__all__ = ["open_gateway_lease"]

# Shorter keys are not masked, because ordinary words may contain them (see `redact`).
_SHORTEST = 4


def open_gateway_lease(
    options: Options,
    route: Route,
    env: Mapping[str, str],
    budgets: Sequence[BaseBudget],
    queue: GatewayQueue,
    max_attempts: int | None,
) -> tuple[OpenLease, str | None, Recording | None]:
    """Open a lease on the gateway.

    Return the lease, the API key (None if there is none), and the recording to close at the end of
    the run (None if nothing is recorded). `max_attempts` is how often the CLI may send a request; None
    leaves that to the CLI. Raises `Refused` if the lease cannot be opened.
    """
    try:
        key = _read_api_key(options, route)
        rate_limiter = _build_rate_limiter(options, route, key)
        upstream, recording = _build_upstream(options, route, env, key, queue)
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
        return open_lease(lease), key, recording
    except GeminidsError as error:
        if recording is not None:
            recording.close()
        raise Refused("network", error.message, error.hint or "") from None


def _read_api_key(options: Options, route: Route) -> str | None:
    """Return the key that the option `key_from` names or, without that option, `route.key`.

    Return None if there is no key. Raises `GeminidsError` if the named key cannot be read.
    """
    if options.key_from is None or route.sign_in != "api_key":
        return route.key
    try:
        return read_key(options.key_from)
    except GeminidsError as error:
        raise GeminidsError(f"key_from: {error.message}", hint=error.hint) from None


def _build_upstream(
    options: Options,
    route: Route,
    env: Mapping[str, str],
    key: str | None,
    queue: GatewayQueue,
) -> tuple[Upstream, Recording | None]:
    """Return the object that answers the run's requests, and the recording.

    The recording is None if nothing is recorded. Otherwise the caller must close it at the end of
    the run.
    """

    def on_remark(text: str) -> None:
        code = "record" if options.record is not None else "replay"
        queue.put(Remark(code=code, text=text))

    if options.offline:
        # Imported late (4 ms), because few runs are offline.
        from geminids.gateway.script import demo, scripted_upstream

        return scripted_upstream.Scripted(demo.offline_scene()), None
    secrets = secrets_of(env) | ({key} if key is not None and len(key) >= _SHORTEST else set())
    if options.replay is not None:
        # Imported late (15 ms, mostly hashlib), because few runs replay a cassette.
        from geminids.gateway.cassette import cassette, replay

        recorded = cassette.load_cassette(options.replay)
        return replay.Replaying(recorded, secrets=secrets, on_remark=on_remark), None
    network = read_network_settings(env)
    credential = _credential(route, key, env, network)
    base_url = route.base_url or default_base_url(credential, route.api)
    forwarding = Forwarding(base_url, credential, network)
    if options.record is None:
        return forwarding, None
    # Imported late (17 ms, mostly hashlib), because few runs record a cassette.
    from geminids.gateway.cassette.recording import Recording

    recording = Recording(forwarding, options.record, secrets=secrets, on_remark=on_remark)
    return recording, recording


def _build_rate_limiter(options: Options, route: Route, key: str | None) -> RateLimiter | None:
    """Return the rate limiter of the run, or None if the run uses no real API.

    All runs of this process with the same sign-in and the same API address share one rate limiter.
    `key` is the API key, or None for another sign-in.
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
