"""Record what `--output-format json` prints for the scenes of record_events, in
tests/recordings/reports.

    python tests/recorders/record_reports.py

The `record` dialect must give the same record for these reports as for the recorded events. The
file `retried` also contains its events.
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
# Scenes that end by themselves. A run that is stopped from outside prints no report.
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
            _save(name, _record_report(f"Do the {name}.", stage, fields))
    # A gateway uses each reply once, so the report and the events need a gateway each.
    with scenes["_Stage"](_replies_with_two_errors(scenes["_reply"], scenes["READ"])) as stage:
        report = _record_report("Do it again.", stage, {})
    with scenes["_Stage"](_replies_with_two_errors(scenes["_reply"], scenes["READ"])) as stage:
        events = list(geminids.stream_sync("Do it again.", stage.options()))
        lines = [_normalize(geminids.encode_event(event).decode(), stage.root) for event in events]
    _save("retried", {**report, "events": lines})


def _replies_with_two_errors(reply: Any, read: Any) -> list[Any]:
    error = {"status": 503, "error": "busy"}
    return [reply(**error), reply(text="First. ", calls=[read]), reply(**error), reply(text="ok")]


def _record_report(prompt: str, stage: Any, fields: dict[str, Any]) -> dict[str, Any]:
    done = _run_with_json_output(prompt, stage.options(**fields))
    return {
        "exit_code": done.returncode,
        "stdout": _normalize(done.stdout, stage.root),
        "stderr": _normalize(done.stderr, stage.root),
    }


def _save(name: str, report: dict[str, Any]) -> None:
    (REPORTS / f"{name}.json").write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n")
    print(f"{name}: exit {report['exit_code']}")


def _run_with_json_output(prompt: str, options: Any) -> subprocess.CompletedProcess[str]:
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


def _normalize(text: str, root: Path) -> str:
    """Replace ids, times and paths by fixed values."""
    text = text.replace(str(root), "/made/up").replace(str(Places.of().root), "/made/up/geminids")
    text = _UUID.sub("5f0c0f5e-0000-4000-8000-000000000001", text)
    return _LATENCY.sub(r"\g<1>5", text)


if __name__ == "__main__":
    main()
