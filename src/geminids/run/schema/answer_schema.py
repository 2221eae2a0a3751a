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


class AnswerSchema(msgspec.Struct, frozen=True):
    """The JSON Schema that an answer must match, as text.

    `type` is the Python type from which the schema was created, or None. `by_pydantic` is True if
    pydantic created the schema.
    """

    text: str
    type: Any = None
    by_pydantic: bool = False

    @property
    def schema(self) -> Any:
        return json.loads(self.text)

    def instruction(self) -> str:
        """Return the text that asks the model to follow the schema. It is added to the prompt."""
        # Escape every @ (JSON allows that), because the CLI would include the file for `@name`.
        text = self.text.replace("@", "\\u0040")
        return (
            "When you are done, end with one JSON value, in a ```json block, that matches this JSON Schema. "
            f"A program reads the last block.\n\n```json\n{text}\n```"
        )

    def value_of(self, value: Any) -> Any:
        """Convert a valid JSON value to the Python type from which the schema was created.

        If there is no such type, return the value unchanged. Raises `ValueError` if the value
        cannot be converted.
        """
        if self.type is None:
            return value
        if self.by_pydantic:
            # Pass JSON: a strict pydantic model then accepts a date as text. The errors of pydantic
            # are ValueErrors.
            return _type_adapter()(self.type).validate_json(json.dumps(value))
        try:
            return msgspec.convert(value, self.type, str_keys=True)
        except msgspec.ValidationError as error:
            raise ValueError(str(error)) from None


def answer_schema_of(source: Any) -> AnswerSchema:
    """Create the schema of an answer from JSON text, a mapping, a bool or a Python type.

    Raises `OptionsError` if the source cannot be converted to a schema, or the schema is not valid.
    """
    if isinstance(source, str):
        try:
            json_schema: Any = json.loads(source)
        except ValueError as error:
            raise _invalid(f"is not JSON: {error}") from None
        except RecursionError:
            raise _invalid("has objects or arrays that are nested too deeply") from None
        schema = AnswerSchema(_text(json_schema))
    elif isinstance(source, (Mapping, bool)):
        schema = AnswerSchema(_text(dict(source) if isinstance(source, Mapping) else source))
    else:
        json_schema, by_pydantic = _schema_of_type(source)
        schema = AnswerSchema(_text(json_schema), source, by_pydantic)
    # Imported late, because it imports jsonschema, and most runs have no schema.
    from geminids.run.schema.answer_json import check_schema

    try:
        check_schema(schema.schema)
    except ValueError as error:
        raise _invalid(str(error)) from None
    return schema


def schema_option(source: Any) -> tuple[AnswerSchema | None, str | None]:
    """Return the schema of an answer as an object, and as JSON text for `Options.schema`.

    `source` is JSON text, a mapping, a bool or a Python type. If it is None, both results are None.
    """
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
        raise _invalid(f"has {len(text):,} characters; the maximum is {_LONGEST:,}")
    return text


def _schema_of_type(source: Any) -> tuple[Any, bool]:
    """Return the JSON Schema of a Python type, and whether pydantic created it.

    msgspec is tried first. It does not accept pydantic models, so pydantic is tried next.
    """
    try:
        return msgspec.json.schema(source), False
    except Exception as error:  # annotations of a caller's type can raise anything
        _log.debug("msgspec cannot make a schema of %r", source, error=error)
        why = str(error).partition("\n")[0]
    try:
        type_adapter = _type_adapter()
    except ImportError:
        raise _invalid(
            f"cannot be converted to a JSON Schema: {why} (pydantic models need pydantic 2 or newer)"
        ) from None
    try:
        return type_adapter(source).json_schema(), True
    except Exception as error:
        _log.debug("pydantic cannot make a schema of %r", source, error=error)
        raise _invalid(f"{source!r} cannot be converted to a JSON Schema: {why}") from None


def _type_adapter() -> Any:
    from pydantic import TypeAdapter  # an optional dependency

    return TypeAdapter
