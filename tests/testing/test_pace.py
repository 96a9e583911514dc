"""What a test sees of a rate and of a limit: the same Engine, time by hand."""

from __future__ import annotations

from tests.testing.shops import Shop
from window_consumer.testing import DONE, WAITING


def test_a_rate_holds_records_back_until_their_time() -> None:
    shop = Shop()
    with shop.run({"rate_per_process": {"rate": "1/s", "burst": 2}}) as wc_app:
        results = [wc_app.send("orders", number) for number in range(4)]
        assert [each.outcome for each in results] == [DONE, DONE, WAITING, WAITING]
        wc_app.advance("1001ms")
        assert [each.outcome for each in results] == [DONE, DONE, DONE, WAITING]
        wc_app.run_until_settled()
        assert results[3].outcome is DONE


def test_a_rate_for_each_key_holds_back_that_key_alone() -> None:
    shop = Shop()
    with shop.run({"rate_per_process": {"rate": "1/min", "per": "key"}}) as wc_app:
        first, second, other = (wc_app.send("orders", 1, key=key) for key in ("a", "a", "b"))
        assert [each.outcome for each in (first, second, other)] == [DONE, WAITING, DONE]
        wc_app.advance("61s")
        assert second.outcome is DONE


def test_a_rate_for_each_class_holds_back_that_class_alone() -> None:
    shop = Shop()
    keys = {
        "fair": {"by": "header('tenant')"},
        "rate_per_process": {"rate": "1/min", "per": "class"},
    }
    with shop.run(keys) as wc_app:
        tenants = [{"tenant": each} for each in "aab"]
        first, second, other = (wc_app.send("orders", 1, headers=each) for each in tenants)
        assert [each.outcome for each in (first, second, other)] == [DONE, WAITING, DONE]
        wc_app.advance("61s")
        assert second.outcome is DONE


def test_a_worker_that_finds_its_own_concurrency_handles_everything() -> None:
    shop = Shop()
    with shop.run({"concurrency": "auto"}) as wc_app:
        results = [wc_app.send("orders", number) for number in range(50)]
        wc_app.run_until_settled()
        assert {each.outcome for each in results} == {DONE}
