"""Where every process reads everything, the engine commits nothing and remembers where it was."""

from __future__ import annotations

import pytest

from tests.engine.driver import Driven
from tests.engine.support import ORDERS, Note, spent_after
from tests.golden_texts import Golden
from window_consumer.engine.commits.broadcast import Broadcast, HandledPosition
from window_consumer.engine.commits.delivery_guarantee import DeliveryMode
from window_consumer.model.errors import Unroutable


def test_nothing_is_committed_however_much_is_finished() -> None:
    driven = Driven(delivery=DeliveryMode.BROADCAST, slots=1)
    driven.deliver(*map(Note, range(3)))
    driven.tick()
    driven.finish_all()
    assert [driven.tick(1.0).commit for _ in range(3)] == [[], [], []]
    commits, _ = driven.engine.on_revoked([ORDERS], driven.now)
    assert commits == []


@pytest.mark.parametrize(
    "error",
    [ValueError("no"), Unroutable("is for no handler", "stop")],
    ids=("fails", "unroutable"),
)
def test_a_worker_that_stops_names_the_setting_of_broadcast(
    error: Exception, golden: Golden
) -> None:
    driven = Driven(delivery=DeliveryMode.BROADCAST, retry=spent_after(1, when_spent="stop"))
    driven.deliver(Note(0))
    driven.tick()
    driven.fail(driven.out[0], 0, error=error)
    driven.tick()
    assert driven.last.stop is not None
    golden(str(driven.last.stop))


def test_a_released_partition_leaves_what_was_handled() -> None:
    driven = Driven(delivery=DeliveryMode.BROADCAST, slots=4, start=5)
    driven.deliver(*map(Note, range(5, 9)))
    driven.tick()
    for slice_ in list(driven.out):
        driven.fail(slice_, 5, 7)
    driven.engine.on_revoked([ORDERS], driven.now)
    guarantee = driven.engine.guarantee
    assert isinstance(guarantee, Broadcast)
    finished = (range(6, 7), range(8, 9))
    assert guarantee.handled == {ORDERS: HandledPosition(None, 5, finished)}
