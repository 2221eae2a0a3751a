"""The form that an answer shall have: a JSON Schema, or a type that one can be made of."""

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
    """A schema as text that can be stored and sent; `type` turns a value into the caller's own, where there is one."""

    text: str
    type: Any = None
    by_pydantic: bool = False

    @property
    def schema(self) -> Any:
        return json.loads(self.text)

    def instruction(self) -> str:
        """What the model is told, behind the prompt."""
        # As JSON an @ can be written otherwise: the CLI would take it for a file to put in.
        text = self.text.replace("@", "\\u0040")
        return (
            "When you are done, end with one JSON value, in a ```json block, that is valid by this JSON Schema. "
            f"The last block is read by a program.\n\n```json\n{text}\n```"
        )

    def value_of(self, value: Any) -> Any:
        """The caller's own type of a value that is valid; raises `ValueError` where the type refuses it."""
        if self.type is None:
            return value
        if self.by_pydantic:
            from pydantic import TypeAdapter

            # As JSON, so that a strict model takes a date; its errors are ValueErrors.
            return TypeAdapter(self.type).validate_json(json.dumps(value))
        try:
            return msgspec.convert(value, self.type, str_keys=True)
        except msgspec.ValidationError as error:
            raise ValueError(str(error)) from None


def answer_schema_of(given: Any) -> AnswerSchema:
    """A schema that was given as JSON text, a mapping, or a type; raises `OptionsError` where it is none."""
    if isinstance(given, str):
        try:
            schema: Any = json.loads(given)
        except ValueError as error:
            raise _refused(f"is not JSON: {error}") from None
        except RecursionError:
            raise _refused("is nested too deeply") from None
        made = AnswerSchema(_text(schema))
    elif isinstance(given, (Mapping, bool)):
        made = AnswerSchema(_text(dict(given) if isinstance(given, Mapping) else given))
    else:
        schema, by_pydantic = _schema_of(given)
        made = AnswerSchema(_text(schema), given, by_pydantic)
    _check(made.schema)
    return made


def schema_option(given: Any) -> tuple[AnswerSchema | None, str | None]:
    """The schema of an answer and its text, which is what `Options.schema` holds."""
    if given is None:
        return None, None
    wanted = answer_schema_of(given)
    return wanted, wanted.text


def _refused(why: str) -> OptionsError:
    return OptionsError([("schema", why)])


def _text(schema: Any) -> str:
    try:
        text = json.dumps(schema, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise _refused(f"is not JSON: {error}") from None
    if len(text) > _LONGEST:
        raise _refused(f"has {len(text):,} characters; the most is {_LONGEST:,}")
    return text


def _schema_of(given: Any) -> tuple[Any, bool]:
    """The JSON Schema of a type, and whether pydantic made it: msgspec is asked first, and knows no models."""
    try:
        return msgspec.json.schema(given), False
    except Exception as error:  # whatever the annotations of somebody's type lead to
        _log.debug("msgspec makes no schema of %r", given, error=error)
        why = str(error).partition("\n")[0]
    try:
        from pydantic import TypeAdapter
    except ImportError:
        raise _refused(
            f"no JSON Schema can be made of it: {why} (pydantic models need pydantic 2 or newer)"
        ) from None
    try:
        return TypeAdapter(given).json_schema(), True
    except Exception as error:
        _log.debug("pydantic makes no schema of %r", given, error=error)
        raise _refused(f"no JSON Schema can be made of {given!r}: {why}") from None


def _check(schema: Any) -> None:
    """A schema that is itself wrong is refused before anything is started."""
    from jsonschema.exceptions import SchemaError

    from geminids.run.schema.answer_json import validator_of

    if not isinstance(schema, (dict, bool)):
        raise _refused("is neither an object nor true or false")
    try:
        if isinstance(schema, dict):
            validator_of(schema).check_schema(schema)
            _check_references(schema)
    except SchemaError as error:
        where = "/".join(map(str, error.absolute_path))
        raise _refused(f"is no valid JSON Schema: {error.message[:500]} (at /{where})") from None
    except RecursionError:
        raise _refused("is nested too deeply") from None


def _check_references(schema: dict[str, Any]) -> None:
    """What a meta-schema cannot know: where references lead."""
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
                raise _refused(
                    f"refers to {str(error.ref)[:200]!r}, which is not in it; nothing is fetched: put it into $defs"
                ) from None
        todo += [(inner, near.in_subresource(inner)) for inner in part.subresources()]


def _follow(contents: Any, resolver: Any) -> None:
    for _ in range(_MOST_HOPS):
        ref = contents.get("$ref") if isinstance(contents, dict) else None
        if not isinstance(ref, str):
            return
        found = resolver.lookup(ref)
        contents, resolver = found.contents, found.resolver
    raise _refused(f"has a reference that leads to itself: {str(ref)[:200]!r}")
