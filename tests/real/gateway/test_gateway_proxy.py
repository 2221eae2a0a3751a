"""With a proxy in the environment, the CLI reaches the gateway directly, and its tools still see
the proxy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from fake_google import FakeGoogle
from fake_proxy import FakeProxy
from gateway_runs import RELEASES
from geminids.gateway import Call, Reply

pytestmark = pytest.mark.real

KEY = "AIzaSy-a-key-for-this-test-alone"


@pytest.fixture(params=RELEASES)
def release(request: pytest.FixtureRequest) -> str:
    version: str = request.param
    return version


@pytest.fixture
def proxy() -> Iterator[FakeProxy]:
    with FakeProxy() as proxy:
        # The CLI sends its statistics to this host; the proxy leads it to a closed port.
        proxy.leads_to["play.googleapis.com:443"] = ("127.0.0.1", 1)
        yield proxy


def test_no_request_to_the_gateway_goes_by_the_proxy(world: Any, proxy: FakeProxy) -> None:
    """The CLI sends no request to the gateway through the proxy, and its tools still have the
    proxy's variable."""
    call = Call("run_shell_command", {"command": "env | grep -i _proxy > proxies.txt"})
    with FakeGoogle([Reply(calls=[call]), Reply(text="done")], with_key=KEY) as google:
        env = {"GOOGLE_GEMINI_BASE_URL": google.url, "GEMINI_API_KEY": KEY, "HTTPS_PROXY": proxy.url}
        result = world.ask(gateway="on", approval="yolo", env={**env, "HTTP_PROXY": proxy.url}, timeout=60)
        assert (result.outcome, result.answer) == ("success", "done"), result.failure
        local_targets = [target for target in proxy.asked if target.startswith(("127.0.0.1:", "localhost:"))]
        assert {target.rpartition(":")[2] for target in local_targets} <= {str(google.port)}
    lines = (world.cwd / "proxies.txt").read_text().splitlines()
    variables = dict(line.split("=", 1) for line in lines)
    assert variables["HTTPS_PROXY"] == proxy.url
