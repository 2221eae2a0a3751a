"""Hypothesis strategies for random valid messages of the Agent Client Protocol (ACP).

The models of the package `agent-client-protocol` define which messages are valid."""

from __future__ import annotations

import functools
import types
import typing
from enum import Enum
from typing import Any

import pytest
from hypothesis import strategies as st

__all__ = ["JSON", "instances_of", "schema", "to_message"]

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=6), inner, max_size=2),
    max_leaves=4,
)
_PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    str: st.text(max_size=12),
    bool: st.booleans(),
    float: st.floats(0, 1e6),
    type(None): st.none(),
    Any: JSON,
}


def schema() -> Any:
    """Return the module with the ACP models. Skip the test if the package is not installed."""
    return pytest.importorskip("acp.schema", reason="agent-client-protocol is not installed (extra: dev)")


def instances_of(model: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for any instance of a model."""
    return _json_values(model).map(model.model_validate)


def to_message(model: Any) -> dict[str, Any]:
    """Return the JSON object that the protocol sends for a model instance."""
    message: dict[str, Any] = model.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return message


@functools.cache
def _json_values(kind: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for the JSON values that a type allows."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        return _bounded_integers(inner[1:]) if inner[0] is int else _json_values(inner[0])
    if origin in (typing.Union, types.UnionType):
        return st.one_of([_json_values(member) for member in inner])
    if origin is list:
        return st.lists(_json_values(inner[0]), max_size=2)
    if origin is dict:
        return st.dictionaries(st.text(max_size=6), _json_values(inner[1]), max_size=2)
    if origin is typing.Literal:
        return st.sampled_from(inner)
    if kind in _PLAIN:
        return _PLAIN[kind]
    return st.integers(0, 2**31) if kind is int else _class_values(kind)


def _class_values(kind: Any) -> st.SearchStrategy[Any]:
    if issubclass(kind, Enum):
        return st.sampled_from([member.value for member in kind])
    fields = getattr(kind, "model_fields", None)
    if fields is None:
        return st.just("http://127.0.0.1/")  # the only other type in the models is a URL
    if "root" in fields:
        return _json_values(fields["root"].annotation)
    values = {field.alias or name: _field_values(field) for name, field in fields.items()}
    needed = {field.alias or name for name, field in fields.items() if field.is_required()}
    return st.fixed_dictionaries(
        {name: value for name, value in values.items() if name in needed},
        optional={name: value for name, value in values.items() if name not in needed},
    )


def _field_values(field: Any) -> st.SearchStrategy[Any]:
    if field.annotation is int and field.metadata:
        return _bounded_integers(field.metadata)
    return _json_values(field.annotation)


def _bounded_integers(metadata: Any) -> st.SearchStrategy[int]:
    minimums = [limit.ge for limit in metadata if getattr(limit, "ge", None) is not None]
    maximums = [limit.le for limit in metadata if getattr(limit, "le", None) is not None]
    return st.integers(max([0, *minimums]), min([2**31, *maximums]))
