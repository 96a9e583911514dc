"""Schema Registry as a feature: the section of workers, and the decoders of their handlers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

from window_consumer.config import WorkerConfig
from window_consumer.config.problems import InvalidError, Problem
from window_consumer.model.errors import UsageError
from window_consumer.model.protocols import Headers
from window_consumer.plan.app_plan import AppPlan
from window_consumer.plan.feature import AppStart, CheckFindings, DecodedValue, DecodeValue, Feature
from window_consumer.plan.handlers import HandlerSpec
from window_consumer.plan.running_feature import RunningFeature
from window_consumer.plan.topics.prepared_worker import PreparedWorker
from window_consumer.runtime.calls.layer import CallLayer
from window_consumer.schema_registry.config import SECTION, SchemaConfig

# Confluent's registry client is optional, and imported only if a worker has a registry.


class SchemaRegistryFeature(Feature):
    """Workers whose values have schemas in a registry."""

    name = "schema_registry"
    worker_section = SECTION
    findings_key = "schemas"

    def handlers_of(
        self, worker: WorkerConfig, handlers: Mapping[str, HandlerSpec]
    ) -> Mapping[str, HandlerSpec]:
        """Return handlers that get values decoded by their schemas.

        Raises InvalidError for handlers that cannot, and UsageError without Confluent's client.
        """
        section = worker.section(SchemaConfig)
        if not section.registry:
            return handlers
        if all(each.parameters.decoder is None for each in handlers.values()):
            message = (
                f"has no effect: the handler {' and '.join(handlers)} takes only the record. Let it"
                " take the value, as in (order: dict[str, Any], record: Record)"
            )
            raise InvalidError(Problem((SECTION.name,), message))
        with _needing_the_extra(worker):
            from window_consumer.schema_registry.client import RegistryClient  # noqa: PLC0415 - see above
            from window_consumer.schema_registry.reading import reading_handler  # noqa: PLC0415 - see above

            try:
                client = RegistryClient(section)
            except (OSError, ValueError) as error:  # files of certificates that cannot be used
                problem = Problem((SECTION.name, "ssl"), f"cannot be used: {error}")
                raise InvalidError(problem) from error
            return {name: reading_handler(each, section, client) for name, each in handlers.items()}

    def value_decoder(self, worker: WorkerConfig) -> DecodeValue | None:
        """Return what decodes values by their schemas. Protobuf needs ``schema.message``."""
        section = worker.section(SchemaConfig)
        if not section.registry:
            return None

        def decode(topic: str, headers: Headers, value: bytes) -> DecodedValue:
            with _needing_the_extra(worker):
                from window_consumer.schema_registry.display import decoded  # noqa: PLC0415 - see above

                return decoded(section, topic, headers, value)

        return decode

    def findings(self, plan: AppPlan, timeout_s: float | None) -> Sequence[CheckFindings]:
        """Return the registries' answers about the topics, see ``registries_of``."""
        del timeout_s
        workers = [each.config for each in plan.workers]
        if not any(each.section(SchemaConfig).registry for each in workers):
            return ()
        from window_consumer.schema_registry.findings import registries_of  # noqa: PLC0415 - see above

        return tuple(registries_of(workers))

    def starting(self, start: AppStart) -> AbstractContextManager[RunningFeature | None]:
        """Fetch schemas outside event loops."""
        del start
        return nullcontext(RunningSchemas())


@contextmanager
def _needing_the_extra(worker: WorkerConfig) -> Iterator[None]:
    """Raise UsageError for a library that is missing."""
    try:
        yield
    except ImportError as error:
        raise UsageError(
            f"workers.{worker.name}.schema needs Confluent's deserialisers ({error}): pip install"
            " 'window-consumer[schema]'"
        ) from error


class RunningSchemas(RunningFeature):
    """The schemas of workers with coroutines."""

    def layers_of(self, worker: PreparedWorker) -> Sequence[CallLayer]:
        """Return the layer that fetches schemas before coroutines are called."""
        plan = worker.plan
        if not plan.is_async or not plan.config.section(SchemaConfig).registry:
            return ()
        from window_consumer.schema_registry.prefetch import SchemaLayer  # noqa: PLC0415 - see above

        decoders = {
            route.handler.name: route.handler.parameters.decoder
            for route in plan.routes
            if route.handler.parameters.decoder is not None
        }
        return [SchemaLayer(decoders)]
