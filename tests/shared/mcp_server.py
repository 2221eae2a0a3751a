"""A small MCP server with one tool, `poke`.

It creates the file `<name>` when it starts, and the file `<name>-poked` when the tool is called."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def answer(method: str, marks: Path, name: str) -> dict[str, Any] | None:
    """Return the result for a request, or None if the method is unknown."""
    if method == "initialize":
        info = {"name": name, "version": "1"}
        return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        schema = {"type": "object", "properties": {}}
        return {"tools": [{"name": "poke", "description": f"pokes {name}", "inputSchema": schema}]}
    if method == "tools/call":
        (marks / f"{name}-poked").touch()
        return {"content": [{"type": "text", "text": f"{name} was poked"}]}
    return {} if method == "ping" else None


def main() -> None:
    marks, name = Path(sys.argv[1]), sys.argv[2]
    (marks / name).touch()
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request:
            continue
        response: dict[str, Any] = {"jsonrpc": "2.0", "id": request["id"]}
        result = answer(request.get("method", ""), marks, name)
        response |= (
            {"error": {"code": -32601, "message": "no such method"}} if result is None else {"result": result}
        )
        print(json.dumps(response), flush=True)


if __name__ == "__main__":
    main()
