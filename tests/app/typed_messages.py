"""The same order in the forms that applications write."""

from __future__ import annotations

import dataclasses
from typing import Any, TypedDict

import attrs
import msgspec
import pydantic


@attrs.frozen
class Attrs:
    id: int
    customer: str
    note: str | None = None


@dataclasses.dataclass
class Dataclass:
    id: int
    customer: str
    note: str | None = None


class Struct(msgspec.Struct):
    id: int
    customer: str
    note: str | None = None


class Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)
    id: int
    customer: str
    note: str | None = None


@pydantic.dataclasses.dataclass(config=pydantic.ConfigDict(strict=True))
class PydanticDataclass:
    id: int
    customer: str
    note: str | None = None


class Typed(TypedDict):
    id: int
    customer: str


def fields_of(order: Any) -> tuple[int, str]:
    """Return what each of them has."""
    if isinstance(order, dict):
        return order["id"], order["customer"]
    return order.id, order.customer
