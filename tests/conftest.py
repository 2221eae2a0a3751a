"""Shared fixtures: the installed CLI releases, and an isolated environment for each test that runs
one."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hypothesis
import psutil
import pytest

import geminids
from geminids import Options, Result
from geminids.config.paths import Places
from geminids.gateway import Gateway
from geminids.process.marker import MARKER, new_mark
from geminids.process.tree import marked
from proofs import ROOT, reject_skipped_proof

# These tests need packages of other projects in a separate environment: `make referees`.
collect_ignore = ["referees"]

# No deadline, because the machine may be busy. A quarter of the usual examples, because there are
# hundreds of such tests, which run many times a day.
hypothesis.settings.register_profile("geminids", deadline=None, database=None, max_examples=25)
hypothesis.settings.load_profile("geminids")

# In the background of a shell SIGINT is ignored, under `nohup` SIGHUP is, and child processes would
# inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

NEWEST = "0.61.0"
OLDER = "0.54.4"
# Tests of our own code, which does not depend on the release: CI runs them on the newest one only.
_RELEASE_INDEPENDENT = (
    "test_effort.py",
    "test_bad_paths.py",
    "test_media.py",
    "test_endings_prompt.py",
    "test_leftovers.py",
    "test_stall.py",
    "test_stops_host.py",
    "test_secrets.py",
    "test_run_pretty.py",
    "test_interfaces.py",
    "test_homes.py",
    "test_environment.py",
)
# Further cases of a class, or slow cases: only `make test-deep` runs them, because `make test` has
# ten minutes.
_DEEP = (
    # Cases with the real CLI that take seconds, and whose class a faster test covers.
    "test_a_budget_of_three_requests_sends_three[account-warm",
    "test_cassette_of_each_test",
    "test_missing_cassette",
    "test_a_changed_prompt",
    "test_a_consumer_that_sleeps_loses_nothing[0.61.0-200",
    "test_a_dead_proxy_does_not_matter_on_loopback",
    "test_a_key_of_this_process_is_a_secret_too",
    "test_a_literal_path_is_text",
    "test_a_model_that_writes_the_key_into_a_call",
    "test_a_rescued_conversation_resumes[0.61.0-_torn",
    "test_leftovers_are_kept_for_a_slow_caller",
    "test_run_record_and_replay",
    "test_a_second_signal_cuts_the_grace_short",
    "test_a_session_is_resumed_and_a_lost_one_replaced",
    "test_a_session_of_the_real_cli",
    "test_fresh_replaces_a_missing_session",
    "test_a_missing_session_in_a_folder_without_sessions",
    "test_a_timeout_after_success_keeps_success[0.61.0-{'grace",
    "test_a_tool_that_prints_its_environment",
    "test_a_rate_limited_api",
    "test_an_ended_process_is_listed_without_secrets",
    "test_a_closed_event_loop_ends_the_run",
    "test_an_inner_run_stops_at_the_budget_of_the_outer",
    "test_asyncio_cancel_ends_all_tools",
    "test_discarded_answers[0.61.0-empty",
    "test_discarded_answers[0.61.0-subagent",
    "test_error[0.61.0",
    "test_kept_leftovers_outlive_the_host[0.61.0-is_background",
    "test_leaving_after_stop_keeps_the_grace",
    "test_leftovers_are_ended_and_reported[0.61.0-is_background",
    "test_loop_check[0.61.0",
    "test_no_record_where_nothing_is_kept",
    "test_no_tool_finds_the_credential[adc-warm",
    "test_no_tool_finds_the_credential[account-headless",
    "test_offline_scene[0.61.0-flash",
    "test_offline_scene_in_an_empty_folder",
    "test_only_success_keeps_leftovers[0.61.0-interrupted",
    "test_record_then_replay_without_the_server[account-warm",
    "test_two_resumes_run_one_after_the_other",
    "test_router_with_model_auto[0.61.0",
    "test_secrets_are_not_shown",
    "test_text_and_usage[0.61.0",
    "test_the_cost_of_a_refused_request",
    "test_the_caller_stops_a_run[0.61.0-leave-daemon_ci",
    "test_the_caller_stops_a_run[0.61.0-scope-daemon",
    "test_the_command_prints_no_secret[0.61.0-text",
    "test_the_gateway_ends_in_the_middle[raise_in_thread-headless",
    "test_the_guard_leaves_bystanders_alone",
    "test_the_host_forks_in_the_middle_of_a_run[idle",
    "test_the_warm_daemon_is_protected",
    "test_two_runs_in_one_event_loop",
    "test_each_call_asks_in_every_mode[yolo",
    "test_leaving_ends_all_tools[pool",
    "test_leaving_ends_all_tools[task",
    "test_a_fork_is_independent",
    "test_a_deadline_stops_a_run[0.61.0-idle-api",
    "test_a_hanging_process_is_not_reused",
    "test_ask_overrides_the_users_allows_but_not_denies",
    "test_a_minute_quota_is_retryable",
    "test_a_resumed_run_reports_only_its_own_events[0.61.0-prefix-True",
    *(f"test_a_run[{case}-on" for case in ("thinking", "tier", "two models", "subagent", "resumed")),
    *(f"test_a_run[{case}-on" for case in ("unknown model", "own price")),
    "test_a_session_that_is_too_long_is_replaced",
    "test_a_slow_consumer[trio",
    "test_a_subagent_cannot_hang_on_a_question[nothing_to_ask",
    "test_a_timeout_ends_the_command[0.61.0-timeout-api",
    "test_headless[0.61.0-_key_in_file",
    "test_headless[0.61.0-_key_in_home",
    "test_latest_without_a_session_starts_a_fresh_one",
    "test_live_without_network",
    "test_an_allowed_name_among_the_arguments_allows_nothing",
    "test_an_unreachable_api",
    "test_retries_are_shown_in_the_status",
    "test_the_permission_table_holds[0.61.0-auto_edit-nothing",
    "test_the_permission_table_holds[0.61.0-default-nothing",
    "test_the_permission_table_holds[0.61.0-yolo-only_others",
    "test_the_permission_table_holds_on_the_warm_transport[auto_edit-nothing",
    "test_the_permission_table_holds_on_the_warm_transport[default-nothing",
    "test_two_runs_and_a_chat_share_a_day",
    "test_two_runs_do_not_touch_each_other",
    "test_the_next_run_removes_staged_files",
)
# Tests that wait for minutes on an old release, because of the CLI's own back-off.
_SLOW_ON_OLD_RELEASES = (
    "test_api_errors_are_unchanged[0.54.4-reply1",
    "test_api_errors_are_unchanged[0.54.4-reply2",
    "test_api_errors_are_unchanged[0.54.4-reply3",
    "test_a_slow_first_byte_and_a_huge_answer[0.54.4",
    "test_errors_are_replayed_too[0.54.4",
    "test_twenty_runs_at_once[trio",
    "test_a_missing_answer_is_a_failure[0.54.4-reply1",
    "test_a_missing_answer_is_a_failure[0.54.4-reply3",
    "test_a_missing_answer_is_a_failure[0.54.4-reply4",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the slow tests of the lists above as `deep` or `matrix`."""
    for item in items:
        if item.name.startswith(_DEEP):
            item.add_marker(pytest.mark.deep)
        if item.get_closest_marker("deep") is None:
            continue
        older = item.path.name in _RELEASE_INDEPENDENT and OLDER in item.name
        if older or item.name.startswith(_SLOW_ON_OLD_RELEASES):
            item.add_marker(pytest.mark.matrix)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail a skipped test that docs/reference/seeds.md names as a proof."""
    report = yield
    reject_skipped_proof(report, f"{item.path.relative_to(ROOT).as_posix()}::{item.name.partition('[')[0]}")
    return report


@pytest.fixture(scope="session")
def installs() -> Places:
    """The paths of the installed releases: `GEMINIDS_HOME`, or `.geminids` in the repository."""
    return Places(Path(os.environ.get("GEMINIDS_HOME") or Path(__file__).parents[1] / ".geminids").absolute())


@pytest.fixture(scope="session")
def node(installs: Places) -> Path:
    """A Node that works: the one on PATH, or one that geminids installs."""
    from geminids.gemini.install.node import install_node

    path = shutil.which("node")
    return Path(path) if path else install_node(installs, print).path


@dataclass
class World:
    """An isolated environment for one release: working folder, home, temporary folder and a
    scripted model."""

    version: str
    root: Path
    gateway: Gateway
    env: dict[str, str] = field(default_factory=dict)

    @property
    def cwd(self) -> Path:
        return self.root / "work"

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def tmp(self) -> Path:
        return self.root / "tmp"

    @property
    def places(self) -> Places:
        return Places(self.root / "geminids")

    def options(self, **fields: Any) -> Options:
        """Options for this world; `env` is merged over the world's variables."""
        env = {**self.gateway.env, "HOME": str(self.home), "TMPDIR": str(self.tmp), **self.env}
        env.update(fields.pop("env", {}))
        defaults = {"cwd": str(self.cwd), "gemini": self.version, "model": "flash", "env": env, "grace": 2.0}
        return Options(**{**defaults, **fields})

    def ask(self, prompt: str = "hello", **fields: Any) -> Result:
        return geminids.ask_sync(prompt, self.options(**fields))

    def events(self, prompt: str = "hello", **fields: Any) -> list[Any]:
        return list(geminids.stream_sync(prompt, self.options(**fields)))


@pytest.fixture(params=[pytest.param(NEWEST), pytest.param(OLDER, marks=pytest.mark.deep)])
def release(request: pytest.FixtureRequest) -> str:
    """A version of the real CLI: the newest in all tests, and an older one in deep tests."""
    version: str = request.param
    return version


@pytest.fixture
def make_world(
    tmp_path: Path, installs: Places, geminids_gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> Any:
    """A function that creates a world for a release, and installs the release if needed."""

    def make(version: str) -> World:
        from geminids.gemini.install.cli import install

        install(version, places=installs)
        world = World(version, tmp_path, geminids_gateway)
        for folder in (world.cwd, world.home, world.tmp, world.places.root):
            folder.mkdir()
        for shared in (installs.releases, installs.node, installs.root / "compile-cache"):
            shared.mkdir(exist_ok=True)
            (world.places.root / shared.name).symlink_to(shared)
        monkeypatch.setenv("GEMINIDS_HOME", str(world.places.root))
        return world

    return make


@pytest.fixture
def world(make_world: Any, release: str) -> World:
    """A world with the real CLI, once for each release."""
    world: World = make_world(release)
    return world


@pytest.fixture(autouse=True)
def no_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ignore the user's own configuration file in all tests."""
    monkeypatch.setenv("GEMINIDS_CONFIG", os.devnull)


@pytest.fixture(autouse=True)
def no_process_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Check that no test leaves a process: everything that a test starts carries the test's
    mark."""
    mark = new_mark("run-of-a-test")
    monkeypatch.setenv(MARKER, str(mark))
    yield
    leftovers = marked(str(mark))
    descriptions = [f"{process.pid} {_command_of(process)}" for process in leftovers]
    for process in leftovers:
        try:
            process.kill()
        except psutil.Error:
            pass
    assert not descriptions, f"left running: {descriptions}"


def _command_of(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


FakeCli = Callable[..., Options]

_HEAD = """\
#!{python} -IS
import json, os, subprocess, sys, time
if "--version" in sys.argv:
    print("0.61.0")
    sys.exit()
def out(data, fd=1):
    view = memoryview(data.encode() if isinstance(data, str) else data)
    while view:
        view = view[os.write(fd, view):]
def line(kind, **fields):
    stamp = "2026-11-16T03:27:52.123Z"
    return json.dumps({{"type": kind, "timestamp": stamp, **fields}}, separators=(",", ":")) + "\\n"
def say(text):
    return line("message", role="assistant", content=text, delta=True)
INIT = line("init", session_id="s-1", model="auto") + line("message", role="user", content="hi")
DONE = line("result", status="success", stats=dict(total_tokens=3, input_tokens=1, output_tokens=2))
"""


@pytest.fixture
def fake_cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeCli:
    """A function that makes a CLI from a Python body and returns options for it.

    The body can use `out`, `line`, `say`, `INIT` and `DONE`.
    """
    monkeypatch.setenv("GEMINIDS_HOME", str(tmp_path / "geminids"))
    work = tmp_path / "work"
    work.mkdir()

    def make(body: str, **fields: Any) -> Options:
        script = tmp_path / f"gemini-{len(list(tmp_path.glob('gemini-*')))}"
        script.write_text(_HEAD.format(python=sys.executable) + body)
        script.chmod(0o755)
        defaults = {"gemini": str(script), "home": "isolated", "cwd": str(work), "grace": 1.0}
        return Options(**{**defaults, **fields})

    return make
