"""Tests of the real CLI with each sign-in: its requests, the counted tokens and other servers it
contacts."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from fake_google import FakeGoogle
from fake_proxy import FakeProxy
from fake_sign_ins import LOGIN, FakeCodeAssist, FakeVertex, FakeVertexProject
from geminids.config.paths import Places
from geminids.gateway import Call, Reply
from geminids.gateway.cassette.cassette import load_cassette
from geminids.gateway.cassette.recording import Recording
from geminids.gateway.cassette.replay import Replaying
from geminids.gateway.forward.credential import ApiKey, CliLogin, Credential, VertexCredentials
from geminids.gateway.forward.forward import Forwarding
from geminids.gateway.forward.network_settings import NetworkSettings
from geminids.gateway.lease import Lease
from geminids.gateway.messages import Answered, GatewayMessage
from geminids.gateway.registry import OpenLease, open_lease
from geminids.gateway.request import Api
from geminids.gateway.upstream import Upstream
from geminids.gemini.install.cli import install

pytestmark = pytest.mark.real

KEY = "AIzaSy-not-a-real-key-0123456789"
SCRIPT = [Reply(calls=[Call("run_shell_command", {"command": "env"})]), Reply(text="all listed")]
RELEASES = ["0.61.0", pytest.param("0.54.4", marks=pytest.mark.deep)]
SIGN_INS = ["vertex key", "vertex project", "account"]
# Project and location of the user stay in the environment: the CLI prefers a key to them.
VERTEX = {"GOOGLE_GENAI_USE_VERTEXAI": "true", "GOOGLE_CLOUD_PROJECT": "p", "GOOGLE_CLOUD_LOCATION": "eu"}
ACCOUNT = {"GOOGLE_GENAI_USE_GCA": "true", "GOOGLE_CLOUD_ACCESS_TOKEN": LOGIN}


def google_of(sign_in: str, folder: Path) -> FakeGoogle:
    if sign_in == "vertex key":
        return FakeVertex(SCRIPT, with_key=KEY)
    return FakeVertexProject(SCRIPT, folder) if sign_in == "vertex project" else FakeCodeAssist(SCRIPT)


def credential_of(google: FakeGoogle) -> Credential:
    if isinstance(google, FakeVertexProject):
        return VertexCredentials(google.project, google.location, google.env, NetworkSettings())
    return CliLogin() if isinstance(google, FakeCodeAssist) else ApiKey(KEY)


class Cli:
    """Runs a CLI release with a lease.
    Its connections to other servers go to a proxy that records and refuses them."""

    def __init__(self, release: str, places: Places, folder: Path) -> None:
        self._command = install(release, places=places).command(places)
        self._folder = folder
        self.others: set[str] = set()

    def run(
        self, name: str, sign_in: str, upstream: Upstream, messages: Callable[[GatewayMessage], None]
    ) -> str:
        api: Api = "code_assist" if sign_in == "account" else "vertex"
        home, cwd = self._folder / name / "home", self._folder / name / "work"
        (home / ".gemini").mkdir(parents=True)
        cwd.mkdir()
        lease = open_lease(Lease(upstream, messages, api=api))
        lease.begin()
        try:
            with FakeProxy(status=403) as proxy:
                env = {"PATH": os.environ["PATH"], "HOME": str(home), "GEMINI_CLI_HOME": str(home)}
                env |= {"GEMINI_CLI_TRUST_WORKSPACE": "true", "GEMINI_CLI_NO_RELAUNCH": "true"}
                env |= {"HTTPS_PROXY": proxy.url, "NO_PROXY": "127.0.0.1", **self._signed_in(sign_in, lease)}
                argv = [*self._command, "--output-format=stream-json", "--model=gemini-2.5-flash", "--yolo"]
                completed = subprocess.run(
                    argv, input="list it", env=env, cwd=cwd, text=True, capture_output=True, timeout=60
                )
            self.others |= {target.partition(":")[0] for target in proxy.asked}
        finally:
            lease.close()
        lines = [json.loads(line) for line in completed.stdout.splitlines()]
        assert lines and lines[-1]["status"] == "success", completed.stderr
        return "".join(line["content"] for line in lines if line.get("role") == "assistant")

    @staticmethod
    def _signed_in(sign_in: str, lease: OpenLease) -> dict[str, str]:
        if sign_in == "account":
            return {**ACCOUNT, "CODE_ASSIST_ENDPOINT": f"{lease.url}/{lease.token}"}
        return {**VERTEX, "GOOGLE_API_KEY": lease.token, "GOOGLE_VERTEX_BASE_URL": lease.url}


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("sign_in", SIGN_INS)
def test_run_record_and_replay(sign_in: str, release: str, installs: Places, tmp_path: Path) -> None:
    """The reported requests and tokens are those that the API served.
    The cassette contains no secret and replays the run without the API. The CLI contacts no other
    servers than the account and telemetry servers of Google."""
    messages: list[GatewayMessage] = []
    cli, path = Cli(release, installs, tmp_path), tmp_path / "c.jsonl"
    with google_of(sign_in, tmp_path) as google:
        recording = Recording(Forwarding(google.url, credential_of(google), NetworkSettings()), path)
        assert cli.run("first", sign_in, recording, messages.append) == "all listed"
        recording.close()
    served = [asked for asked in google.asked if asked.usage]
    answered = [message for message in messages if isinstance(message, Answered)]
    assert len(served) == len(answered) == 2
    for request, answer in zip(served, answered, strict=True):
        assert answer.counts is not None and answer.counts.input == request.usage["promptTokenCount"]
        assert (answer.model, answer.finish, answer.status) == (request.model, "STOP", 200)
    sent = "".join(str(asked.headers) + asked.path for asked in google.asked)
    assert "geminids-run" not in sent
    assert cli.others <= (
        {"www.googleapis.com", "play.googleapis.com"} if sign_in == "account" else {"play.googleapis.com"}
    )
    text = path.read_text()
    assert not any(secret in text for secret in ("geminids-run", "ya29", "AIza"))
    replay = Replaying(load_cassette(path))
    assert cli.run("again", sign_in, replay, messages.append) == "all listed"
    # 0.54.4 on Vertex sends one of two system instructions; which one varies from run to run.
    unexpected = [remark for remark in replay.remarks if "system instruction" not in remark]
    assert (replay.unused, unexpected) == ([], [])
