"""Make one measurement in its own process, to measure its memory, and print one line of JSON.

python -m benchmarks.worker geminids|lrilai FOLDER SCRIPT WARM_UP_SCRIPT
"""

from __future__ import annotations

import json
import resource
import sys
import threading
import time
from typing import Any

import anyio
import psutil


async def geminids(script: str, folder: str) -> int:
    """Read every event of a run, up to `Finished` and the end of the `async with` block."""
    import geminids as ours

    count = 0
    async with ours.open_run("hi", gemini=script, home="isolated", cwd=folder) as run:
        async for _ in run:
            count += 1
    run.result.raise_for_failure()
    return count


async def lrilai(script: str, folder: str) -> int:
    """Read every chunk of a query, up to `result`: the library's work after that is not counted."""
    import gemini_sdk

    count = 0
    async for chunk in gemini_sdk.query({"prompt": "hi", "cli_path": script, "cwd": folder}):
        count += 1
        if chunk["type"] == "result":
            break
    return count


def peak() -> int:
    """Return the peak memory in bytes.

    Prefers VmHWM, because ru_maxrss starts at the parent's value.
    """
    try:
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


async def measure(side: Any, script: str, warm_up: str, folder: str) -> dict[str, float]:
    await side(warm_up, folder)
    # A thread loads the price list once per process: 20 MB that do not grow with the events.
    for thread in threading.enumerate():
        if thread.name == "geminids-prices":
            thread.join()
    before = psutil.Process().memory_info().rss
    wall, cpu = time.perf_counter(), time.process_time()
    count = await side(script, folder)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return {"count": count, "seconds": wall, "cpu_seconds": cpu, "megabytes": (peak() - before) / 1e6}


if __name__ == "__main__":
    side_of = {"geminids": geminids, "lrilai": lrilai}
    _, which, work, big, small = sys.argv
    print(json.dumps(anyio.run(measure, side_of[which], big, small, work)))
