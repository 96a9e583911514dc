"""Tenants with a worker each, on a broker with an authorizer: none reads what is another's."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from attrs import frozen
from confluent_kafka.admin import AdminClient, NewTopic

from tests import reading
from tests.applications import SHOP
from tests.commands import Commands, Ended, produce
from tests.integration.access import allow_planned
from tests.plans import Printed, from_shell
from tests.topics import make
from window_consumer.model.errors import NotPermittedError
from window_consumer.model.log_events import LogEvent
from window_consumer.testing.real_kafka import RealKafka

TENANTS = ("alice", "bob")
"""Tenants are named as their principals."""


@frozen
class Tenants:
    """One configuration for all tenants, with the tenant in the names of topic and group."""

    kafka: RealKafka
    commands: Commands
    base: str

    def configure(self) -> None:
        self.commands.application(SHOP)
        client = {
            **self.kafka.sasl_settings("alice"),
            "sasl.username": "${TENANT}",
            "sasl.password": "${PASSWORD}",
        }
        worker = {
            "topics": [f"{self.base}-${{TENANT}}-orders"],
            "group": f"{self.base}-${{TENANT}}",
            "retry": {"levels": ["100ms"], "on_failure": "overtake"},
        }
        self.commands.configure({"kafka": client, "workers": {"charge": worker}})

    def source(self, tenant: str) -> str:
        return f"{self.base}-{tenant}-orders"

    def environment(self, tenant: str, principal: str | None = None) -> dict[str, str]:
        return {"TENANT": tenant, "PASSWORD": self.kafka.passwords[principal or tenant]}

    def plan(self, tenant: str) -> Printed:
        """Return the topics and ACLs that ``topics plan`` prints for a tenant."""
        address = f"kafka.bootstrap.servers={self.kafka.bootstrap}"
        plain = ("--set", address, "--set", "kafka.security.protocol=PLAINTEXT")
        ended = self.commands.run(
            "topics", "plan", *plain, "--principal", f"User:{tenant}", env=self.environment(tenant)
        )
        assert ended.code == 0, ended.err
        return from_shell(ended.out)

    def run_with_a_dead_letter(self, tenant: str) -> None:
        produce(self.kafka.bootstrap, self.source(tenant), b"poison")
        running = self.commands.start("run", "shop:app", env=self.environment(tenant))
        running.wait_for_event(LogEvent.CALL_FAILED)
        ended = running.stop()
        assert ended.code == 0
        assert ended.summary() == {"dead_lettered": 1}

    def run_as(self, principal: str, tenant: str) -> Ended:
        """Run a tenant's worker with the login of another."""
        return self.commands.run(
            "run",
            "shop:app",
            "--set",
            f"kafka.sasl.username={principal}",
            env=self.environment(tenant, principal),
        )


@pytest.fixture
def tenants(kafka: RealKafka, commands: Commands, unique_name: Callable[[str], str]) -> Tenants:
    tenants = Tenants(kafka, commands, unique_name("shop"))
    tenants.configure()
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    make(admin, *(NewTopic(tenants.source(tenant), 1, 1) for tenant in TENANTS))
    for tenant in TENANTS:
        allow_planned(admin, tenants.plan(tenant).acls)
    return tenants


def test_no_tenant_reads_topics_retries_or_dead_letters_of_another(tenants: Tenants) -> None:
    for tenant in TENANTS:
        tenants.run_with_a_dead_letter(tenant)
    for tenant, other in (TENANTS, TENANTS[::-1]):
        group = f"{tenants.base}-{tenant}"
        source = tenants.source(tenant)
        for topic in (source, f"{group}.{source}.retry.100ms", f"{group}.{source}.dlq"):
            reading.read_all(tenants.kafka.sasl_settings(tenant), topic)
            with pytest.raises(NotPermittedError):
                reading.read_all(tenants.kafka.sasl_settings(other), topic)
        ended = tenants.run_as(other, tenant)
        assert ended.code == 2
        assert source in ended.err
