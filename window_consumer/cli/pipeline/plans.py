"""From the configuration of the pipeline to its plan."""

from __future__ import annotations

from window_consumer.config.kafka_properties import as_text
from window_consumer.config.masking import MaskRules
from window_consumer.config.pipeline import LoadedPipeline
from window_consumer.pipeline.dead_letter_reading import Reading
from window_consumer.pipeline.plan import Plan

_DAY_S = 86400


def plan_of(loaded: LoadedPipeline, master: str | None = None) -> Plan:
    """Return what is to be done; ``master`` wins over the configuration's."""
    config = loaded.config
    properties = {**config.kafka.common, **config.kafka.consumer}
    return Plan(
        kafka={key: as_text(value) for key, value in properties.items()},
        directory=loaded.directory,
        master=master or config.spark.master,
        spark=config.spark.properties,
        trace_topic=config.trace.topic,
        audit_topic=config.audit.topic,
        dlq_topics=config.dlq.topics,
        dlq_patterns=config.dlq.patterns,
        dlq_reading=Reading(
            mask_of=MaskRules(config.mask).of if config.mask else None,
            keys=config.dlq.keys,
            key_secret=(config.dlq.key_secret or "").encode(),
            values=config.dlq.values,
        ),
        batch_records=config.batch_records,
        fail_on_data_loss=config.fail_on_data_loss,
        keep_days=int(config.trace.keep // _DAY_S),
        dlq_keep_days=int(config.dlq.keep // _DAY_S),
    )
