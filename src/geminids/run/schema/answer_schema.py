"""The schema of an answer: a JSON Schema, or a Python type that is converted to one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from geminids.errors import OptionsError
from geminids.log import get_logger

__all__ = ["AnswerSchema", "answer_schema_of", "schema_option"]

_log = get_logger("run")

_LONGEST = 200_000
_MOST_HOPS = 100


class AnswerSchema(msgspec.Struct, frozen=True):
    """A JSON Schema as text. `type` is the Python type that it was made from, if any."""

    text: str
    type: Any = None
    by_pydantic: bool = False

    @property
    def schema(self) -> Any:
        return json.loads(self.text)

    def instruction(self) -> str:
        """The instruction that is appended to the prompt."""
        # Escape @ as JSON allows: the CLI would read @name as a file to include.
        text = self.text.replace("@", "\\u0040")
        return (
            "When you are done, end with one JSON value, in a ```json block, that matches this JSON Schema. "
            f"A program reads the last block.\n\n```json\n{text}\n```"
        )

    def value_of(self, value: Any) -> Any:
        """Convert a valid value to the caller's type; raises `ValueError` if that fails."""
        if self.type is None:
            return value
        if self.by_pydantic:
            from pydantic import TypeAdapter

            # As JSON, so that a strict model accepts a date as text. pydantic's errors are
            # ValueErrors.
            return TypeAdapter(self.type).validate_json(json.dumps(value))
        try:
            return msgspec.convert(value, self.type, str_keys=True)
        except msgspec.ValidationError as error:
            raise ValueError(str(error)) from None


def answer_schema_of(source: Any) -> AnswerSchema:
    """The schema from JSON text, a mapping or a Python type; raises `OptionsError`."""
    if isinstance(source, str):
        try:
            json_schema: Any = json.loads(source)
        except ValueError as error:
            raise _invalid(f"is not JSON: {error}") from None
        except RecursionError:
            raise _invalid("is nested too deeply") from None
        schema = AnswerSchema(_text(json_schema))
    elif isinstance(source, (Mapping, bool)):
        schema = AnswerSchema(_text(dict(source) if isinstance(source, Mapping) else source))
    else:
        json_schema, by_pydantic = _schema_of_type(source)
        schema = AnswerSchema(_text(json_schema), source, by_pydantic)
    _check(schema.schema)
    return schema


def schema_option(source: Any) -> tuple[AnswerSchema | None, str | None]:
    """The schema of an answer, and its text for `Options.schema`; None if there is no schema."""
    if source is None:
        return None, None
    schema = answer_schema_of(source)
    return schema, schema.text


def _invalid(why: str) -> OptionsError:
    return OptionsError([("schema", why)])


def _text(schema: Any) -> str:
    try:
        text = json.dumps(schema, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise _invalid(f"is not JSON: {error}") from None
    if len(text) > _LONGEST:
        raise _invalid(f"has {len(text):,} characters; the most is {_LONGEST:,}")
    return text


def _schema_of_type(source: Any) -> tuple[Any, bool]:
    """The JSON Schema of a type, and whether pydantic made it.

    Tries msgspec first, which rejects pydantic models.
    """
    try:
        return msgspec.json.schema(source), False
    except Exception as error:  # annotations of a caller's type can raise anything
        _log.debug("msgspec cannot make a schema of %r", source, error=error)
        why = str(error).partition("\n")[0]
    try:
        from pydantic import TypeAdapter
    except ImportError:
        raise _invalid(
            f"cannot be converted to a JSON Schema: {why} (pydantic models need pydantic 2 or newer)"
        ) from None
    try:
        return TypeAdapter(source).json_schema(), True
    except Exception as error:
        _log.debug("pydantic cannot make a schema of %r", source, error=error)
        raise _invalid(f"{source!r} cannot be converted to a JSON Schema: {why}") from None


def _check(schema: Any) -> None:
    """Raise `OptionsError` if the schema itself is invalid, before anything is started."""
    from jsonschema.exceptions import SchemaError

    from geminids.run.schema.answer_json import validator_of

    if not isinstance(schema, (dict, bool)):
        raise _invalid("must be an object, true or false")
    try:
        if isinstance(schema, dict):
            validator_of(schema).check_schema(schema)
            _check_references(schema)
    except SchemaError as error:
        where = "/".join(map(str, error.absolute_path))
        raise _invalid(f"is not a valid JSON Schema: {error.message[:500]} (at /{where})") from None
    except RecursionError:
        raise _invalid("is nested too deeply") from None


def _check_references(schema: dict[str, Any]) -> None:
    """Check that all references can be resolved, which a meta-schema cannot check."""
    from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped]
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT202012, specification_with

    from geminids.run.schema.answer_json import validator_of

    dialect = validator_of(schema).META_SCHEMA["$schema"]
    resource = specification_with(dialect, default=DRAFT202012).create_resource(schema)
    resolver = REGISTRY.with_resource("", resource).crawl().resolver_with_root(resource)
    todo = [(resource, resolver)]
    while todo:
        part, near = todo.pop()
        if isinstance(part.contents, dict):
            try:
                _follow(part.contents, near)
            except Unresolvable as error:
                ref = str(error.ref)[:200]
                raise _invalid(
                    f"refers to {ref!r}, which it does not contain; copy it into $defs (geminids fetches nothing)"
                ) from None
        todo += [(inner, near.in_subresource(inner)) for inner in part.subresources()]


def _follow(contents: Any, resolver: Any) -> None:
    for _ in range(_MOST_HOPS):
        ref = contents.get("$ref") if isinstance(contents, dict) else None
        if not isinstance(ref, str):
            return
        resolved = resolver.lookup(ref)
        contents, resolver = resolved.contents, resolved.resolver
    raise _invalid(f"has a reference that refers to itself: {str(ref)[:200]!r}")
