"""Leadership: at no instant may two candidates write."""

from __future__ import annotations

import asyncio
import datetime as dt
import time as clock
from dataclasses import dataclass
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetward_kube import KubeClient, KubeError
from fleetward_operator.edges.lease import Clocks, Leadership, LeaseTerms, awake_or_asleep
from fleetward_operator.settings import Timings
from tests.support.object_api import ObjectApi

DURATION, DEADLINE = 15.0, 10.0


@dataclass
class Time:
    """Seconds, as the test sets them."""

    now: float = 0.0


def candidate(api: ObjectApi, name: str, time: Time, *, wall_skew: float = 0.0) -> Leadership:
    start = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    clocks = Clocks(
        monotonic=lambda: time.now,
        wall=lambda: start + dt.timedelta(seconds=time.now + wall_skew),
    )
    terms = LeaseTerms(namespace="n", identity=name, duration_s=DURATION, renew_deadline_s=DEADLINE)
    return Leadership(cast("KubeClient", api), terms, clocks)


def holder(api: ObjectApi) -> Any:
    (lease,) = api.objects.values()
    return lease["spec"]["holderIdentity"]


async def test_the_first_holds_it_and_the_second_waits() -> None:
    api, time = ObjectApi(), Time()
    first, second = candidate(api, "first", time), candidate(api, "second", time)
    await first._round()
    await second._round()
    assert (first.may_write(), second.may_write()) == (True, False)
    assert holder(api) == "first"


async def test_a_holder_that_falls_silent_loses_the_right_before_another_gains_it() -> None:
    api, time = ObjectApi(), Time()
    first, second = candidate(api, "first", time), candidate(api, "second", time)
    await first._round()
    await second._round()
    time.now = DEADLINE
    assert not first.may_write()
    await second._round()
    assert not second.may_write()
    time.now = DURATION
    await second._round()
    assert (first.may_write(), second.may_write()) == (False, True)
    # The first wakes up: it sees the other's name and stays out.
    await first._round()
    assert not first.may_write()
    assert holder(api) == "second"


async def test_a_released_lease_is_taken_at_once() -> None:
    api, time = ObjectApi(), Time()
    first, second = candidate(api, "first", time), candidate(api, "second", time)
    await first._round()
    await first.release()
    assert not first.may_write()
    await second._round()
    assert second.may_write()


async def test_a_container_that_restarts_in_its_pod_need_not_wait() -> None:
    api, time = ObjectApi(), Time()
    await candidate(api, "pod", time)._round()
    again = candidate(api, "pod", time)
    assert not again.may_write()
    await again._round()
    assert again.may_write()


async def test_a_lease_that_somebody_made_empty_is_free() -> None:
    api, time = ObjectApi(), Time()
    path = "/apis/coordination.k8s.io/v1/namespaces/n/leases"
    empty = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
    await api.request("POST", path, body={**empty, "metadata": {"name": "fleetward-operator"}})
    first = candidate(api, "first", time)
    await first._round()
    assert first.may_write()
    assert holder(api) == "first"


def test_the_last_allowed_write_ends_before_another_may_lead() -> None:
    timings = Timings()
    assert timings.lease_renew_deadline + timings.write_timeout <= timings.lease_duration


async def test_an_api_server_that_is_away_costs_the_right_in_time() -> None:
    api, time = ObjectApi(), Time()
    first = candidate(api, "first", time)
    await first._round()
    api.away = True
    time.now = 5.0
    await first._round()
    assert first.may_write()
    time.now = DEADLINE
    assert not first.may_write()


async def test_a_failed_renewal_is_tried_again_soon_but_not_before_it_is_wanted() -> None:
    api, time = ObjectApi(), Time()
    first = candidate(api, "first", time)
    await first._round()
    calm = first._pause()
    first._fault = KubeError(500, "InternalError", "")
    assert first._pause() == calm / 4
    first._fault = KubeError(429, "TooManyRequests", "", retry_after_s=3.0)
    assert first._pause() == 3.0
    api.away = True
    await first._round()
    assert first._fault is not None
    api.away = False
    await first._round()
    assert first._pause() == calm


async def test_running_ends_when_a_lease_once_held_is_lost() -> None:
    api, time = ObjectApi(), Time()
    start = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    terms = LeaseTerms(namespace="n", identity="first", retry_s=0.001)
    first = Leadership(
        cast("KubeClient", api), terms, Clocks(monotonic=lambda: time.now, wall=lambda: start)
    )

    async def fall_silent() -> None:
        await first.acquired.wait()
        api.away = True
        time.now = DEADLINE + 1

    await asyncio.wait_for(asyncio.gather(first.run(), fall_silent()), 10)
    assert not first.may_write()


async def test_one_lost_answer_to_a_renewal_does_not_cost_the_lease() -> None:
    class Deaf(ObjectApi):
        """Takes in what it is sent, and its answers to some writes are lost."""

        lost = 0

        async def request(self, method: str, path: str, **kwargs: Any) -> dict[str, Any]:
            answer = await super().request(method, path, **kwargs)
            if method == "PUT" and self.lost:
                self.lost -= 1
                raise KubeError(0, "Timeout", "no answer")
            return answer

    api, time = Deaf(), Time()
    first = candidate(api, "first", time)
    await first._round()
    api.lost = 1
    for time.now in (2.0, 4.0):
        await first._round()
    time.now = DEADLINE + 2.0
    assert first.may_write()


async def test_a_term_that_ran_out_is_not_brought_back_by_a_late_renewal() -> None:
    class Slow(ObjectApi):
        """Answers a renewal when the term that it should have saved is over."""

        async def request(self, method: str, path: str, **kwargs: Any) -> dict[str, Any]:
            answer = await super().request(method, path, **kwargs)
            if method == "PUT":
                time.now += 4.0
            return answer

    api, time = Slow(), Time()
    first = candidate(api, "first", time)
    await first._round()
    first.acquired.set()
    time.now = DEADLINE - 1
    await first._round()
    # Sent at 9 s, answered at 13 s: renewed in name, but from 10 s to 13 s all work was refused.
    assert not first.may_write()
    await first._round()
    assert not first.may_write()


async def test_a_lease_is_given_back_although_a_renewal_was_under_way() -> None:
    api, time = ObjectApi(), Time()
    first, second = candidate(api, "first", time), candidate(api, "second", time)
    await first._round()
    # The renewal has reached the API server, and the stop came before its answer.
    (lease,) = api.objects.values()
    lease["metadata"]["resourceVersion"] = "77"
    await first.release()
    assert holder(api) == ""
    await second._round()
    assert second.may_write()
    await first.release()
    assert holder(api) == "second"


async def test_who_gave_the_lease_back_sends_nothing_any_more() -> None:
    api, time = ObjectApi(), Time()
    first = candidate(api, "first", time)
    await first._round()
    api.away = True
    with pytest.raises(KubeError):
        await first.release()
    assert not first.may_write()


@pytest.mark.parametrize(("waited", "pause"), [(0.0, 2.0), (12.9, 2.0), (14.0, 1.01), (15.5, 2.0)])
async def test_the_next_in_line_looks_as_soon_as_the_lease_can_be_free(
    waited: float, pause: float
) -> None:
    api, time = ObjectApi(), Time()
    await candidate(api, "first", time)._round()
    second = candidate(api, "second", time)
    await second._round()
    time.now = waited
    assert second._pause() == pytest.approx(pause)


def test_the_clock_of_the_lease_runs_on_while_the_machine_sleeps() -> None:
    before = clock.clock_gettime(clock.CLOCK_BOOTTIME)
    assert before <= awake_or_asleep() <= clock.clock_gettime(clock.CLOCK_BOOTTIME)


steps = st.lists(
    st.tuples(st.sampled_from(["first", "second", "away", "back"]), st.floats(0, 20)), max_size=60
)


@settings(deadline=None)
@given(steps, st.floats(-300, 300))
async def test_never_two_at_once_whatever_stops_and_starts(
    story: list[tuple[str, float]], skew: float
) -> None:
    api, time = ObjectApi(), Time()
    both = {
        "first": candidate(api, "first", time),
        "second": candidate(api, "second", time, wall_skew=skew),
    }
    for what, pause in story:
        if what in both:
            await both[what]._round()
        else:
            api.away = what == "away"
        assert sum(one.may_write() for one in both.values()) <= 1
        time.now += pause
        assert sum(one.may_write() for one in both.values()) <= 1
