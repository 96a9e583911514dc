"""The promises of a replay on every broker: one function each, which gets a shop."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

from tests.replay.shop import T0, ReplayShop, at, offsets

Promise = Callable[[ReplayShop], None]


def from_a_time_to_the_end(shop: ReplayShop) -> None:
    for partition in range(2):
        shop.produce(10, partition=partition)
    found = shop.replay("--from", at(4))
    assert shop.replayed() == sorted(product(range(2), range(4, 10)))
    assert (found["read"], found["replayed"], found["complete"]) == (12, 12, True)
    (topic,) = found["topics"]
    assert (topic["topic"], topic["to"]) == (shop.source, shop.entry)
    assert topic["partitions"] == [
        {"partition": each, "first": 4, "end": 10, "deleted": []} for each in range(2)
    ]


def up_to_a_time_which_is_exclusive(shop: ReplayShop) -> None:
    shop.produce(10)
    shop.replay("--from", at(2), "--to", at(5))
    assert shop.replayed() == offsets(0, [2, 3, 4])


def from_offsets_of_some_partitions(shop: ReplayShop) -> None:
    for partition in range(2):
        shop.produce(10, partition=partition)
    shop.replay("--from-offset", "1:7")
    assert shop.replayed() == offsets(1, [7, 8, 9])
    shop.replay("--from-offset", "0:9", "--from-offset", "1:9")
    assert shop.replayed() == sorted([*offsets(0, [9]), *offsets(1, [7, 8, 9, 9])])


def a_killed_run_over_two_topics_copies_none_twice(shop: ReplayShop) -> None:
    first, second = shop.source, shop.with_another_topic()
    for topic, count in ((first, 20), (second, 200)):
        shop.source = topic
        shop.produce(count)
    command = shop.start("--from", at(0), "--rate", "40/s")
    shop.wait_for_copies(10)  # of the second topic; the first was copied before
    shop.kill(command)
    found = shop.replay("--from", at(0))
    assert found["resumed"]
    assert len({each["run"] for each in found["topics"]}) == 1
    assert set(shop.times()) == set(offsets(0, range(200)))
    shop.source = first
    assert shop.replayed() == offsets(0, range(20))
    assert not shop.replay("--from", at(0))["resumed"]


def of_one_topic_of_two(shop: ReplayShop) -> None:
    first, second = shop.source, shop.with_another_topic()
    for topic in (first, second):
        shop.source = topic
        shop.produce(3)
    found = shop.replay("--from-offset", "0:1", "--topic", second)
    assert [each["topic"] for each in found["topics"]] == [second]
    assert shop.replayed() == offsets(0, [1, 2])
    shop.source = first
    assert not shop.replayed()


def by_ids_of_two_topics(shop: ReplayShop) -> None:
    first, second = shop.source, shop.with_another_topic()
    shop.produce(5)
    shop.source = second
    shop.produce(5)
    shop.produce(1, headers=[("wc-id", b"a business id")])
    (shop.commands.directory / "ids").write_text(f"{first}/0/3\n{second}/0/1\na business id\n")
    found = shop.replay("--ids", "ids")
    assert [each["replayed"] for each in found["topics"]] == [1, 2]
    assert [each["missing_ids"] for each in found["topics"]] == [[], []]
    (shop.commands.directory / "ids").write_text(f"{second}/0/1\n{second}/0/77")
    found = shop.run("--ids", "ids", "--json").json
    assert [each["read"] for each in found["topics"]] == [0, 5], "the other topic is not read"
    assert [each["missing_ids"] for each in found["topics"]] == [[], [f"{second}/0/77"]]


def by_ids(shop: ReplayShop) -> None:
    shop.produce(10)
    shop.produce(1, partition=1, headers=[("wc-id", b"a business id")])
    names = [f"{shop.source}/0/{each}" for each in (3, 5)]
    (shop.commands.directory / "ids").write_text("\n".join([*names, "", "a business id\n"]))
    found = shop.replay("--ids", "ids")
    assert shop.replayed() == [(0, 3), (0, 5), (1, 0)]
    assert (found["replayed"], found["not_matching"]) == (3, 8)
    (shop.commands.directory / "ids").write_text(f"{names[0]}\n{shop.source}/1/99\nunknown\n")
    ended = shop.run("--ids", "ids", "--json")
    assert ended.code == 1
    assert ended.json["topics"][0]["missing_ids"] == sorted([f"{shop.source}/1/99", "unknown"])


def where_a_condition_holds(shop: ReplayShop) -> None:
    shop.produce(10)
    shop.produce(3, begin=10, headers=[("type", b"paid")])
    found = shop.replay("--from-offset", "0:0", "--where", "key ~ '*1' or header('type') == 'paid'")
    assert shop.replayed() == offsets(0, [1, 10, 11, 12])
    assert (found["read"], found["not_matching"]) == (13, 9)


def a_dry_run_counts_and_writes_nothing(shop: ReplayShop) -> None:
    shop.produce(10)
    for _ in range(2):
        found = shop.replay("--from", at(3), "--dry-run")
        assert (found["dry_run"], found["read"], found["replayed"]) == (True, 7, 7)
    assert not shop.replayed()
    assert shop.replay("--from", at(3))["replayed"] == 7


def a_copy_is_its_record_byte_for_byte(shop: ReplayShop) -> None:
    shop.produce(3, partition=1)
    shop.produce(1, partition=1, begin=3, headers=[("wc-id", b"mine"), ("wc-redrives", b"2")])
    found = shop.replay("--from-offset", "1:0")
    copies = sorted(shop.copies(), key=lambda each: int(dict(each.headers())["wc-orig-offset"]))
    assert [each.partition() for each in copies] == [1] * 4, "a copy keeps its partition's number"
    assert [each.key() for each in copies] == [b"key %d" % each for each in range(4)]
    assert [each.value() for each in copies] == [b"value 0", b"value 1", None, b"value 3"]
    assert copies[0].headers()[:2] == [("user", b"\xff"), ("user", None)]
    ours = dict(copies[0].headers())
    assert ours["wc-id"] == f"{shop.source}/1/0".encode()
    assert ours["wc-orig-topic"] == shop.source.encode()
    assert ours["wc-orig-timestamp"] == b"%d" % T0
    assert ours["wc-group"] == shop.group.encode()
    assert ours["wc-replay"] == found["topics"][0]["run"].encode()
    last = dict(copies[3].headers())
    assert last["wc-id"] == b"mine"
    assert "wc-redrives" not in last, "a replay starts a record over"


def with_new_ids_a_copy_is_another_record(shop: ReplayShop) -> None:
    shop.produce(2)
    run = shop.replay("--from-offset", "0:0", "--new-ids")["topics"][0]["run"]
    found = {dict(each.headers())["wc-id"].decode() for each in shop.copies()}
    assert found == {f"{shop.source}/0/{each}#{run}" for each in range(2)}


def a_finished_run_is_over_and_the_same_command_copies_again(shop: ReplayShop) -> None:
    shop.produce(5)
    runs = {shop.replay("--from", at(0))["topics"][0]["run"] for _ in range(2)}
    assert len(runs) == 2
    assert set(shop.times().values()) == {2}


def a_killed_run_resumes_loses_nothing_and_repeats_one_batch_at_most(shop: ReplayShop) -> None:
    count, per_s = 400, 100
    for partition in range(2):
        shop.produce(count // 2, partition=partition)
    options = ("--from", at(0), "--to", "2100-01-01")
    begun = None
    for kill in (1, 2):
        command = shop.start(*options, "--rate", f"{per_s}/s")
        shop.wait_for_copies(kill * 100)
        shop.kill(command)
        begun = begun or len(shop.copies())
        assert len(shop.times()) < count, "it was over before it was killed"
    shop.produce(50, begin=count)  # live records are no part of the range of a run that has begun
    found = shop.replay(*options)
    assert found["resumed"]
    assert found["read"] < count
    times = shop.times()
    assert set(times) == set(product(range(2), range(count // 2)))
    assert times.total() - count <= 2 * per_s // 2, "a batch is half a second's records"
    assert len({dict(each.headers())["wc-replay"] for each in shop.copies()}) == 1


def a_run_that_is_stopped_says_how_to_go_on(shop: ReplayShop) -> None:
    shop.produce(200)
    command = shop.start("--from", at(0), "--rate", "20/s")
    shop.wait_for_copies(5)
    ended = command.stop()
    assert ended.code == 130
    assert "resumes" in ended.err
    assert shop.replay("--from", at(0))["resumed"]
    assert shop.replayed() == offsets(0, range(200))


def restart_starts_over(shop: ReplayShop) -> None:
    shop.produce(100)
    command = shop.start("--from", at(0), "--rate", "20/s")
    shop.wait_for_copies(5)
    shop.kill(command)
    before = len(shop.copies())
    found = shop.replay("--from", at(0), "--restart")
    assert (found["resumed"], found["read"]) == (False, 100)
    assert len(shop.copies()) == before + 100


def the_same_run_twice_at_once_is_noticed(shop: ReplayShop) -> None:
    shop.produce(400)
    first = shop.start("--from", at(0), "--rate", "5/s")
    shop.wait_for_copies(2)
    second = shop.run("--from", at(0))
    ended = [second, first.wait() if second.code == 0 else first.stop()]
    noticed = [each for each in ended if each.code == 1]
    assert noticed
    for each in noticed:
        assert "twice" in each.err
    shop.run("--from", at(0))
    assert set(shop.times()) == set(offsets(0, range(400)))


PROMISES: tuple[Promise, ...] = (
    from_a_time_to_the_end,
    up_to_a_time_which_is_exclusive,
    from_offsets_of_some_partitions,
    of_one_topic_of_two,
    by_ids,
    by_ids_of_two_topics,
    where_a_condition_holds,
    a_dry_run_counts_and_writes_nothing,
    a_copy_is_its_record_byte_for_byte,
    with_new_ids_a_copy_is_another_record,
    a_finished_run_is_over_and_the_same_command_copies_again,
    a_killed_run_resumes_loses_nothing_and_repeats_one_batch_at_most,
    a_killed_run_over_two_topics_copies_none_twice,
    a_run_that_is_stopped_says_how_to_go_on,
    restart_starts_over,
    the_same_run_twice_at_once_is_noticed,
)
