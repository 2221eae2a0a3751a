"""Vertex AI with machine credentials: where tokens come from, when they are renewed, and what a failure looks like."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fake_google import FakeGoogle, Fault, certificate
from fake_proxy import FakeProxy
from fake_sign_ins import FakeTokenServer, FakeVertexProject, authorized_user_file, service_account_file
from geminids.errors import GeminidsError
from geminids.gateway import Gateway, Reply
from geminids.gateway.forward.credential import VertexCredentials
from geminids.gateway.forward.forward import Forwarding
from geminids.gateway.forward.network_settings import NetworkSettings, read_network_settings

STREAM = "/v1beta1/publishers/google/models/gemini-test:streamGenerateContent?alt=sse"
BODY = json.dumps({"contents": [{"role": "user", "parts": [{"text": "hello"}]}]}).encode()
TOKEN = "geminids-run-" + "0" * 48


@pytest.fixture
def google(tmp_path: Path) -> Iterator[FakeVertexProject]:
    with FakeVertexProject(lambda request: Reply(text="hi"), tmp_path) as google:
        yield google


@contextmanager
def forwarding(
    google: FakeVertexProject,
    environ: Mapping[str, str] | None = None,
    network: NetworkSettings | None = None,
) -> Iterator[Gateway]:
    environ = google.env if environ is None else environ
    credentials = VertexCredentials(google.project, google.location, environ, network or NetworkSettings())
    with Gateway(Forwarding(google.url, credentials, NetworkSettings())) as gateway:
        yield gateway


def ask(gateway: Gateway, **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=30)
    try:
        connection.request("POST", STREAM, BODY, {"x-goog-api-key": TOKEN, **headers})
        with connection.getresponse() as response:
            return response.status, response.read().decode()
    finally:
        connection.close()


def message(answer: tuple[int, str]) -> str:
    return str(json.loads(answer[1])["error"]["message"])


# What goes out.


def test_project_location_and_bearer_token(google: FakeVertexProject) -> None:
    """The path gets project and location; the run's token is replaced by a bearer token; the rest is unchanged."""
    with forwarding(google) as gateway:
        status, text = ask(gateway, **{"X-Own": "kept"})
    (asked,) = google.asked
    assert (status, "hi" in text) == (200, True)
    assert asked.path == (
        "/v1beta1/projects/made-up/locations/europe-west4/publishers/google/models/"
        "gemini-test:streamGenerateContent?alt=sse"
    )
    assert (asked.headers["authorization"], asked.headers["x-own"]) == ("Bearer ya29.fake-1", "kept")
    assert "x-goog-api-key" not in asked.headers
    assert asked.body == BODY
    assert TOKEN not in str(asked)


def test_the_token_of_the_run_as_bearer(google: FakeVertexProject) -> None:
    """GEMINI_API_KEY_AUTH_MECHANISM=bearer makes the CLI send its key twice: neither goes out."""
    with forwarding(google) as gateway:
        assert ask(gateway, authorization=f"Bearer {TOKEN}")[0] == 200
    assert TOKEN not in str(google.asked)


def test_an_authorization_of_the_users_own(google: FakeVertexProject) -> None:
    """As in the CLI, a custom Authorization header (for a server in between) is sent in place of a token."""
    with forwarding(google) as gateway:
        ask(gateway, authorization="Basic b3du")
    assert google.asked[0].headers["authorization"] == "Basic b3du"
    assert google.tokens.requests == []


@pytest.mark.parametrize("in_environment", [False, True])
def test_quota_project(google: FakeVertexProject, tmp_path: Path, in_environment: bool) -> None:
    """The project that pays for the quota is sent along; GOOGLE_CLOUD_QUOTA_PROJECT outranks the file."""
    authorized_user_file(tmp_path, google.tokens.url, quota_project_id="of-the-file")
    more = {"GOOGLE_CLOUD_QUOTA_PROJECT": "of-the-run"} if in_environment else {}
    with forwarding(google, {**google.env, **more}) as gateway:
        ask(gateway)
    expected = "of-the-run" if in_environment else "of-the-file"
    assert google.asked[0].headers["x-goog-user-project"] == expected


# Where tokens come from.


def _gcloud_in_home(folder: Path, tokens: FakeTokenServer) -> dict[str, str]:
    place = folder / ".config" / "gcloud"
    place.mkdir(parents=True)
    authorized_user_file(place, tokens.url).rename(place / "application_default_credentials.json")
    return {"HOME": str(folder)}


def _gcloud_elsewhere(folder: Path, tokens: FakeTokenServer) -> dict[str, str]:
    authorized_user_file(folder, tokens.url).rename(folder / "application_default_credentials.json")
    return {"HOME": "/nonexistent", "CLOUDSDK_CONFIG": str(folder)}


def _service_account(folder: Path, tokens: FakeTokenServer) -> dict[str, str]:
    return {"GOOGLE_APPLICATION_CREDENTIALS": str(service_account_file(folder, tokens.url))}


def _metadata(folder: Path, tokens: FakeTokenServer) -> dict[str, str]:
    return {"HOME": str(folder), "GCE_METADATA_HOST": tokens.host}


def _external_account(folder: Path, tokens: FakeTokenServer) -> dict[str, str]:
    subject, path = folder / "subject", folder / "external.json"
    subject.write_text("a-made-up-subject-token")
    info = {
        "type": "external_account",
        "audience": "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/q",
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        "token_url": tokens.url,
        "credential_source": {"file": str(subject)},
    }
    path.write_text(json.dumps(info))
    return {"GOOGLE_APPLICATION_CREDENTIALS": str(path)}


@pytest.mark.parametrize(
    ("source", "sent"),
    [
        (_gcloud_in_home, {"grant_type": "refresh_token", "refresh_token": "1//made-up-refresh-token"}),
        (_gcloud_elsewhere, {"grant_type": "refresh_token"}),
        (_service_account, {"grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer"}),
        (_metadata, {"metadata-flavor": "Google"}),
        (_external_account, {"subject_token": "a-made-up-subject-token"}),
    ],
    ids=lambda value: value.__name__.strip("_") if callable(value) else "",
)
def test_sources(
    google: FakeVertexProject,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    source: Callable[[Path, FakeTokenServer], dict[str, str]],
    sent: dict[str, str],
) -> None:
    """Credentials are found by the environment of the run, and not by the one of this process."""
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nonexistent/of-this-process.json")
    monkeypatch.setenv("GCE_METADATA_HOST", "127.0.0.1:1")
    folder = tmp_path / "source"
    folder.mkdir()
    environ = source(folder, google.tokens)
    VertexCredentials("made-up", "global", environ, NetworkSettings()).check_available()
    with forwarding(google, environ) as gateway:
        assert ask(gateway)[0] == 200
    ((_, _, given),) = google.tokens.requests
    assert given.items() >= sent.items()
    assert google.asked[0].headers["authorization"] == "Bearer ya29.fake-1"


def test_token_requests_take_the_way_of_the_run(google: FakeVertexProject, tmp_path: Path) -> None:
    """A token is asked for through the run's proxy, which alone knows the way to Google."""
    authorized_user_file(tmp_path, "http://oauth.test/token")
    with FakeProxy() as proxy:
        host, port = google.tokens.host.split(":")
        proxy.leads_to["oauth.test:80"] = (host, int(port))
        network = read_network_settings({"HTTPS_PROXY": proxy.url})
        with forwarding(google, network=network) as gateway:
            assert ask(gateway)[0] == 200
    assert proxy.asked == ["oauth.test:80"]


def test_an_impersonated_service_account(google: FakeVertexProject, tmp_path: Path) -> None:
    """The user's own token is exchanged for one of the service account, at Google's IAM API."""
    source = json.loads(google.file.read_text())
    url = "https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/a@b.test:generateAccessToken"
    info = {"type": "impersonated_service_account", "service_account_impersonation_url": url}
    google.file.write_text(json.dumps({**info, "source_credentials": source}))
    google.tokens.issued.append("ya29.of-the-service-account")
    token = b'{"accessToken": "ya29.of-the-service-account", "expireTime": "2100-01-01T00:00:00Z"}'
    raw = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(token), token)
    ca = certificate(tmp_path, "iamcredentials.googleapis.com")
    with FakeGoogle(lambda request: Fault("raw", data=raw), tls=ca) as iam, FakeProxy() as proxy:
        proxy.leads_to["iamcredentials.googleapis.com:443"] = ("127.0.0.1", iam.port)
        network = read_network_settings({"HTTPS_PROXY": proxy.url, "SSL_CERT_FILE": str(ca)})
        with forwarding(google, network=network) as gateway:
            answer = ask(gateway)
            assert answer[0] == 200, answer
    assert google.asked[0].headers["authorization"] == "Bearer ya29.of-the-service-account"
    assert iam.asked[0].headers["authorization"] == "Bearer ya29.fake-2"


# How often.


def test_one_token_for_many_requests(google: FakeVertexProject) -> None:
    """50 requests that come before there is a token wait for the same one; later ones use it too."""
    google.tokens.gate.clear()
    with forwarding(google) as gateway, ThreadPoolExecutor(50) as threads:
        answers = [threads.submit(ask, gateway) for _ in range(50)]
        assert gateway.wait_for_requests(50)
        google.tokens.gate.set()
        assert {answer.result()[0] for answer in answers} == {200}
        assert ask(gateway)[0] == 200
    assert len(google.tokens.requests) == 1


def test_no_thread_is_left(google: FakeVertexProject, monkeypatch: pytest.MonkeyPatch) -> None:
    """The request fails with the reason, and the next one gets its token."""
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "geminids-token":
            raise RuntimeError("can't start new thread")
        start(thread)

    with forwarding(google) as gateway:
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", refuse)
            failed = ask(gateway)
        assert (failed[0], "can't start new thread" in message(failed)) == (503, True)
        assert ask(gateway)[0] == 200


def test_runs_share_a_token(google: FakeVertexProject) -> None:
    """Two runs with the same credentials need one token; a file that was written anew needs another."""
    for _ in range(2):
        with forwarding(google) as gateway:
            ask(gateway)
    assert len(google.tokens.requests) == 1
    authorized_user_file(google.file.parent, google.tokens.url, client_id="another-client")
    with forwarding(google) as gateway:
        ask(gateway)
    assert len(google.tokens.requests) == 2


def test_a_client_that_leaves_spoils_nothing(google: FakeVertexProject) -> None:
    """A request that is cancelled while it waits for a token does not cancel the token of the others."""
    google.tokens.gate.clear()
    with forwarding(google) as gateway, ThreadPoolExecutor(1) as threads:
        with socket.create_connection(("127.0.0.1", gateway.port)) as leaving:
            head = f"POST {STREAM} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(BODY)}\r\n\r\n"
            leaving.sendall(head.encode() + BODY)
            assert gateway.wait_for_requests(1)
            staying = threads.submit(ask, gateway)
            assert gateway.wait_for_requests(2)
        assert gateway.wait_until(lambda: len(gateway._gone) == 1)
        google.tokens.gate.set()
        assert staying.result()[0] == 200
    assert len(google.tokens.requests) == 1


def test_an_expired_token_is_replaced(google: FakeVertexProject) -> None:
    """A token that is about to expire is not used: the request waits for the next."""
    google.tokens.lifetime = 5
    with forwarding(google) as gateway:
        assert [ask(gateway)[0] for _ in range(3)] == [200, 200, 200]
    tokens = [asked.headers["authorization"] for asked in google.asked]
    assert tokens == [f"Bearer ya29.fake-{number}" for number in (1, 2, 3)]


def test_renewal_ahead_of_time(google: FakeVertexProject) -> None:
    """In its last minutes a token is used on while the next one is obtained: no request waits for it."""
    google.tokens.lifetime = 120
    with forwarding(google) as gateway:
        ask(gateway)
        google.tokens.gate.clear()
        # The pause after the first token is over, as far as the source knows.
        source = gateway.upstream._credential._source  # type: ignore[attr-defined]
        source._not_before = 0.0
        google.tokens.lifetime = 3600
        assert ask(gateway)[0] == 200
        pending = source._pending
        google.tokens.gate.set()
        assert pending.result(10).value == "ya29.fake-2"
        assert ask(gateway)[0] == 200
    tokens = [asked.headers["authorization"][-1] for asked in google.asked]
    assert tokens == ["1", "1", "2"]


def test_a_revoked_token_is_replaced_once(google: FakeVertexProject) -> None:
    """On 401 the request is sent again with a new token, and the CLI sees only that answer."""
    with forwarding(google) as gateway:
        ask(gateway)
        google.tokens.revoked.add("ya29.fake-1")
        assert ask(gateway)[0] == 200
    assert [asked.status for asked in google.asked] == [200, 401, 200]
    assert len(google.tokens.requests) == 2


def test_401_again_is_the_answer(google: FakeVertexProject) -> None:
    """Where a new token is refused too, the API's own answer goes to the CLI; no third attempt."""
    google.tokens.revoked |= {f"ya29.fake-{number}" for number in range(9)}
    with forwarding(google) as gateway:
        answer = ask(gateway)
    assert (answer[0], "invalid authentication credentials" in message(answer)) == (401, True)
    assert [asked.status for asked in google.asked] == [401, 401]


def test_an_error_does_not_show_the_token(tmp_path: Path) -> None:
    """Whatever the API repeats in an error, the CLI does not get to see the access token."""
    reply = Reply(status=403, error="the token ya29.fake-1 has no permission")
    with FakeVertexProject([reply], tmp_path) as google, forwarding(google) as gateway:
        answer = ask(gateway)
    assert (answer[0], "ya29" in answer[1]) == (403, False)


# What goes wrong.


@pytest.mark.parametrize(
    ("failure", "status", "words"),
    [
        (
            (400, {"error": "invalid_grant", "error_description": "Token has been expired or revoked."}),
            401,
            ["Token has been expired or revoked", "gcloud auth application-default login"],
        ),
        ((403, {"error": "org_internal"}), 401, ["org_internal"]),
        ((200, {"token_type": "Bearer"}), 401, ["access token"]),
        ((404, b"<html>not here</html>"), 401, ["not here"]),
    ],
)
def test_a_token_that_is_refused(
    google: FakeVertexProject, failure: tuple[int, Any], status: int, words: list[str]
) -> None:
    """The CLI gets one answer that it does not retry, with cause and remedy; the API is not asked. Later requests
    try again."""
    google.tokens.failures.append(failure)
    with forwarding(google) as gateway:
        answer = ask(gateway)
        assert answer[0] == status
        assert all(word in message(answer) for word in words), message(answer)
        assert google.asked == []
        assert ask(gateway)[0] == 200


def test_a_token_server_that_is_down(google: FakeVertexProject, tmp_path: Path) -> None:
    """A failure that may pass is 503, which the CLI retries as often as it retries the API."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    authorized_user_file(tmp_path, f"http://127.0.0.1:{port}/token")
    with forwarding(google) as gateway:
        answer = ask(gateway)
    assert answer[0] == 503
    assert f"no connection to 127.0.0.1:{port}" in message(answer)


@pytest.mark.deep  # google-auth waits between its three attempts
def test_a_token_server_that_is_busy(google: FakeVertexProject) -> None:
    """google-auth tries a busy server again; if it stays busy, the CLI gets 503."""
    google.tokens.failures += [(503, {"error": "server_error"})] * 3
    with forwarding(google) as gateway:
        answer = ask(gateway)
        assert (answer[0], "server_error" in message(answer)) == (503, True)
        assert ask(gateway)[0] == 200


@pytest.mark.parametrize(("status", "seen"), [(404, 401), (503, 503)])
def test_a_metadata_server_that_refuses(google: FakeVertexProject, status: int, seen: int) -> None:
    """No service account is permanent, a server that is busy is not."""
    google.tokens.failures.append((status, {}))
    with forwarding(google, {"GCE_METADATA_HOST": google.tokens.host}) as gateway:
        answer = ask(gateway)
    assert (answer[0], f"HTTP {status}" in message(answer)) == (seen, True)


@pytest.mark.parametrize(
    "info",
    [
        {"type": "authorized_user"},
        {"type": "service_account", "client_email": "a@b", "private_key": "no PEM"},
        {"type": "service_account"},
        {"type": "gdch_service_account"},
        {"type": "external_account"},
    ],
)
def test_a_file_that_cannot_be_used(google: FakeVertexProject, tmp_path: Path, info: dict[str, str]) -> None:
    """Credentials that are incomplete or of an unknown kind are reported with the reason."""
    google.file.write_text(json.dumps(info))
    with forwarding(google) as gateway:
        answer = ask(gateway)
    assert answer[0] == 401
    assert message(answer).startswith("No access token for Vertex AI: ")
    assert len(message(answer)) > 50


def test_a_file_that_is_gone(google: FakeVertexProject) -> None:
    """Removed after the start: the CLI gets the reason."""
    google.file.unlink()
    with forwarding(google) as gateway:
        answer = ask(gateway)
    assert (answer[0], "is not a file" in message(answer)) == (401, True)


# Before the start.


@pytest.mark.parametrize(
    ("content", "word"),
    [(None, "is not a file"), ("{", "is not JSON"), ("[]", "has no type"), ('{"type": 5}', "has no type")],
)
def test_check_a_file(tmp_path: Path, content: str | None, word: str) -> None:
    """A file that is missing or not a credentials file is refused before the start, without showing it."""
    path = tmp_path / "adc.json"
    if content is not None:
        path.write_text(content)
    credentials = VertexCredentials(
        "p", "l", {"GOOGLE_APPLICATION_CREDENTIALS": str(path)}, NetworkSettings()
    )
    with pytest.raises(GeminidsError) as caught:
        credentials.check_available()
    assert word in caught.value.message and "gcloud" in (caught.value.hint or "")


def test_check_no_credentials(tmp_path: Path) -> None:
    """Nothing in the environment leads to credentials: refused, with what to do."""
    credentials = VertexCredentials(
        "p", "l", {"HOME": str(tmp_path), "NO_GCE_CHECK": "true"}, NetworkSettings()
    )
    with pytest.raises(GeminidsError, match="no Google Cloud credentials") as caught:
        credentials.check_available()
    assert "gcloud auth application-default login" in (caught.value.hint or "")


_WITHOUT = """
import sys
sys.modules["google.auth"] = None
from geminids.errors import GeminidsError
from geminids.gateway.forward.credential import VertexCredentials
from geminids.gateway.forward.network_settings import NetworkSettings
try:
    VertexCredentials("p", "l", {"GOOGLE_APPLICATION_CREDENTIALS": sys.argv[1]}, NetworkSettings()).check_available()
except GeminidsError as error:
    print(error.message, "|", error.hint)
"""
_LATE = """
import sys
from geminids.gateway.forward.credential import VertexCredentials
from geminids.gateway.forward.forward import Forwarding
from geminids.gateway.forward.network_settings import NetworkSettings
made = VertexCredentials("p", "l", {"GOOGLE_APPLICATION_CREDENTIALS": sys.argv[1]}, NetworkSettings())
made.check_available()
Forwarding("https://api.test", made, NetworkSettings())
print(sorted({"google.auth", "google.oauth2", "anyio", "asyncio", "h11", "requests"} & set(sys.modules)))
"""


@pytest.mark.parametrize(
    ("program", "printed"),
    [
        (_WITHOUT, "Vertex AI with machine credentials needs google-auth, which is not installed | "),
        (_LATE, "[]"),
    ],
    ids=["missing", "late"],
)
def test_google_auth(tmp_path: Path, program: str, printed: str) -> None:
    """Where google-auth is missing, that is said before the start; where it is there, it is not imported then."""
    path = authorized_user_file(tmp_path, "http://127.0.0.1:1/token")
    argv = [sys.executable, "-c", program, str(path)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(printed)
    assert program is _LATE or "pip install 'geminids[vertex]'" in done.stdout


@pytest.mark.parametrize(
    ("project", "location"),
    [("", "us-central1"), ("p", ""), ("a/b", "global"), ("p", "../x"), ("p?q", "global")],
)
def test_names_that_cannot_be_in_a_url(project: str, location: str) -> None:
    """Project and location are part of the path: anything else than a name is refused."""
    with pytest.raises(GeminidsError):
        VertexCredentials(project, location, {}, NetworkSettings())


def test_nothing_secret_is_shown(google: FakeVertexProject) -> None:
    """Neither a credential nor a token shows itself in a log."""
    with forwarding(google) as gateway:
        ask(gateway)
        credential = gateway.upstream._credential  # type: ignore[attr-defined]
        shown = f"{credential!r} {credential._source._token!r} {gateway.upstream!r} {gateway.requests}"
    assert "ya29" not in shown and TOKEN not in shown


def test_a_worker_thread(google: FakeVertexProject) -> None:
    """While a token is obtained, the gateway answers others."""
    google.tokens.gate.clear()
    with forwarding(google) as gateway, ThreadPoolExecutor(1) as threads, FakeGoogle():
        waiting = threads.submit(ask, gateway)
        assert gateway.wait_for_requests(1)
        began = time.monotonic()
        ask(gateway, authorization="Basic b3du")
        assert time.monotonic() - began < 5
        google.tokens.gate.set()
        assert waiting.result()[0] == 200
