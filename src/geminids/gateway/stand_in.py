"""Answers for the CLI's own side requests (the router of `auto`, loop detection): JSON that fits a schema."""

from __future__ import annotations

import json
from typing import Any

from geminids.gateway.request import Request
from geminids.gateway.script import Reply

__all__ = ["fill", "stand_in"]

# The router picks a model, the next-speaker check ends the turn: the choices that let a scripted run go on.
_PREFERRED = ("flash", "user")


def stand_in(request: Request) -> Reply | None:
    """A reply for a request that wants JSON; None for one that does not."""
    config = request.config
    schema = config.get("responseJsonSchema") or config.get("responseSchema")
    if schema is None and config.get("responseMimeType") != "application/json":
        return None
    return Reply(text=json.dumps(fill(schema or {"type": "object"})), times=None)


def fill(schema: Any) -> Any:
    """The plainest value that a JSON schema takes.

    >>> fill({"type": "OBJECT", "properties": {"model_choice": {"type": "STRING", "enum": ["pro", "flash"]}}})
    {'model_choice': 'flash'}
    """
    if not isinstance(schema, dict):
        return None
    choices = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(choices, list) and choices:
        return next((wish for wish in _PREFERRED if wish in choices), choices[0])
    for union in ("anyOf", "oneOf"):
        if isinstance(schema.get(union), list) and schema[union]:
            return fill(schema[union][0])
    return _fill_type(schema)


def _fill_type(schema: dict[str, Any]) -> Any:
    kind = schema.get("type", "object")
    kind = str(kind[0] if isinstance(kind, list) and kind else kind).lower()
    if kind == "object":
        properties = schema.get("properties")
        return {name: fill(of) for name, of in properties.items()} if isinstance(properties, dict) else {}
    if kind == "array":
        return [fill(schema.get("items"))] * int(schema.get("minItems") or 0)
    if kind in ("integer", "number"):
        # The router's score is "from 1-100" in words alone; a 0 is refused, and the dearest model taken.
        return schema.get("minimum", 1 if kind == "integer" else 0)
    return {"string": "scripted", "boolean": False}.get(kind)
