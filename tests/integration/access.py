"""What a user of the real Kafka may do, granted and taken away while tests run."""

from __future__ import annotations

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

_KINDS = {"topic": ResourceType.TOPIC, "group": ResourceType.GROUP}


@frozen
class Access:
    """The ACLs of one user."""

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
        for future in self.admin.create_acls(bindings).values():
            future.result(30)

    def take_away(self, kind: str, name: str) -> None:
        """Take everything away that was granted on it."""
        what = AclBindingFilter(
            _KINDS[kind],
            name,
            ResourcePatternType.LITERAL,
            f"User:{self.user}",
            "*",
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        for future in self.admin.delete_acls([what]).values():
            assert future.result(30)
