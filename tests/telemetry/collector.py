"""Collectors of OTLP, over HTTP and over gRPC, that keep what they receive, or misbehave."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType, TracebackType
from typing import Any, Self

import grpc  # type: ignore[import-untyped] # it has no types of its own
from attrs import frozen
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

DEADLINE_S = 60.0


@frozen
class CollectedSpan:
    name: str
    trace: str
    span: str
    parent: str
    kind: int
    attributes: Mapping[str, Any]
    links: tuple[str, ...]
    """The traces that it links to."""
    events: tuple[tuple[str, Mapping[str, Any]], ...]
    failed: bool
    text: str
    """The text of its status."""
    seconds: float


class Collected:
    """Everything received."""

    def __init__(self) -> None:
        self.spans: list[CollectedSpan] = []
        self.resources: list[Mapping[str, Any]] = []
        self.metrics: dict[str, list[tuple[Mapping[str, Any], Any]]] = {}
        """By name: attributes and figure of the last export; a histogram as (counts, sum)."""
        self.requests = 0
        self._news = threading.Condition()
        self._closed = threading.Event()

    def wait_for(self, holds: Callable[[], object]) -> None:
        """Wait until a condition holds for everything received."""
        with self._news:
            assert self._news.wait_for(holds, DEADLINE_S), self.spans

    def named(self, name: str, **attributes: Any) -> list[CollectedSpan]:
        """Return the spans of a name, with such attributes (the part after the last dot)."""
        return [
            each
            for each in list(self.spans)
            if each.name == name
            and attributes.items()
            <= {key.rpartition(".")[2]: value for key, value in each.attributes.items()}.items()
        ]

    def _received(self, read: Callable[[bytes], None], data: bytes) -> None:
        with self._news:
            self.requests += 1
            read(data)
            self._news.notify_all()

    def _read_spans(self, data: bytes) -> None:
        for resource in ExportTraceServiceRequest.FromString(data).resource_spans:
            self.resources.append(_attributes(resource.resource.attributes))
            for scope in resource.scope_spans:
                self.spans += map(_span, scope.spans)

    def _read_metrics(self, data: bytes) -> None:
        for resource in ExportMetricsServiceRequest.FromString(data).resource_metrics:
            self.resources.append(_attributes(resource.resource.attributes))
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    self.metrics[metric.name] = _points(metric)


class Collector(Collected):
    """Listens for HTTP on a free port of this machine, within its block."""

    def __init__(self, *, hangs: bool = False):
        super().__init__()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                data = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    data = gzip.decompress(data)
                if self.path == "/v1/traces":
                    collector._received(collector._read_spans, data)
                elif self.path == "/v1/metrics":
                    collector._received(collector._read_metrics, data)
                if hangs:
                    collector._closed.wait()
                    return
                self.send_response(200)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    @property
    def env(self) -> dict[str, str]:
        """The variables of who exports to it, without much delay."""
        host, port = self._server.server_address[:2]
        return {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{host!s}:{port}",
            "OTEL_BSP_SCHEDULE_DELAY": "100",
        }

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._closed.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class GrpcCollector(Collected):
    """Listens for gRPC on a free port of this machine, within its block."""

    def __init__(self, *, hangs: bool = False):
        super().__init__()
        self._hangs = hangs
        self._server = grpc.server(ThreadPoolExecutor(4))
        self._server.add_generic_rpc_handlers(
            [
                self._service("trace.v1.TraceService", self._read_spans),
                self._service("metrics.v1.MetricsService", self._read_metrics),
            ]
        )
        self._port = self._server.add_insecure_port("127.0.0.1:0")

    def _service(self, name: str, read: Callable[[bytes], None]) -> Any:
        def export(data: bytes, _context: Any) -> bytes:
            self._received(read, data)
            if self._hangs:
                self._closed.wait()
            return b""  # an answer whose fields all are as usual

        # Without a serialiser it is bytes that come and go.
        handlers = {"Export": grpc.unary_unary_rpc_method_handler(export)}
        return grpc.method_handlers_generic_handler(
            f"opentelemetry.proto.collector.{name}", handlers
        )

    @property
    def env(self) -> dict[str, str]:
        """The variables of who exports to it, without much delay."""
        return {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{self._port}",
            "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
            "OTEL_BSP_SCHEDULE_DELAY": "100",
        }

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._closed.set()
        self._server.stop(None).wait(DEADLINE_S)


def _points(metric: Any) -> list[tuple[Mapping[str, Any], Any]]:
    if metric.HasField("histogram"):
        return [
            (_attributes(point.attributes), (tuple(point.bucket_counts), point.sum))
            for point in metric.histogram.data_points
        ]
    points = (metric.sum if metric.HasField("sum") else metric.gauge).data_points
    return [
        (_attributes(point.attributes), getattr(point, point.WhichOneof("value")))
        for point in points
    ]


def _span(span: Any) -> CollectedSpan:
    return CollectedSpan(
        span.name,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.kind,
        _attributes(span.attributes),
        tuple(link.trace_id.hex() for link in span.links),
        tuple((event.name, _attributes(event.attributes)) for event in span.events),
        span.status.code == span.status.STATUS_CODE_ERROR,
        span.status.message,
        (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9,
    )


def _attributes(pairs: Any) -> Mapping[str, Any]:
    return MappingProxyType(
        {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}
    )
