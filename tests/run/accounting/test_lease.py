"""Tests of `RunLease` and `GatewayQueue`: a lease gives the CLI a token instead of the key, and a
queue brings the gateway's messages to the run's event loop."""

from __future__ import annotations

import errno
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from geminids import Options
from geminids.gateway import registry as host
from geminids.gateway.lease import TOKEN_PREFIX
from geminids.gateway.messages import Remark
from geminids.gateway.route import Route
from geminids.launch.errors import Refused
from geminids.launch.gateway_env import NO_KEY, gateway_environment
from geminids.run.accounting.gateway_queue import GatewayQueue
from geminids.run.accounting.lease import DAY_BOOKED, RunLease
from geminids.spending import Budget

KEY = "AIzaSy-not-a-real-key-0123456789"
BY_KEY = Route(kind="gateway", sign_in="api_key", key=KEY)
VERTEX = Route(kind="gateway", sign_in="vertex_key", api="vertex", key=KEY)


@pytest.fixture
def leases() -> Iterator[Callable[..., RunLease]]:
    """A function that creates a lease. All leases are closed after the test."""
    created: list[RunLease] = []

    def make(shares_process: bool = False, budgets: tuple[Budget, ...] = (), **fields: Any) -> RunLease:
        created.append(RunLease(Options(**fields), shares_process=shares_process, budgets=budgets))
        return created[-1]

    yield make
    for lease in created:
        lease.close()


def test_the_cli_gets_a_token_and_no_key(leases: Callable[..., RunLease]) -> None:
    """The CLI receives a token and no key; a second attempt receives the same token."""
    lease = leases()
    endpoint = lease.connect(BY_KEY, {"GEMINI_API_KEY": KEY})
    assert endpoint.token.startswith(TOKEN_PREFIX)
    assert KEY not in str(gateway_environment({"GEMINI_API_KEY": KEY, "COPY": KEY}, BY_KEY, endpoint))
    assert lease.connect(BY_KEY, {}) == endpoint
    assert (lease.is_open, lease.is_dead, lease.busy) == (True, False, False)


def test_leases_share_a_gateway_but_no_token(leases: Callable[..., RunLease]) -> None:
    """All leases of a process share one port, and each has its own token."""
    first, second = leases().connect(BY_KEY, {}), leases().connect(BY_KEY, {})
    assert first.url == second.url
    assert first.token != second.token


def test_the_token_of_a_chat_belongs_to_its_session(leases: Callable[..., RunLease]) -> None:
    """If chats share a process, the environment has no token and the session brings it.

    With Vertex each chat has its own process, and the token is in its environment.
    """
    shared = leases(shares_process=True)
    assert shared.connect(BY_KEY, {}).token == NO_KEY
    assert (shared.session_token or "").startswith(TOKEN_PREFIX)
    own = leases(shares_process=True)
    assert own.connect(VERTEX, {}).token.startswith(TOKEN_PREFIX)
    assert own.session_token is None


def test_a_gateway_that_has_ended_is_replaced(leases: Callable[..., RunLease]) -> None:
    """If the gateway has ended, the next attempt starts a new one and keeps the token; messages
    about the old gateway are dropped."""
    lease = leases()
    before = lease.connect(BY_KEY, {})
    lease.begin()
    assert host._host is not None
    server = host._host._server
    server.close()
    assert lease.is_dead
    after = lease.connect(BY_KEY, {})
    assert (after.token, after.url != before.url) == (before.token, True)
    assert lease.queue.take() == []


def test_a_gateway_that_cannot_be_replaced_is_an_error(
    leases: Callable[..., RunLease], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If no new gateway can be started, the attempt is refused with the reason and a hint."""
    lease = leases()
    lease.connect(BY_KEY, {})
    lease.begin()
    assert host._host is not None
    host._host._server.close()

    def refuse(*_: Any) -> Any:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr("socket.socket", refuse)
        with pytest.raises(Refused, match="cannot listen") as refused:
            lease.connect(BY_KEY, {})
    assert (refused.value.failure.kind, "ulimit -n" in refused.value.failure.hint) == ("network", True)
    assert lease.connect(BY_KEY, {}).url


def test_a_key_from_key_from_is_removed_from_the_environment(
    leases: Callable[..., RunLease], tmp_path: Path
) -> None:
    """A key that the gateway read from `key_from` is also removed from the CLI's environment and
    from `repr`."""
    file = tmp_path / "key"
    file.write_text(KEY)
    file.chmod(0o600)
    route = Route(kind="gateway", sign_in="api_key")
    endpoint = leases(key_from=f"file:{file}").connect(route, {})
    assert KEY not in str(gateway_environment({"COPY": f"--key={KEY}"}, route, endpoint))
    assert KEY not in repr(endpoint)


@pytest.mark.parametrize(
    ("route", "fields", "message"),
    [
        (Route(kind="gateway", sign_in="api_key", key="two words"), {}, "invalid characters"),
        (Route(kind="gateway", sign_in="api_key", key=KEY, base_url="ftp://x"), {}, "base URL"),
        (BY_KEY, {"key_from": "file:/nowhere/key"}, "key_from"),
        (Route(kind="gateway"), {"replay": "/nowhere/talk.jsonl"}, "cassette"),
        (
            Route(kind="gateway", sign_in="vertex_credentials", api="vertex", project="p", location="l1"),
            {},
            "credentials",
        ),
    ],
    ids=["key", "base URL", "key_from", "replay", "no credentials"],
)
def test_a_lease_that_cannot_be_opened_is_refused(
    leases: Callable[..., RunLease], route: Route, fields: dict[str, Any], message: str
) -> None:
    """A lease that cannot be opened is refused before the start, with the reason and a hint."""
    lease = leases(**fields)
    with pytest.raises(Refused, match=message) as refused:
        lease.connect(route, {"NO_GCE_CHECK": "true"})
    assert refused.value.failure.hint
    assert not lease.is_open


def test_an_inner_run_is_not_counted_twice_in_the_daily_budget(
    leases: Callable[..., RunLease], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An inner run that uses the outer run's gateway does not count its requests in the daily
    budget again. Its own daily limit still applies."""
    monkeypatch.setenv("GEMINIDS_HOME", str(tmp_path))
    outer = leases(day_requests=2)
    endpoint = outer.connect(BY_KEY, {})
    assert set(endpoint.variables) == {DAY_BOOKED}
    inner = leases(day_requests=2)
    inner.connect(
        Route(kind="gateway", sign_in="api_key", key=endpoint.token, base_url=endpoint.url),
        endpoint.variables,
    )
    (booking,), (checking,) = outer.budgets, inner.budgets
    for _ in range(3):
        checking.take("m", 4)
    assert booking.spent.requests == 0
    for _ in range(2):
        assert not hasattr(booking.take("m", 4), "hint")
    assert "2 of 2 requests" in str(checking.take("m", 4))
    assert leases().connect(BY_KEY, {}).variables == {}


def test_an_inner_run_with_its_own_key_counts_in_the_daily_budget(
    leases: Callable[..., RunLease], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An inner run with its own key counts its requests in the daily budget, because they do not
    pass the outer gateway."""
    monkeypatch.setenv("GEMINIDS_HOME", str(tmp_path))
    variables = leases(day_requests=2).connect(BY_KEY, {}).variables
    inner = leases(day_requests=2)
    inner.connect(BY_KEY, variables)
    (booking,) = inner.budgets
    booking.take("m", 4)
    assert booking.spent.requests == 1


def test_a_shared_budget_applies_too(leases: Callable[..., RunLease]) -> None:
    """A shared budget applies in addition to the run's own budget."""
    budget = Budget(requests=1, name="all")
    lease = leases(budgets=(budget,), max_requests=5)
    assert lease.has_budget
    lease.connect(BY_KEY, {})
    assert lease.budgets[0] is budget
    assert len(lease.budgets) == 2


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_messages_from_another_thread_wake_the_loop(backend: str) -> None:
    """Messages from another thread wake the event loop; all arrive in order, on asyncio and on
    trio."""

    async def main() -> list[str]:
        box = GatewayQueue()
        thread = threading.Thread(target=lambda: deque(map(box.put, map(remark, range(1000))), maxlen=0))
        texts: list[str] = []
        with anyio.fail_after(10):
            thread.start()
            while len(texts) < 1000:
                await box.wait()
                texts += [message.text for message in box.take() if isinstance(message, Remark)]
        thread.join()
        box.close()
        return texts

    assert anyio.run(main, backend=backend) == [str(number) for number in range(1000)]


def remark(number: int | str) -> Remark:
    return Remark(code="x", text=str(number))


def test_messages_before_and_after_the_loop_are_kept() -> None:
    """A queue keeps messages from before the event loop starts and after it is closed; closing
    twice has no effect."""
    box = GatewayQueue()
    box.put(remark("early"))

    async def main() -> None:
        with anyio.fail_after(1):
            await box.wait()

    anyio.run(main)
    assert box.take() == [remark("early")]
    box.close()
    box.close()
    box.put(remark("late"))
    assert box.take() == [remark("late")]


def test_waking_without_a_message() -> None:
    """`wake` ends the wait for a message even if there is none."""

    async def main() -> None:
        box = GatewayQueue()

        async def wake() -> None:
            await anyio.sleep(0.01)
            box.wake()

        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(wake)
                await box.wait()
        assert box.take() == []
        box.close()

    anyio.run(main)


def test_a_queue_leaves_no_descriptor() -> None:
    """A closed queue leaves no file descriptor, also after a wait that was cancelled."""
    before = len(os.listdir("/proc/self/fd"))

    async def main() -> None:
        for number in range(100):
            box = GatewayQueue()
            with anyio.move_on_after(0):
                await box.wait()
            box.put(remark(number))
            box.close()

    anyio.run(main)
    assert len(os.listdir("/proc/self/fd")) <= before + 1
