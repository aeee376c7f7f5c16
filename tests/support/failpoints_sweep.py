"""Interrupts a story at the calls that it makes, one after the other, and judges how it ends."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from dataclasses import dataclass, field

from tests.support.api_proxy import Answer
from tests.support.failpoints import Point
from tests.support.failpoints_facts import Facts, change, observe, orphans
from tests.support.failpoints_stage import LONG_QUIET_S, QUIET_S, Stage, wait_for
from tests.support.failpoints_stories import Story

PAUSE_S = 0.4
CONVERGES_WITHIN_S = 100.0

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Lesson:
    """What a story does when nobody interrupts it: its calls, and its end."""

    calls: Counter[str]
    end: dict[str, str]

    def points(self) -> list[Point]:
        """Every call, before and after, killed and late; every watch expired as well."""
        found = [
            Point(call, nth, moment, how)
            for call, count in self.calls.items()
            for nth in range(1, count + 1)
            for moment in ("before", "after")
            for how in ("kill", "pause")
        ]
        watches = [point for point in found if point.call.startswith("WATCH")]
        expired = {Point(one.call, one.nth, "before", "expire") for one in watches}
        return sorted([*found, *expired])


@dataclass(slots=True)
class Report:
    """What a sweep found. `missed` are points that their own run did not come to."""

    story: str
    calls: int
    possible: int
    reached: int = 0
    missed: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    second_pass_writes: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.story}: {self.reached} of {self.possible} points of {self.calls} calls, "
            f"{len(self.failed)} failed, {len(self.missed)} not come to"
        )


async def learn(stage: Stage, story: Story, *, times: int = 1) -> Lesson:
    """Tell the story undisturbed; of several times only the calls that it makes each time.

    The first time may take long, as the garbage collector comes to know our kinds: what is done
    now and then, such as renewing the lease, is then done more often than ever after.
    """
    first = await _tell(stage, story)
    for _ in range(times - 1):
        again = await _tell(stage, story)
        assert again.end == first.end, f"{story.name} ends otherwise when it is told again"
        first.calls &= again.calls
    return first


async def _tell(stage: Stage, story: Story) -> Lesson:
    await story.prepare(stage)
    before = await observe(stage.world)
    stage.points.forget()
    await story.act(stage)
    await wait_for(lambda: story.done(stage), what=f"the end of {story.name}")
    await stage.settle(quiet_s=LONG_QUIET_S)
    end = _change(story, before, await observe(stage.world))
    return Lesson(calls=Counter(stage.points.counts), end=end)


def _change(story: Story, before: Facts, after: Facts) -> dict[str, str]:
    told = change(before, after, loose=story.loose, chosen=story.chosen)
    return {**told, **dict.fromkeys(orphans(after), "orphan")}


async def sweep(stage: Stage, story: Story, *, rng: random.Random, whole: bool) -> Report:
    """Interrupt a story at every point in a seeded order, or kill it at one point only."""
    lesson = await learn(stage, story, times=2 if whole else 1)
    points = lesson.points()
    report = Report(story.name, lesson.calls.total(), len(points))
    for point in rng.sample(points, len(points)):
        if whole or (point.how == "kill" and not report.reached):
            try:
                await _interrupt(stage, story, lesson, point=point, report=report)
            except AssertionError as fault:
                # One point that hangs is a finding; the others are still to be tried.
                report.failed.append(f"{point}: {fault}")
                stage.kill()
    return report


async def _interrupt(
    stage: Stage, story: Story, lesson: Lesson, *, point: Point, report: Report
) -> None:
    """One story with one interruption; what is wrong afterwards goes into the report."""
    await story.prepare(stage)
    before = await observe(stage.world)
    stage.points.forget()
    struck = stage.points.sprung

    async def strike(at: Point) -> Answer | None:
        if at.how == "kill":
            stage.kill()
            return None
        await story.meanwhile(stage)
        await asyncio.sleep(PAUSE_S)
        return Answer.refusal(410, "Expired") if at.how == "expire" else None

    stage.points.set_trap(point, strike)
    await story.act(stage)

    async def struck_or_over() -> bool:
        # A call may still come after the end that is told, and the trap with it.
        over = await story.done(stage) and await stage.is_at_rest(quiet_s=LONG_QUIET_S)
        return struck.is_set() or over

    await wait_for(struck_or_over, what=f"{point} or the end")
    stage.points.disarm()
    reached = struck.is_set()
    report.reached += reached
    if not reached:
        report.missed.append(str(point))
    if point.how == "kill" and reached:
        await story.meanwhile(stage)
    stage.revive()
    fault = await _differs(stage, story, before, wanted=lesson.end)
    if point.how == "kill":
        await _second_pass(stage, point, report)
        fault = fault or await _differs(stage, story, before, wanted=lesson.end)
    if fault:
        report.failed.append(f"{point}: {fault}")
    logger.info("%d/%d %s: %s", report.reached, report.possible, point, fault or "converged")


async def _second_pass(stage: Stage, point: Point, report: Report) -> None:
    """Another operator, that finds everything as it should be, writes nothing."""
    stage.kill()
    stage.points.forget()
    stage.start()
    await stage.settle(quiet_s=LONG_QUIET_S)
    if stage.points.writes:
        report.second_pass_writes.append(f"{point}: {stage.points.writes}")


async def _differs(stage: Stage, story: Story, before: Facts, *, wanted: dict[str, str]) -> str:
    """How the world, given its time, differs from an undisturbed end; empty where it does not."""
    found: dict[str, str] = {}

    async def as_wanted() -> bool:
        if stage.points.quiet_for() < QUIET_S or not await story.done(stage):
            return False
        found.clear()
        found.update(_change(story, before, await observe(stage.world)))
        return found == wanted

    # What is told is the last look, in which it was at rest and said that it had ended.
    try:
        await wait_for(as_wanted, what=story.name, within_s=CONVERGES_WITHIN_S)
    except AssertionError:
        keys = sorted(set(found) | set(wanted))
        return "not the same end: " + "; ".join(
            f"{key}: {found.get(key, 'absent')} instead of {wanted.get(key, 'absent')}"
            for key in keys
            if found.get(key) != wanted.get(key)
        )
    return await story.fault(stage)
