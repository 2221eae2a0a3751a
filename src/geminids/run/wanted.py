"""The form that an answer shall have: a JSON Schema, or a type that one can be made of."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from geminids.errors import OptionsError

__all__ = ["Wanted", "wanted_of"]

_LONGEST = 200_000


class Wanted(msgspec.Struct, frozen=True):
    """A schema as text that can be stored and sent; `type` turns a value into the caller's own, where there is one."""

    text: str
    type: Any = None
    by_pydantic: bool = False

    @property
    def schema(self) -> Any:
        return json.loads(self.text)

    def instruction(self) -> str:
        """What the model is told, behind the prompt."""
        return (
            "When you are done, end with one JSON value, in a ```json block, that is valid by this JSON Schema. "
            f"The last block is read by a program.\n\n```json\n{self.text}\n```"
        )

    def value_of(self, value: Any) -> Any:
        """The caller's own type of a value that is valid; raises `ValueError` where the type refuses it."""
        if self.type is None:
            return value
        if self.by_pydantic:
            from pydantic import TypeAdapter

            return TypeAdapter(self.type).validate_python(value)  # its errors are ValueErrors
        try:
            return msgspec.convert(value, self.type)
        except msgspec.ValidationError as error:
            raise ValueError(str(error)) from None


def wanted_of(given: Any) -> Wanted:
    """A schema that was given as JSON text, a mapping, or a type; raises `OptionsError` where it is none."""
    if isinstance(given, str):
        try:
            schema: Any = json.loads(given)
        except ValueError as error:
            raise OptionsError([("schema", f"is not JSON: {error}")]) from None
        made = Wanted(_text(schema))
    elif isinstance(given, (Mapping, bool)):
        made = Wanted(_text(dict(given) if isinstance(given, Mapping) else given))
    else:
        schema, by_pydantic = _schema_of(given)
        made = Wanted(_text(schema), given, by_pydantic)
    _check(made.schema)
    return made


def _text(schema: Any) -> str:
    try:
        text = json.dumps(schema, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise OptionsError([("schema", f"is not JSON: {error}")]) from None
    if len(text) > _LONGEST:
        raise OptionsError([("schema", f"has {len(text):,} characters; the most is {_LONGEST:,}")])
    return text


def _schema_of(given: Any) -> tuple[Any, bool]:
    """The JSON Schema of a type, and whether pydantic made it: msgspec is asked first, and knows no models."""
    try:
        return msgspec.json.schema(given), False
    except (TypeError, RuntimeError) as error:
        why = str(error).partition("\n")[0]
    try:
        from pydantic import PydanticSchemaGenerationError, TypeAdapter
    except ImportError:
        raise OptionsError([("schema", f"no JSON Schema can be made of it: {why}")]) from None
    try:
        return TypeAdapter(given).json_schema(), True
    except (PydanticSchemaGenerationError, TypeError, ValueError):
        raise OptionsError([("schema", f"no JSON Schema can be made of {given!r}")]) from None


def _check(schema: Any) -> None:
    """A schema that is itself wrong is refused before anything is started."""
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import validator_for

    if not isinstance(schema, (dict, bool)):
        raise OptionsError([("schema", "is neither an object nor true or false")])
    try:
        if isinstance(schema, dict):
            validator_for(schema).check_schema(schema)
    except SchemaError as error:
        where = "/".join(map(str, error.absolute_path))
        raise OptionsError([("schema", f"is no valid JSON Schema: {error.message} (at /{where})")]) from None
