"""What is written to Kafka stays readable by older and newer versions: golden bytes."""

from __future__ import annotations

from tests.model.test_audit_count import COUNT
from tests.model.test_trace_batch import CONSTANTS, one_by_one
from window_consumer.audit import count as audit_count
from window_consumer.dlq.dead_letter import Position
from window_consumer.dlq.redrive_state import Resolution
from window_consumer.engine.commits.commit_metadata import CommitNote, encode
from window_consumer.model.key_forms import as_text
from window_consumer.trace.event_batch import AnyColumn, KeyColumn, OffsetColumn, encoded


def test_the_bytes_of_a_batch_of_trace_events() -> None:
    places = OffsetColumn()
    places.add([5, 6, 9])
    columns: dict[str, AnyColumn] = {
        "offset": places,
        "time_us": one_by_one([1, 2, 3]),
        "key": KeyColumn.of([b"a", b"b", b"a"], as_text),
    }
    assert encoded("w", 7, 3, CONSTANTS, columns) == (
        b'{"format":1,"writer":"w","sequence":7,"count":3,"all":{"role": "consum'
        b'er", "step": "received", "topic": "orders", "partition": 3},"columns":'
        b'{"offset":{"v":[5, 6, 9],"n":[1, 1, 1],"up":true},"time_us":{"v":[1, 2'
        b', 3]},"key":{"v":["a","b","a"]}}}'
    )


def test_the_bytes_of_a_count() -> None:
    assert audit_count.encode([COUNT]) == (
        b'{"format":1,"counts":[{"client":"charge","incarnation":"0001","sequenc'
        b'e":7,"tier":"finished","app":"shop","instance":"host:1","group":"shop-'
        b'charge","topic":"orders","partition":3,"bucket_ms":60000,"length_ms":6'
        b'0000,"epoch_ms":61000,"offsets":[[0,10],[12,13]],"count":11,"bytes":11'
        b'0,"id_xor":-5,"id_sum":9,"latency":{"3":10,"40":1}}]}'
    )


def test_the_text_beside_a_commit() -> None:
    note = CommitNote(
        next_offset=41,
        topic_hash=1_234_567,
        finished=(range(43, 45), range(50, 51)),
        unclean_ends=2,
        suspect=42,
        known_partitions=4,
        crashes=((45, 3),),
    )
    assert encode(note) == ("wc1.AAAAAAAS1ocpDAICBAABBAMMAg", True)


def test_what_a_redrive_remembers() -> None:
    resolution = Resolution("redriven", 1_700_000_000_000, "g.redrive", "orders", "id")
    records = resolution.records(
        "g.dlq.state", [Position("g.orders.dlq", 0, 5), Position("g.orders.dlq", 0, 6)]
    )
    assert [(each.key, each.value) for each in records] == [
        (
            b"g.orders.dlq/0/5-6",
            (
                b'{"what":"redriven","at":1700000000000,"by":"g.redrive","to":"orders","'
                b'topic_id":"id"}'
            ),
        )
    ]
