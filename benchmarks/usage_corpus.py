"""Create many stored sessions from recorded ones, with new ids, days, token counts and outputs."""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["make_corpus"]

_ROOT = Path(__file__).parents[1]
_RECORDED = _ROOT / "tests" / "recordings"
# Recorded sessions of three releases, and their share of ten sessions.
_KINDS = (
    ("0.61.0/session-2026-11-16T07-24-2442f7e8.jsonl", 6),
    ("0.41.2/session-2026-11-16T07-24-4ea6ce31.jsonl", 3),
    ("0.24.0/session-2026-11-16T07-24-b957c4a2.json", 1),
)
_MODELS = ("gemini-2.5-pro", "gemini-2.5-flash", "gemini-3.8-flash")
_PROJECTS = 8
_OUTPUTS = ("output", "resultDisplay")


def make_corpus(gemini: Path, *, sessions: int, size: int) -> int:
    """Fill `tmp` of a `.gemini` folder with sessions of about `size` bytes; return the total size."""
    rng = random.Random(8)
    text = "".join(file.read_text() for file in sorted((_ROOT / "src/geminids/run").glob("*.py")))
    kinds = [name for name, share in _KINDS for _ in range(share)]
    total = 0
    for number in range(sessions):
        chats = gemini / "tmp" / f"app-{number % _PROJECTS}" / "chats"
        chats.mkdir(parents=True, exist_ok=True)
        (chats.parent / ".project_root").write_text(f"/repo/app-{number % _PROJECTS}")
        total += _session(chats, _RECORDED / kinds[number % len(kinds)], size, text, rng, number)
    return total


def _session(chats: Path, recorded: Path, size: int, text: str, rng: random.Random, number: int) -> int:
    session = str(uuid.UUID(int=rng.getrandbits(128), version=4))
    file = chats / f"session-2026-10-01T10-00-{session[:8]}{recorded.suffix}"
    legacy = recorded.suffix == ".json"
    data = recorded.read_text()
    whole = json.loads(data) if legacy else None
    records = whole["messages"] if whole else [json.loads(line) for line in data.splitlines()]
    header = {**(whole or records[0]), "sessionId": session}
    messages: list[Any] = []
    written = 0
    turn = 0
    while written < size:
        turn += 1
        for record in _varied(records, text, rng, number, turn):
            messages.append(record)
            written += len(json.dumps(record, indent=2 if legacy else None))
    if legacy:
        file.write_text(json.dumps({**header, "messages": messages}, indent=2))
    else:
        file.write_text("".join(_line(record) for record in [header, *messages]))
    return file.stat().st_size


def _line(record: Any) -> str:
    return json.dumps(record, separators=(",", ":"), ensure_ascii=False) + "\n"


def _varied(records: list[Any], text: str, rng: random.Random, number: int, turn: int) -> Iterator[Any]:
    """Yield the records of a turn with new ids, token counts and outputs.

    Repeated records share an id.
    """
    ids: dict[str, str] = {}
    tokens: dict[str, Any] = {}
    # A session is on one day; the hour grows with each turn.
    day = f"2026-{8 + number % 3:02}-{1 + number % 28:02}T{8 + turn % 12:02}"
    model = _MODELS[number % len(_MODELS)]
    start = rng.randrange(len(text))
    output = text[start : start + rng.randint(200, 12_000)]
    for record in records:
        if "id" not in record:
            if "$set" in record and "messages" not in record["$set"]:
                yield record
            continue
        old = record["id"]
        new = ids.setdefault(old, str(uuid.UUID(int=rng.getrandbits(128), version=4)))
        varied = {**record, "id": new, "timestamp": day + record["timestamp"][13:]}
        if record.get("tokens"):
            varied["tokens"] = tokens.setdefault(old, _amounts(rng))
            varied["model"] = model
        yield _longer(varied, output)


def _amounts(rng: random.Random) -> dict[str, int]:
    prompt, output, thoughts = rng.randint(1000, 260_000), rng.randint(5, 3000), rng.randint(0, 2000)
    cached = rng.randint(1, prompt)
    total = prompt + output + thoughts
    return {
        "input": prompt,
        "output": output,
        "cached": cached,
        "thoughts": thoughts,
        "tool": 0,
        "total": total,
    }


def _longer(value: Any, output: str) -> Any:
    """Replace tool outputs with `output`, which has a realistic length."""
    if isinstance(value, dict):
        return {
            name: inner if name == "tokens" else output if name in _OUTPUTS else _longer(inner, output)
            for name, inner in value.items()
        }
    return [_longer(inner, output) for inner in value] if isinstance(value, list) else value
