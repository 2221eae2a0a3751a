"""Tests of Vertex AI with machine credentials: sources of tokens, their renewal, and failures."""

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


# Requests that the gateway sends to Vertex AI.


def test_project_location_and_bearer_token(google: FakeVertexProject) -> None:
    """The gateway adds project and location to the path.
    It replaces the run's token by a bearer token and leaves the rest unchanged."""
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


def test_run_token_as_bearer_is_not_forwarded(google: FakeVertexProject) -> None:
    """The run's token is not forwarded if the CLI sends it as a bearer token, too.
    GEMINI_API_KEY_AUTH_MECHANISM=bearer causes that."""
    with forwarding(google) as gateway:
        assert ask(gateway, authorization=f"Bearer {TOKEN}")[0] == 200
    assert TOKEN not in str(google.asked)


def test_custom_authorization_is_forwarded(google: FakeVertexProject) -> None:
    """A custom Authorization header is forwarded instead of an access token, as in the CLI."""
    with forwarding(google) as gateway:
        ask(gateway, authorization="Basic b3du")
    assert google.asked[0].headers["authorization"] == "Basic b3du"
    assert google.tokens.requests == []


@pytest.mark.parametrize("in_environment", [False, True])
def test_quota_project(google: FakeVertexProject, tmp_path: Path, in_environment: bool) -> None:
    """The quota project is sent as a header.
    GOOGLE_CLOUD_QUOTA_PROJECT wins over the credentials file."""
    authorized_user_file(tmp_path, google.tokens.url, quota_project_id="of-the-file")
    more = {"GOOGLE_CLOUD_QUOTA_PROJECT": "of-the-run"} if in_environment else {}
    with forwarding(google, {**google.env, **more}) as gateway:
        ask(gateway)
    expected = "of-the-run" if in_environment else "of-the-file"
    assert google.asked[0].headers["x-goog-user-project"] == expected


# Sources of tokens.


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
def test_credential_sources(
    google: FakeVertexProject,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    source: Callable[[Path, FakeTokenServer], dict[str, str]],
    sent: dict[str, str],
) -> None:
    """Credentials are found through the environment of the run, not of this process."""
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nonexistent/of-this-process.json")
    monkeypatch.setenv("GCE_METADATA_HOST", "127.0.0.1:1")
    folder = tmp_path / "source"
    folder.mkdir()
    environ = source(folder, google.tokens)
    VertexCredentials("made-up", "global", environ, NetworkSettings()).check_available()
    with forwarding(google, environ) as gateway:
        assert ask(gateway)[0] == 200
    ((_, _, request_fields),) = google.tokens.requests
    assert request_fields.items() >= sent.items()
    assert google.asked[0].headers["authorization"] == "Bearer ya29.fake-1"


def test_token_requests_use_the_proxy_of_the_run(google: FakeVertexProject, tmp_path: Path) -> None:
    """Tokens are requested through the proxy of the run."""
    authorized_user_file(tmp_path, "http://oauth.test/token")
    with FakeProxy() as proxy:
        host, port = google.tokens.host.split(":")
        proxy.leads_to["oauth.test:80"] = (host, int(port))
        network = read_network_settings({"HTTPS_PROXY": proxy.url})
        with forwarding(google, network=network) as gateway:
            assert ask(gateway)[0] == 200
    assert proxy.asked == ["oauth.test:80"]


def test_impersonated_service_account(google: FakeVertexProject, tmp_path: Path) -> None:
    """The user's token is exchanged for a token of the service account at Google's IAM API."""
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


# Sharing and renewal of tokens.


def test_one_token_for_many_requests(google: FakeVertexProject) -> None:
    """50 requests that arrive before there is a token wait for one shared token."""
    google.tokens.gate.clear()
    with forwarding(google) as gateway, ThreadPoolExecutor(50) as threads:
        answers = [threads.submit(ask, gateway) for _ in range(50)]
        assert gateway.wait_for_requests(50)
        google.tokens.gate.set()
        assert {answer.result()[0] for answer in answers} == {200}
        assert ask(gateway)[0] == 200
    assert len(google.tokens.requests) == 1


def test_token_thread_cannot_start(google: FakeVertexProject, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the thread for the token cannot start, the request gets a 503 with the reason.
    The next request gets its token."""
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
    """Runs with the same credentials share one token. A changed file needs a new token."""
    for _ in range(2):
        with forwarding(google) as gateway:
            ask(gateway)
    assert len(google.tokens.requests) == 1
    authorized_user_file(google.file.parent, google.tokens.url, client_id="another-client")
    with forwarding(google) as gateway:
        ask(gateway)
    assert len(google.tokens.requests) == 2


def test_cancelled_request_does_not_cancel_the_token(google: FakeVertexProject) -> None:
    """A client that leaves while it waits for a token does not cancel the token for others."""
    google.tokens.gate.clear()
    with forwarding(google) as gateway, ThreadPoolExecutor(1) as threads:
        with socket.create_connection(("127.0.0.1", gateway.port)) as first_client:
            head = f"POST {STREAM} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(BODY)}\r\n\r\n"
            first_client.sendall(head.encode() + BODY)
            assert gateway.wait_for_requests(1)
            second_answer = threads.submit(ask, gateway)
            assert gateway.wait_for_requests(2)
        assert gateway.wait_until(lambda: len(gateway._gone) == 1)
        google.tokens.gate.set()
        assert second_answer.result()[0] == 200
    assert len(google.tokens.requests) == 1


def test_expiring_token_is_not_used(google: FakeVertexProject) -> None:
    """A token that is about to expire is not used. The request waits for a new one."""
    google.tokens.lifetime = 5
    with forwarding(google) as gateway:
        assert [ask(gateway)[0] for _ in range(3)] == [200, 200, 200]
    tokens = [asked.headers["authorization"] for asked in google.asked]
    assert tokens == [f"Bearer ya29.fake-{number}" for number in (1, 2, 3)]


def test_token_is_renewed_early(google: FakeVertexProject) -> None:
    """In its last minutes, a token is still used while a new one is requested. No request waits."""
    google.tokens.lifetime = 120
    with forwarding(google) as gateway:
        ask(gateway)
        google.tokens.gate.clear()
        # Pretend that the pause between two renewals is over.
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


def test_revoked_token_is_replaced_once(google: FakeVertexProject) -> None:
    """After a 401, the request is sent again with a new token.
    The CLI sees only the second answer."""
    with forwarding(google) as gateway:
        ask(gateway)
        google.tokens.revoked.add("ya29.fake-1")
        assert ask(gateway)[0] == 200
    assert [asked.status for asked in google.asked] == [200, 401, 200]
    assert len(google.tokens.requests) == 2


def test_second_401_is_forwarded(google: FakeVertexProject) -> None:
    """If the new token is refused, too, the CLI gets that 401. There is no third attempt."""
    google.tokens.revoked |= {f"ya29.fake-{number}" for number in range(9)}
    with forwarding(google) as gateway:
        answer = ask(gateway)
    assert (answer[0], "invalid authentication credentials" in message(answer)) == (401, True)
    assert [asked.status for asked in google.asked] == [401, 401]


def test_error_does_not_contain_the_token(tmp_path: Path) -> None:
    """The access token is masked in an error of the API."""
    reply = Reply(status=403, error="the token ya29.fake-1 has no permission")
    with FakeVertexProject([reply], tmp_path) as google, forwarding(google) as gateway:
        answer = ask(gateway)
    assert (answer[0], "ya29" in answer[1]) == (403, False)


# Failures.


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
def test_token_request_is_refused(
    google: FakeVertexProject, failure: tuple[int, Any], status: int, words: list[str]
) -> None:
    """If no token is issued, the CLI gets a 401, which it does not retry, with the cause.
    The API is not contacted, and a later request tries again."""
    google.tokens.failures.append(failure)
    with forwarding(google) as gateway:
        answer = ask(gateway)
        assert answer[0] == status
        assert all(word in message(answer) for word in words), message(answer)
        assert google.asked == []
        assert ask(gateway)[0] == 200


def test_token_server_is_down(google: FakeVertexProject, tmp_path: Path) -> None:
    """If the token server cannot be reached, the CLI gets a 503, which it retries."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    authorized_user_file(tmp_path, f"http://127.0.0.1:{port}/token")
    with forwarding(google) as gateway:
        answer = ask(gateway)
    assert answer[0] == 503
    assert f"no connection to 127.0.0.1:{port}" in message(answer)


@pytest.mark.deep  # google-auth waits between its three attempts
def test_token_server_is_busy(google: FakeVertexProject) -> None:
    """google-auth retries a busy token server. If it stays busy, the CLI gets a 503."""
    google.tokens.failures += [(503, {"error": "server_error"})] * 3
    with forwarding(google) as gateway:
        answer = ask(gateway)
        assert (answer[0], "server_error" in message(answer)) == (503, True)
        assert ask(gateway)[0] == 200


@pytest.mark.parametrize(("status", "expected"), [(404, 401), (503, 503)])
def test_metadata_server_fails(google: FakeVertexProject, status: int, expected: int) -> None:
    """A missing service account is permanent (401). A busy metadata server is temporary (503)."""
    google.tokens.failures.append((status, {}))
    with forwarding(google, {"GCE_METADATA_HOST": google.tokens.host}) as gateway:
        answer = ask(gateway)
    assert (answer[0], f"HTTP {status}" in message(answer)) == (expected, True)


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
def test_unusable_credentials_file(google: FakeVertexProject, tmp_path: Path, info: dict[str, str]) -> None:
    """Incomplete credentials, or those of an unknown type, cause a 401 with the reason."""
    google.file.write_text(json.dumps(info))
    with forwarding(google) as gateway:
        answer = ask(gateway)
    assert answer[0] == 401
    assert message(answer).startswith("No access token for Vertex AI: ")
    assert len(message(answer)) > 50


def test_credentials_file_was_removed(google: FakeVertexProject) -> None:
    """If the credentials file is removed after the start, the CLI gets a 401 with the reason."""
    google.file.unlink()
    with forwarding(google) as gateway:
        answer = ask(gateway)
    assert (answer[0], "is not a file" in message(answer)) == (401, True)


# Checks before the start.


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (None, "is not a file"),
        ("{", "is not JSON"),
        ("[]", "has no field `type`"),
        ('{"type": 5}', "has no field `type`"),
    ],
)
def test_check_of_the_credentials_file(tmp_path: Path, content: str | None, word: str) -> None:
    """`check_available` refuses a file that is missing or invalid. The hint names gcloud."""
    path = tmp_path / "adc.json"
    if content is not None:
        path.write_text(content)
    credentials = VertexCredentials(
        "p", "l", {"GOOGLE_APPLICATION_CREDENTIALS": str(path)}, NetworkSettings()
    )
    with pytest.raises(GeminidsError) as caught:
        credentials.check_available()
    assert word in caught.value.message and "gcloud" in (caught.value.hint or "")


def test_check_without_credentials(tmp_path: Path) -> None:
    """`check_available` raises an error with a hint if the environment leads to no credentials."""
    credentials = VertexCredentials(
        "p", "l", {"HOME": str(tmp_path), "NO_GCE_CHECK": "true"}, NetworkSettings()
    )
    with pytest.raises(GeminidsError, match="no Google Cloud credentials") as caught:
        credentials.check_available()
    assert "gcloud auth application-default login" in (caught.value.hint or "")


_WITHOUT_GOOGLE_AUTH = """
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
_PRINT_IMPORTED = """
import sys
from geminids.gateway.forward.credential import VertexCredentials
from geminids.gateway.forward.forward import Forwarding
from geminids.gateway.forward.network_settings import NetworkSettings
credentials = VertexCredentials("p", "l", {"GOOGLE_APPLICATION_CREDENTIALS": sys.argv[1]}, NetworkSettings())
credentials.check_available()
Forwarding("https://api.test", credentials, NetworkSettings())
print(sorted({"google.auth", "google.oauth2", "anyio", "asyncio", "h11", "requests"} & set(sys.modules)))
"""


@pytest.mark.parametrize(
    ("program", "printed"),
    [
        (
            _WITHOUT_GOOGLE_AUTH,
            "Vertex AI with machine credentials needs google-auth, which is not installed | ",
        ),
        (_PRINT_IMPORTED, "[]"),
    ],
    ids=["missing", "late"],
)
def test_google_auth(tmp_path: Path, program: str, printed: str) -> None:
    """`check_available` reports a missing google-auth, and does not import an installed one."""
    path = authorized_user_file(tmp_path, "http://127.0.0.1:1/token")
    argv = [sys.executable, "-c", program, str(path)]
    completed = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert completed.stdout.startswith(printed)
    assert program is _PRINT_IMPORTED or "pip install 'geminids[vertex]'" in completed.stdout


@pytest.mark.parametrize(
    ("project", "location"),
    [("", "us-central1"), ("p", ""), ("a/b", "global"), ("p", "../x"), ("p?q", "global")],
)
def test_names_that_cannot_be_in_a_url(project: str, location: str) -> None:
    """A project or location that is not a plain name is refused, because
    both become part of the path."""
    with pytest.raises(GeminidsError):
        VertexCredentials(project, location, {}, NetworkSettings())


def test_repr_contains_no_secret(google: FakeVertexProject) -> None:
    """The repr of credential, token, upstream and requests contains no secret."""
    with forwarding(google) as gateway:
        ask(gateway)
        credential = gateway.upstream._credential  # type: ignore[attr-defined]
        shown = f"{credential!r} {credential._source._token!r} {gateway.upstream!r} {gateway.requests}"
    assert "ya29" not in shown and TOKEN not in shown


def test_gateway_answers_while_a_token_is_requested(google: FakeVertexProject) -> None:
    """The gateway answers other requests while a token is being requested."""
    google.tokens.gate.clear()
    with forwarding(google) as gateway, ThreadPoolExecutor(1) as threads, FakeGoogle():
        waiting = threads.submit(ask, gateway)
        assert gateway.wait_for_requests(1)
        started = time.monotonic()
        ask(gateway, authorization="Basic b3du")
        assert time.monotonic() - started < 5
        google.tokens.gate.set()
        assert waiting.result()[0] == 200
