"""Messages of the Agent Client Protocol, made by the models of `agent-client-protocol`: any that these allow."""

from __future__ import annotations

import functools
import types
import typing
from enum import Enum
from typing import Any

import pytest
from hypothesis import strategies as st

__all__ = ["JSON", "dumped", "made", "schema"]

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
    """The models; the test is skipped where they cannot be had."""
    return pytest.importorskip("acp.schema", reason="agent-client-protocol is not installed (extra: dev)")


def made(model: Any) -> st.SearchStrategy[Any]:
    """Any instance of a model."""
    return _json_of(model).map(model.model_validate)


def dumped(model: Any) -> dict[str, Any]:
    """A model as the protocol writes it."""
    found: dict[str, Any] = model.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return found


@functools.cache
def _json_of(kind: Any) -> st.SearchStrategy[Any]:
    """The JSON values that a type allows."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        return _bounded(inner[1:]) if inner[0] is int else _json_of(inner[0])
    if origin in (typing.Union, types.UnionType):
        return st.one_of([_json_of(one) for one in inner])
    if origin is list:
        return st.lists(_json_of(inner[0]), max_size=2)
    if origin is dict:
        return st.dictionaries(st.text(max_size=6), _json_of(inner[1]), max_size=2)
    if origin is typing.Literal:
        return st.sampled_from(inner)
    if kind in _PLAIN:
        return _PLAIN[kind]
    return st.integers(0, 2**31) if kind is int else _of_class(kind)


def _of_class(kind: Any) -> st.SearchStrategy[Any]:
    if issubclass(kind, Enum):
        return st.sampled_from([one.value for one in kind])
    fields = getattr(kind, "model_fields", None)
    if fields is None:
        return st.just("http://127.0.0.1/")  # an address
    if "root" in fields:
        return _json_of(fields["root"].annotation)
    values = {field.alias or name: _of_field(field) for name, field in fields.items()}
    needed = {field.alias or name for name, field in fields.items() if field.is_required()}
    return st.fixed_dictionaries(
        {name: value for name, value in values.items() if name in needed},
        optional={name: value for name, value in values.items() if name not in needed},
    )


def _of_field(field: Any) -> st.SearchStrategy[Any]:
    if field.annotation is int and field.metadata:
        return _bounded(field.metadata)
    return _json_of(field.annotation)


def _bounded(metadata: Any) -> st.SearchStrategy[int]:
    lowest = [one.ge for one in metadata if getattr(one, "ge", None) is not None]
    highest = [one.le for one in metadata if getattr(one, "le", None) is not None]
    return st.integers(max([0, *lowest]), min([2**31, *highest]))
