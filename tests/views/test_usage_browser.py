"""The HTML page of `geminids usage` in a real browser."""

from __future__ import annotations

import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from geminids.sessions.usage import RequestTokens, StoredRequest, StoredUsage
from geminids.views.usage.html import html
from geminids.views.usage.usage import build_report

_BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

pytestmark = [
    pytest.mark.deep,
    pytest.mark.skipif(_BROWSER is None, reason="there is no chromium on this machine"),
]


class Server:
    """Counts connections and answers none."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.visits = 0
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.visits += 1
            client.close()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(10)


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server()
    yield running
    running.close()


def load_in_browser(page: Path) -> str:
    """Load the page in the browser and return its DOM after scripts have run."""
    assert _BROWSER is not None
    quiet = ("--disable-gpu", "--disable-background-networking", "--no-first-run")
    ran = subprocess.run(
        [
            *(_BROWSER, "--headless", "--no-sandbox", *quiet, f"--user-data-dir={page.parent / 'profile'}"),
            *("--virtual-time-budget=2000", "--dump-dom", page.as_uri()),
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return ran.stdout


def test_names_run_no_script(tmp_path: Path, server: Server) -> None:
    """Names in the page run no script and load nothing.

    Script and image tags inserted into the page are blocked by its policy.
    """
    image = f'<img src="http://127.0.0.1:{server.port}/a.png">'
    script = "<script>document.title='owned'</script>"
    names = [
        f'"><svg onload="document.title=1">{script}',
        f"{image}</text></svg>{image}{script}",
        f"'{script}",
    ]
    stored = [
        StoredUsage(
            file="f",
            session=name,
            project=f"/repo/{name}",
            subagent=False,
            started="",
            requests=(StoredRequest(str(at), "2026-11-16T10:00:00.000Z", name, RequestTokens(10, 2, 1)),),
        )
        for at, name in enumerate(names)
    ]
    text = "".join(html(build_report(stored, ("day", "model", "project", "session"))))
    page = tmp_path / "page.html"
    page.write_text(text)
    dom = load_in_browser(page)
    assert "<title>Gemini CLI usage</title>" in dom and "</table>" in dom
    assert "<script" not in dom and "<img" not in dom and "onload=" not in dom.replace("&lt;svg onload=", "")
    page.write_text(text.replace("<main>", f"<main>{image}{script}"))
    assert "<title>Gemini CLI usage</title>" in load_in_browser(page)
    assert server.visits == 0
    # Proof that the test would notice: a page without our policy runs the script and loads the image.
    page.write_text(f"<title>Gemini CLI usage</title>{image}{script}")
    assert "<title>owned</title>" in load_in_browser(page)
    assert server.visits > 0
