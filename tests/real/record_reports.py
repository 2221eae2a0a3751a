"""Make tests/recordings/reports anew: what `--output-format json` prints for the scenes of record_events.

python tests/real/record_reports.py

The record of a run must come out the same from these as from the recorded events. `retried` has its events beside it.
"""

from __future__ import annotations

import json
import re
import runpy
import subprocess
from pathlib import Path
from typing import Any

import geminids
from geminids.config.paths import Places
from geminids.launch.build import build_headless
from geminids.launch.prepare import prepare
from geminids.launch.write import write

REPORTS = Path(__file__).parents[1] / "recordings" / "reports"
# Those that end by themselves; a stop from outside leaves no report.
NAMES = (
    "plain",
    "thoughts",
    "tools",
    "denied",
    "failed_tool",
    "unknown_tool",
    "subagent",
    "max_turns",
    "api_error",
    "bad_key",
    "loop",
)
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_LATENCY = re.compile(r'("(?:totalLatencyMs|totalDurationMs|durationMs)": )\d+')


def main() -> None:
    REPORTS.mkdir(parents=True, exist_ok=True)
    scenes: dict[str, Any] = runpy.run_path(str(Path(__file__).with_name("record_events.py")))
    for name in NAMES:
        replies, fields = scenes["SCENES"][name]
        with scenes["_Stage"](replies) as stage:
            _keep(name, _reported(f"Do the {name}.", stage, fields))
    # A gateway's replies are used up: one for the report, one for the events.
    with scenes["_Stage"](_busy_twice(scenes["_reply"], scenes["READ"])) as stage:
        kept = _reported("Do it again.", stage, {})
    with scenes["_Stage"](_busy_twice(scenes["_reply"], scenes["READ"])) as stage:
        events = list(geminids.stream_sync("Do it again.", stage.options()))
        told = [_same(geminids.encode_event(event).decode(), stage.root) for event in events]
    _keep("retried", {**kept, "events": told})


def _busy_twice(reply: Any, read: Any) -> list[Any]:
    busy = {"status": 503, "error": "busy"}
    return [reply(**busy), reply(text="First. ", calls=[read]), reply(**busy), reply(text="ok")]


def _reported(prompt: str, stage: Any, fields: dict[str, Any]) -> dict[str, Any]:
    done = _run(prompt, stage.options(**fields))
    return {
        "exit_code": done.returncode,
        "stdout": _same(done.stdout, stage.root),
        "stderr": _same(done.stderr, stage.root),
    }


def _keep(name: str, kept: dict[str, Any]) -> None:
    (REPORTS / f"{name}.json").write_text(json.dumps(kept, indent=2, ensure_ascii=False) + "\n")
    print(f"{name}: exit {kept['exit_code']}")


def _run(prompt: str, options: Any) -> subprocess.CompletedProcess[str]:
    plan = build_headless(prepare(options, transport="headless", prompt=prompt), None)
    write(plan)
    argv = [word.replace("stream-json", "json") for word in plan.argv]
    return subprocess.run(
        argv,
        cwd=plan.cwd,
        env=plan.env,
        input=plan.stdin.decode(),
        capture_output=True,
        text=True,
        timeout=60,
    )


def _same(text: str, root: Path) -> str:
    """The same ids, times and places in each recording."""
    text = text.replace(str(root), "/made/up").replace(str(Places.of().root), "/made/up/geminids")
    text = _UUID.sub("5f0c0f5e-0000-4000-8000-000000000001", text)
    return _LATENCY.sub(r"\g<1>5", text)


if __name__ == "__main__":
    main()
