"""The list of features: the only place that names them."""

from __future__ import annotations

from typing import Final

from window_consumer.plan.feature_list import FeatureList

FEATURES: Final = FeatureList(
    (
        "window_consumer.metrics.feature:MetricsFeature",
        "window_consumer.admin.feature:AdminFeature",
        "window_consumer.metrics.otel.feature:OpenTelemetryFeature",
        "window_consumer.project.feature:ProjectFeature",
        "window_consumer.dev.feature:DevFeature",
        "window_consumer.demo.feature:DemoFeature",
        "window_consumer.push.feature:PushFeature",
        "window_consumer.schema_registry.feature:SchemaRegistryFeature",
        "window_consumer.dlq.feature:DlqFeature",
        "window_consumer.new_failures.feature:NewFailuresFeature",
        "window_consumer.replay.feature:ReplayFeature",
        "window_consumer.parking.feature:ParkingFeature",
        "window_consumer.delay.feature:DelayFeature",
        "window_consumer.sqs.feature:SqsFeature",
        "window_consumer.topics.feature:TopicsFeature",
        "window_consumer.spark.feature:SparkFeature",
        "window_consumer.trace.feature:TraceFeature",
        "window_consumer.audit.feature:AuditFeature",
        "window_consumer.schedules.feature:SchedulesFeature",
        "window_consumer.database.feature:DatabaseFeature",
        "window_consumer.simulator.feature:SimulatorFeature",
    )
)
"""They start in this order, which is also that of their commands, and stop in reverse. Probes come
first, to answer while the others start. The trace and the audit see what later features send."""
