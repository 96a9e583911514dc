"""librdkafka's mock cluster through ctypes: a thin binding without logic.

The functions come from the client's own extension module, whose symbols include those of the
librdkafka that it is linked with. This holds for every installation: a wheel that bundles the
library, a system library, static linking.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections import Counter
from collections.abc import Callable
from enum import IntEnum
from typing import Any

from confluent_kafka import KafkaError, cimpl, libversion

from window_consumer.model.errors import UsageError, WrongProcessError


class ApiKey(IntEnum):
    """The requests of Kafka's protocol for which faults can be made."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    API_VERSIONS = 18
    INIT_PRODUCER_ID = 22
    CONSUMER_GROUP_HEARTBEAT = 68


class ErrorCode(IntEnum):
    """Error codes of a broker; the numbers are those of Kafka's protocol."""

    DISCONNECT = -195
    """No answer: the broker closes the connection when the request arrives."""
    NO_ERROR = 0
    OFFSET_OUT_OF_RANGE = 1
    UNKNOWN_TOPIC_OR_PARTITION = 3
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    MESSAGE_TOO_LARGE = 10
    OFFSET_METADATA_TOO_LARGE = 12
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    NOT_ENOUGH_REPLICAS = 19
    ILLEGAL_GENERATION = 22
    UNKNOWN_MEMBER_ID = 25
    REBALANCE_IN_PROGRESS = 27
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    UNSUPPORTED_VERSION = 35
    FENCED_MEMBER_EPOCH = 110
    STALE_MEMBER_EPOCH = 113


_CONTROLLER = 1
_HEARTBEAT_INTERVAL_MS = 200
"""How long a new member waits for its partitions; 5 s in Kafka, 3 s in the mock by default."""

_SESSION_TIMEOUT_MS = 6_000
"""The same as RealKafka's. Kafka's 45 s are too long to wait for a killed member's partitions."""

_CLASSIC_REBALANCE_DELAY_MS = 300
"""The mock's default of 3 s suits members that start separately. Below 100 ms it forms no group."""

_REST_S = 0.001
"""Pause between two calls. Without it 1 call in 100 takes a second, 1 in 10 on a busy machine."""

_handle = ctypes.c_void_p
_text = ctypes.c_char_p
_int = ctypes.c_int
_i16 = ctypes.c_int16
_i32 = ctypes.c_int32
_i64 = ctypes.c_int64
_size = ctypes.c_size_t
_handles = ctypes.POINTER(_handle)

_SIGNATURES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "conf_new": (_handle, ()),
    "conf_set": (_int, (_handle, _text, _text, _text, _size)),
    "new": (_handle, (_int, _handle, _text, _size)),
    "destroy": (None, (_handle,)),
    "msg_partitioner_murmur2": (_i32, (_handle, _text, _size, _i32, _handle, _handle)),
    "mock_cluster_new": (_handle, (_handle, _int)),
    "mock_cluster_destroy": (None, (_handle,)),
    "mock_cluster_bootstraps": (_text, (_handle,)),
    "mock_set_controller_id": (_int, (_handle, _i32)),
    "mock_group_initial_rebalance_delay_ms": (None, (_handle, _i32)),
    "mock_set_group_consumer_heartbeat_interval_ms": (None, (_handle, _int)),
    "mock_set_group_consumer_session_timeout_ms": (None, (_handle, _int)),
    "mock_topic_create": (_int, (_handle, _text, _int, _int)),
    "mock_topic_delete": (_int, (_handle, _text)),
    "mock_partition_delete_records": (_int, (_handle, _text, _i32, _i64)),
    "mock_partition_set_leader": (_int, (_handle, _text, _i32, _i32)),
    "mock_broker_set_down": (_int, (_handle, _i32)),
    "mock_broker_set_up": (_int, (_handle, _i32)),
    "mock_broker_set_rtt": (_int, (_handle, _i32, _int)),
    "mock_coordinator_set": (_int, (_handle, _text, _text, _i32)),
    "mock_set_apiversion": (_int, (_handle, _i16, _i16, _i16)),
    "mock_push_request_errors_array": (None, (_handle, _i16, _size, ctypes.POINTER(_int))),
    "mock_clear_request_errors": (None, (_handle, _i16)),
    "mock_start_request_tracking": (None, (_handle,)),
    "mock_get_requests": (_handles, (_handle, ctypes.POINTER(_size))),
    "mock_clear_requests": (None, (_handle,)),
    "mock_request_api_key": (_i16, (_handle,)),
    "mock_request_destroy_array": (None, (_handles, _size)),
}

_PRODUCER = 0
_ERROR_BYTES = 512


class MockCluster:
    """A running mock cluster. Any thread may call, but not while another closes it."""

    def __init__(self, brokers: int):
        self._functions = load_functions(cimpl.__file__)
        self._client = self._new_client()
        self._pid = os.getpid()
        self._called_at = 0.0
        self._cluster: int | None = self._functions["mock_cluster_new"](self._client, brokers)
        if self._cluster is None:
            self._functions["destroy"](self._client)
            raise UsageError(f"the embedded broker cannot listen on 127.0.0.1, {brokers} times")
        # Without a controller, each request of an admin client waits for its whole timeout.
        self.call("mock_set_controller_id", _CONTROLLER)
        self.call("mock_group_initial_rebalance_delay_ms", _CLASSIC_REBALANCE_DELAY_MS)
        self.call("mock_set_group_consumer_heartbeat_interval_ms", _HEARTBEAT_INTERVAL_MS)
        self.call("mock_set_group_consumer_session_timeout_ms", _SESSION_TIMEOUT_MS)
        self.bootstrap = self._functions["mock_cluster_bootstraps"](self._cluster).decode()

    def _new_client(self) -> int:
        """Create the client that the mock belongs to; it connects to nothing and logs nothing."""
        reason = ctypes.create_string_buffer(_ERROR_BYTES)
        conf = self._functions["conf_new"]()
        self._functions["conf_set"](conf, b"log_level", b"0", reason, _ERROR_BYTES)
        client: int | None = self._functions["new"](_PRODUCER, conf, reason, _ERROR_BYTES)
        if client is None:
            raise UsageError(f"the embedded broker cannot start: {reason.value.decode()}")
        return client

    def check_usable(self) -> None:
        """Raise UsageError after close; WrongProcessError in a fork, where a call would hang."""
        if self._pid != os.getpid():
            raise WrongProcessError(
                "this embedded broker runs in the process that started it, not in this fork of"
                " it: start it after forking, or pass on its address"
            )
        if self._cluster is None:
            raise UsageError("the embedded broker is closed, and its records are gone")

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function of the mock. Raise UsageError with librdkafka's reason if it refuses."""
        self.check_usable()
        self._let_it_rest()
        code = self._functions[name](self._cluster, *arguments)
        self._called_at = time.monotonic()
        if code:
            what = name.removeprefix("mock_").replace("_", " ")
            words = [each.decode() if isinstance(each, bytes) else str(each) for each in arguments]
            reason = KafkaError(code).str()
            raise UsageError(f"embedded broker: {what} ({', '.join(words)}): {reason}")

    def _let_it_rest(self) -> None:
        """Wait until the mock has certainly finished with the last call.

        Its thread executes a call, answers, and only then discards all wake-up signals. A signal of
        the next call that has arrived by then is discarded too, and that call waits for a whole
        second.
        """
        time.sleep(max(0.0, self._called_at + _REST_S - time.monotonic()))

    def partition_of(self, key: bytes, partitions: int) -> int:
        """Return the partition that Java's producers, and our copies, use for this key."""
        partitioner = self._functions["msg_partitioner_murmur2"]
        return int(partitioner(None, key, len(key), partitions, None, None))

    def requests(self) -> Counter[int]:
        """Return how many requests of each kind arrived since tracking began or was cleared."""
        self.check_usable()
        count = ctypes.c_size_t()
        found = self._functions["mock_get_requests"](self._cluster, ctypes.byref(count))
        api_key = self._functions["mock_request_api_key"]
        try:
            return Counter(api_key(found[index]) for index in range(count.value))
        finally:
            self._functions["mock_request_destroy_array"](found, count)

    def close(self) -> None:
        """Stop the brokers and free everything; does nothing in a fork or the second time."""
        if self._cluster is None or self._pid != os.getpid():
            return
        self._let_it_rest()
        cluster, self._cluster = self._cluster, None
        self._functions["mock_cluster_destroy"](cluster)
        self._functions["destroy"](self._client)


def load_functions(extension: str) -> dict[str, Callable[..., Any]]:
    """Return librdkafka's functions from the client's extension module at this path.

    Raises UsageError if this librdkafka lacks them.
    """
    library = ctypes.CDLL(extension)
    functions: dict[str, Callable[..., Any]] = {}
    for name, (result, arguments) in _SIGNATURES.items():
        try:
            function = getattr(library, f"rd_kafka_{name}")
        except AttributeError as error:
            raise UsageError(
                f"the librdkafka {libversion()[0]} that confluent-kafka uses here has no"
                f" rd_kafka_{name}, which the embedded broker needs: install confluent-kafka 2.16"
                " or later from PyPI, or use a real Kafka"
            ) from error
        function.restype = result
        function.argtypes = arguments
        functions[name] = function
    return functions
