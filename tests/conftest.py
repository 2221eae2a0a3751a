"""What the tests share: the real releases, and a world of its own for each test that runs one."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
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

# They need other people's packages, in an environment of their own: `make referees`.
collect_ignore = ["referees"]

# A busy machine is no finding. A quarter of the usual examples: there are hundreds of such tests, run many times a day.
hypothesis.settings.register_profile("geminids", deadline=None, database=None, max_examples=25)
hypothesis.settings.load_profile("geminids")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Tests that a shell has started in its background; what they start would inherit it and hear no Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)

NEWEST = "0.61.0"
OLDER = "0.54.4"
# What our own side does, whichever release follows: the newest stands for all.
_OURS = (
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
# Second cases of a class, or rows of many seconds: the fast set has ten minutes, and the deep one runs them.
_SECOND = (
    # Real rows whose class another fast test stands for; each takes seconds.
    "test_a_budget_of_three_requests_sends_three[account-warm",
    "test_a_cassette_for_each_test",
    "test_a_cassette_that_is_not_there",
    "test_a_changed_prompt",
    "test_a_consumer_that_sleeps_loses_nothing[0.61.0-200",
    "test_a_dead_proxy_does_not_matter_on_loopback",
    "test_a_key_of_this_process_is_a_secret_too",
    "test_a_literal_path_is_text",
    "test_a_model_that_writes_the_key_into_a_call",
    "test_a_refused_conversation_goes_on[0.61.0-_torn",
    "test_a_result_that_is_read_late_keeps_them_too",
    "test_a_run_its_record_and_its_replay",
    "test_a_second_signal_cuts_the_grace_short",
    "test_a_session_is_resumed_and_a_lost_one_begun_anew",
    "test_a_session_of_the_real_cli",
    "test_a_session_that_is_gone_can_be_begun_anew",
    "test_a_session_that_is_not_there_where_none_is",
    "test_a_timeout_after_success_is_none[0.61.0-{'grace",
    "test_a_tool_that_prints_its_environment",
    "test_an_api_that_has_no_time",
    "test_an_ended_process_with_a_secret_in_its_words",
    "test_an_event_loop_that_is_taken_down",
    "test_an_inner_run_stops_at_the_budget_of_the_outer",
    "test_asyncios_own_cancel_ends_everything_too",
    "test_discarded_answers[0.61.0-empty",
    "test_discarded_answers[0.61.0-subagent",
    "test_error[0.61.0",
    "test_kept_leftovers_outlive_the_host[0.61.0-is_background",
    "test_leaving_is_not_asking_twice",
    "test_leftovers_are_ended_and_told[0.61.0-is_background",
    "test_loop_check[0.61.0",
    "test_no_record_where_nothing_is_kept",
    "test_no_tool_finds_the_credential[adc-warm",
    "test_no_tool_finds_the_credential[account-headless",
    "test_offline_scene[0.61.0-flash",
    "test_offline_scene_in_an_empty_folder",
    "test_only_success_keeps_leftovers[0.61.0-interrupted",
    "test_record_then_replay_without_the_server[account-warm",
    "test_resumed_twice_at_once_is_never_interleaved",
    "test_router_of_auto[0.61.0",
    "test_secrets_are_not_shown",
    "test_text_and_usage[0.61.0",
    "test_the_api_refuses",
    "test_the_caller_stops_a_run[0.61.0-leave-daemon_ci",
    "test_the_caller_stops_a_run[0.61.0-scope-daemon",
    "test_the_command_prints_no_secret[0.61.0-text",
    "test_the_gateway_ends_in_the_middle[raise_in_thread-headless",
    "test_the_guard_leaves_bystanders_alone",
    "test_the_host_forks_in_the_middle_of_a_run[idle",
    "test_the_pools_owner_is_closed",
    "test_two_runs_in_one_event_loop",
    "test_what_must_be_asked_for_is[yolo",
    "test_whoever_leaves_ends_everything[pool",
    "test_whoever_leaves_ends_everything[task",
    "test_a_copy_goes_on_by_itself",
    "test_a_deadline_stops_a_run[0.61.0-idle-api",
    "test_a_process_that_hangs_under_a_turn_is_not_sat_in_again",
    "test_a_question_beats_the_users_allows_and_not_the_users_denies",
    "test_a_quota_by_the_minute_is_worth_waiting_for",
    "test_a_resumed_run_tells_of_itself_alone[0.61.0-prefix-True",
    *(f"test_a_run[{case}-on" for case in ("thinking", "tier", "two models", "subagent", "resumed")),
    *(f"test_a_run[{case}-on" for case in ("unknown model", "own price")),
    "test_a_session_that_is_too_long_is_begun_anew",
    "test_a_slow_consumer[trio",
    "test_a_subagent_cannot_hang_on_a_question[nothing_to_ask",
    "test_a_timeout_ends_the_command[0.61.0-timeout-api",
    "test_headless[0.61.0-_key_in_file",
    "test_headless[0.61.0-_key_in_home",
    "test_latest_where_there_is_none_is_told_to_be_fresh",
    "test_live_without_network",
    "test_no_other_argument_passes_for_the_command",
    "test_nobody_there",
    "test_retries_are_seen_while_they_go_on",
    "test_the_table[0.61.0-auto_edit-nothing",
    "test_the_table[0.61.0-default-nothing",
    "test_the_table[0.61.0-yolo-only_others",
    "test_the_table_holds_on_the_warm_lane[auto_edit-nothing",
    "test_the_table_holds_on_the_warm_lane[default-nothing",
    "test_two_runs_and_a_chat_share_a_day",
    "test_two_runs_do_not_touch_each_other",
    "test_what_a_killed_host_left_is_gone_after_the_next_run",
)
# And whole tests whose waits on an old release are minutes of the CLI's own back-off.
_LONG = (
    "test_errors_pass_as_they_are[0.54.4-reply1",
    "test_errors_pass_as_they_are[0.54.4-reply2",
    "test_errors_pass_as_they_are[0.54.4-reply3",
    "test_a_slow_first_byte_and_a_huge_answer[0.54.4",
    "test_errors_are_replayed_too[0.54.4",
    "test_twenty_runs_at_once[trio",
    "test_an_answer_that_is_none_is_no_success[0.54.4-reply1",
    "test_an_answer_that_is_none_is_no_success[0.54.4-reply3",
    "test_an_answer_that_is_none_is_no_success[0.54.4-reply4",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the rows that CI has no time for."""
    for item in items:
        if item.name.startswith(_SECOND):
            item.add_marker(pytest.mark.deep)
        if item.get_closest_marker("deep") is None:
            continue
        older = item.path.name in _OURS and OLDER in item.name
        if older or item.name.startswith(_LONG):
            item.add_marker(pytest.mark.matrix)


@pytest.fixture(scope="session")
def installs() -> Places:
    """Where the real releases are: `GEMINIDS_HOME`, or the clone's own `.geminids`."""
    return Places(Path(os.environ.get("GEMINIDS_HOME") or Path(__file__).parents[1] / ".geminids").absolute())


@pytest.fixture(scope="session")
def node(installs: Places) -> Path:
    """A Node that runs: the one on PATH, or where there is none, our own."""
    from geminids.gemini.install.node import install_node

    found = shutil.which("node")
    return Path(found) if found else install_node(installs, print).path


@dataclass
class World:
    """A folder to work in, a home, a scripted model, and a release to run: nothing of the user's."""

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
        """Options for this world; `env` is merged over its own."""
        env = {**self.gateway.env, "HOME": str(self.home), "TMPDIR": str(self.tmp), **self.env}
        env.update(fields.pop("env", {}))
        given = {"cwd": str(self.cwd), "gemini": self.version, "model": "flash", "env": env, "grace": 2.0}
        return Options(**{**given, **fields})

    def ask(self, prompt: str = "hello", **fields: Any) -> Result:
        return geminids.ask_sync(prompt, self.options(**fields))

    def events(self, prompt: str = "hello", **fields: Any) -> list[Any]:
        return list(geminids.stream_sync(prompt, self.options(**fields)))


@pytest.fixture(params=[pytest.param(NEWEST), pytest.param(OLDER, marks=pytest.mark.deep)])
def release(request: pytest.FixtureRequest) -> str:
    """A release of the real CLI: the newest always, an older one in the deep rows."""
    version: str = request.param
    return version


@pytest.fixture
def make_world(
    tmp_path: Path, installs: Places, geminids_gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> Any:
    """Make a world for a release, which is installed where it is not there yet."""

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
    """A world with the real CLI, for each release that the test runs on."""
    made: World = make_world(release)
    return made


@pytest.fixture(autouse=True)
def no_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's own configuration file is none of a test's business."""
    monkeypatch.setenv("GEMINIDS_CONFIG", os.devnull)


@pytest.fixture(autouse=True)
def nothing_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No test may leave a process: all that it starts, hosts of its own included, carries the test's mark."""
    mark = new_mark("run-of-a-test")
    monkeypatch.setenv(MARKER, str(mark))
    yield
    left = marked(str(mark))
    seen = [f"{process.pid} {_words(process)}" for process in left]
    for process in left:
        try:
            process.kill()
        except psutil.Error:
            pass
    assert not seen, f"left running: {seen}"


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


StandIn = Callable[..., Options]

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
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """Make a CLI out of a body of Python, with `out`, `line`, `say`, `INIT` and `DONE`; gives options for it."""
    monkeypatch.setenv("GEMINIDS_HOME", str(tmp_path / "geminids"))
    work = tmp_path / "work"
    work.mkdir()

    def make(body: str, **fields: Any) -> Options:
        script = tmp_path / f"gemini-{len(list(tmp_path.glob('gemini-*')))}"
        script.write_text(_HEAD.format(python=sys.executable) + body)
        script.chmod(0o755)
        given = {"gemini": str(script), "home": "isolated", "cwd": str(work), "grace": 1.0}
        return Options(**{**given, **fields})

    return make
