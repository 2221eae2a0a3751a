"""The user's `~/.gemini` is byte for byte the same after a run, and the user's own `gemini` finds
the session."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from geminids.gemini import find

pytestmark = pytest.mark.real

deep = pytest.mark.deep
# Folders for sessions: the only ones in the user's home that a run writes to.
SESSIONS = ("tmp", "history")
FILES = {
    "settings.json": '{\n  // mine\n  "general": {"vimMode": true, "disableAutoUpdate": true},\n'
    '  "hooks": {"SessionStart": [{"hooks": [{"type": "command", "name": "mine", "command": "true"}]}]},\n'
    '  "security": {"auth": {"selectedType": "gemini-api-key"}},\n'
    '  "mcpServers": {"gone": {"command": "false"}}\n}\n',
    "trustedFolders.json": '{"/nowhere": "TRUST_FOLDER"}',
    "projects.json": '{"projects": {}}\n',
    "GEMINI.md": "The user's text.\n",
    "oauth_creds.json": '{"access_token": "t", "refresh_token": "r", "expiry_date": 1}',
    "google_accounts.json": '{"active": "me@example.com", "old": []}',
    "installation_id": "00000000-0000-4000-8000-000000000000",
    "state.json": '{"defaultBannerShownCount": {}}',
    ".env": "MINE=1\n",
    "skills/mine/SKILL.md": "---\nname: mine\ndescription: mine\n---\nDo it.\n",
    "skills/mine/scripts/run.sh": "true\n",
    "policies/mine.toml": '[[rule]]\ntoolName = "glob"\ndecision = "allow"\npriority = 100\n',
    "commands/mine.toml": 'prompt = "mine"\n',
    "agents/mine.md": "---\nname: mine\ndescription: mine\n---\nDo it.\n",
    "extensions/mine/gemini-extension.json": '{"name": "mine", "version": "1.0.0"}',
    "extensions/extension-enablement.json": '{"mine": {"overrides": ["/*"]}}',
}


@pytest.fixture
def user(world: Any) -> Path:
    """A user's home with every kind of file that the CLI reads."""
    home = Path(world.home)
    for name, text in FILES.items():
        file = home / ".gemini" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(0o640)
    (home / ".agents/skills").mkdir(parents=True)
    (home / ".bashrc").write_text("# mine\n")
    return home


def _tree(home: Path) -> dict[str, tuple[int, int, bytes]]:
    """Return mode, modification time and bytes of every file and folder, without sessions."""
    entries = {}
    for path in sorted(home.rglob("*")):
        name = path.relative_to(home)
        if name.parts[:1] == (".gemini",) and name.parts[1:2] and name.parts[1] in SESSIONS:
            continue
        status = path.lstat()
        content = b"" if path.is_dir() else path.read_bytes()
        # The time of a folder changes when `tmp` is made in it.
        entries[str(name)] = (status.st_mode, 0 if path.is_dir() else status.st_mtime_ns, content)
    return entries


def _assert_same(world: Any, before: dict[str, tuple[int, int, bytes]]) -> None:
    after = _tree(world.home)
    assert {name for name in set(before) | set(after) if before.get(name) != after.get(name)} == set()


def test_the_tree_is_the_same_after_a_success(world: Any, user: Path) -> None:
    """A successful run with a tool, an effort, a turn limit and permissions changes no file in the
    user's home, and writes its session there."""
    from geminids import Permissions

    before = _tree(user)
    world.gateway.reply(calls=[("run_shell_command", {"command": "echo hi"})])
    world.gateway.reply(text="done")
    allowed = Permissions(shell="allow", deny_tools=("web_fetch",))
    result = world.ask(approval="yolo", effort="low", max_turns=9, permissions=allowed)
    assert result.ok, result.failure
    _assert_same(world, before)
    assert list(user.glob(".gemini/tmp/*/chats/session-*"))


@deep
@pytest.mark.parametrize("case", ["failure", "refusal", "time-out", "trusted", "isolated"])
def test_the_tree_is_the_same_after_other_outcomes(world: Any, user: Path, case: str) -> None:
    """Failed, refused and stopped runs, and runs with a trusted folder or an isolated home, change
    no file in the user's home."""
    before = _tree(user)
    fields: dict[str, Any] = {}
    if case == "failure":
        world.gateway.reply(status=400, error="no")
        fields = {"max_attempts": 1}
    elif case == "refusal":
        (world.cwd / ".gemini").mkdir()
        (world.cwd / ".gemini" / "settings.json").write_text("{nonsense")
    elif case == "time-out":
        world.gateway.reply(stall=True)
        fields = {"timeout": 4.0, "grace": 1.0}
    else:
        fields = {"trust_workspace": True} if case == "trusted" else {"home": "isolated"}
        world.gateway.reply(text="hi")
    result = world.ask(**fields)
    assert result.outcome == {"failure": "failed", "refusal": "failed", "time-out": "timed_out"}.get(
        case, "success"
    )
    _assert_same(world, before)


@deep
def test_the_users_own_gemini_finds_the_session(world: Any, user: Path) -> None:
    """`gemini --list-sessions` lists the session of a run, and `gemini --resume <id>` continues
    it."""
    world.gateway.reply(text="the word is quince")
    first = world.ask("remember the word")
    assert first.session_id
    gemini = find(world.version, places=world.places)
    env = {**os.environ, **world.gateway.env, "HOME": str(world.home), "TMPDIR": str(world.tmp)}

    def run_gemini(*flags: str) -> str:
        argv = [*gemini.command(world.places), *flags]
        done = subprocess.run(
            argv, cwd=world.cwd, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=90
        )
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    assert first.session_id in run_gemini("--list-sessions")
    world.gateway.reply(text="quince")
    assert "quince" in run_gemini(f"--resume={first.session_id}", "--model=flash", "--prompt=which word?")
    assert "the word is quince" in json.dumps(world.gateway.requests[-1].body)
