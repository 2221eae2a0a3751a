"""One run with a scripted answer after an install, so that the first real run finds its code compiled."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from geminids.config.places import Places, private_dir
from geminids.toolchain.gemini import Gemini

__all__ = ["warm_up"]

_SETTINGS = (
    '{"security":{"auth":{"selectedType":"gemini-api-key"}},"privacy":{"usageStatisticsEnabled":false},'
    '"general":{"sessionRetention":{"enabled":false}}}'
)
_ANSWER = (
    '{"method":"generateContentStream","response":[{"candidates":[{"content":{"role":"model","parts":'
    '[{"text":"warm"}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":1,'
    '"candidatesTokenCount":1,"totalTokenCount":2}}]}\n'
)
_KEPT = ("PATH", "LANG", "TMPDIR", "SYSTEMROOT")


def warm_up(gemini: Gemini, places: Places, environ: Mapping[str, str]) -> bool:
    """Fill the compile cache; True if the scripted run succeeded. No network, no trace in any home."""
    if gemini.node is None or not gemini.node.has_compile_cache or not gemini.release.fake_responses:
        return False
    import tempfile

    from geminids.toolchain.spawn import answer_of

    with tempfile.TemporaryDirectory(prefix=".warm-up-", dir=private_dir(places.root)) as folder:
        home = Path(folder)
        private_dir(home / ".gemini").joinpath("settings.json").write_text(_SETTINGS)
        script = home / "answer.ndjson"
        script.write_text(_ANSWER)
        flags = ("--output-format=stream-json", "--model=gemini-2.5-flash", f"--fake-responses={script}")
        argv = (*gemini.command(places), *flags, "--prompt=warm up")
        answer = answer_of(argv, environ=_environ(home, environ), cwd=private_dir(home / "cwd"), timeout=60)
    return answer.code == 0


def _environ(home: Path, environ: Mapping[str, str]) -> dict[str, str]:
    # Little of the user's environment: a key or a base URL in it would turn a warm-up into a request.
    own = {name: environ[name] for name in _KEPT if name in environ}
    return {
        **own,
        "HOME": str(home),
        "GEMINI_CLI_HOME": str(home),
        "GEMINI_API_KEY": "none",
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
        "GEMINI_CLI_NO_RELAUNCH": "true",
        "NO_BROWSER": "true",
    }
