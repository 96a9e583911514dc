"""Permissions of a user of the real Kafka, granted and revoked while tests run."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from attrs import frozen
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from tests.plans import Acl
from tests.waiting import wait_until

_PLANNED_KINDS = {"transactional": "TRANSACTIONAL_ID"}

_PLANNED_OPERATIONS = {"DescribeConfigs": "DESCRIBE_CONFIGS"}

_KINDS = {"topic": ResourceType.TOPIC, "group": ResourceType.GROUP}


DEADLINE_S = 60.0


@frozen
class Access:
    """The ACLs of one user; the broker knows of each change when a call returns."""

    admin: AdminClient
    user: str

    def grant(self, kind: str, name: str, *operations: str) -> None:
        bindings = [
            AclBinding(
                _KINDS[kind],
                name,
                ResourcePatternType.LITERAL,
                f"User:{self.user}",
                "*",
                AclOperation[operation],
                AclPermissionType.ALLOW,
            )
            for operation in operations
        ]
        allow(self.admin, *bindings)

    def take_away(self, kind: str, name: str) -> None:
        """Take everything away that was granted on it."""
        granted = self._granted(kind, name)
        for future in self.admin.delete_acls([granted]).values():
            assert future.result(DEADLINE_S)
        wait_until(
            lambda: not self.admin.describe_acls(granted).result(DEADLINE_S),
            DEADLINE_S,
            f"the broker has no {granted}",
        )

    def _granted(self, kind: str, name: str) -> AclBindingFilter:
        return AclBindingFilter(
            _KINDS[kind],
            name,
            ResourcePatternType.LITERAL,
            f"User:{self.user}",
            "*",
            AclOperation.ANY,
            AclPermissionType.ANY,
        )


def allow(admin: AdminClient, *bindings: AclBinding) -> None:
    """Create ACLs, and return when the broker, which learns of them from the controller, has
    them."""
    for future in admin.create_acls(list(bindings)).values():
        future.result(DEADLINE_S)
    for each in bindings:
        wait_until(partial(_has, admin, each), DEADLINE_S, f"the broker has {each}")


def allow_planned(admin: AdminClient, acls: Iterable[Acl]) -> None:
    """Make the ACLs that ``topics plan`` has printed."""
    bindings = [
        AclBinding(
            ResourceType[_PLANNED_KINDS.get(each.kind, each.kind.upper())],
            each.name,
            ResourcePatternType.PREFIXED if each.is_prefix else ResourcePatternType.LITERAL,
            each.principal,
            "*",
            AclOperation[_PLANNED_OPERATIONS.get(each.operation, each.operation.upper())],
            AclPermissionType.ALLOW,
        )
        for each in acls
    ]
    allow(admin, *bindings)


def _has(admin: AdminClient, one: AclBinding) -> bool:
    exactly = AclBindingFilter(
        one.restype,
        one.name,
        one.resource_pattern_type,
        one.principal,
        one.host,
        one.operation,
        one.permission_type,
    )
    return bool(admin.describe_acls(exactly).result(DEADLINE_S))
