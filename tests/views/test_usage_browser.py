"""The page of `geminids usage` in a real browser."""

from __future__ import annotations

import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from geminids.sessions.usage import Request, Spent, StoredUsage
from geminids.views.usage.html import html
from geminids.views.usage.usage import report_of

_BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

pytestmark = [
    pytest.mark.deep,
    pytest.mark.skipif(_BROWSER is None, reason="there is no chromium on this machine"),
]


class Server:
    """Counts who comes, and answers nothing."""

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
    one = Server()
    yield one
    one.close()


def dom(page: Path) -> str:
    """The page as the browser has understood it, after its scripts have run, if it let any."""
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


def test_names_are_only_names(tmp_path: Path, server: Server) -> None:
    """Names run no script and ask for nothing; what would, if it got into the page, is not let either."""
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
            requests=(Request(str(at), "2026-11-16T10:00:00.000Z", name, Spent(10, 2, 1)),),
        )
        for at, name in enumerate(names)
    ]
    text = "".join(html(report_of(stored, ("day", "model", "project", "session"))))
    page = tmp_path / "page.html"
    page.write_text(text)
    seen = dom(page)
    assert "<title>Gemini CLI usage</title>" in seen and "</table>" in seen
    assert (
        "<script" not in seen and "<img" not in seen and "onload=" not in seen.replace("&lt;svg onload=", "")
    )
    page.write_text(text.replace("<main>", f"<main>{image}{script}"))
    assert "<title>Gemini CLI usage</title>" in dom(page)
    assert server.visits == 0
    # And that it would be seen: the same without the page's own rules.
    page.write_text(f"<title>Gemini CLI usage</title>{image}{script}")
    assert "<title>owned</title>" in dom(page)
    assert server.visits > 0
