"""CronJobs: make a Job when its minute comes."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from kubetide.embedded.apiserver.rest.status import Raw
from kubetide.embedded.apiserver.rest.strategy import timestamp
from kubetide.embedded.apiserver.storage.objects import StoreKey
from kubetide.embedded.sim.controllers.base import SimController
from kubetide.embedded.sim.controllers.jobs import finished_at
from kubetide.embedded.sim.world import CRON_JOBS, JOBS, condition_of, controller_of, key_of, owner_reference
from kubetide.errors import InvalidInput

# Cron schedules: five fields (minute, hour, day of month, month, day of week), `*`, lists, ranges, steps, names.

_MONTH_NAMES = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTHS = {name: number for number, name in enumerate(_MONTH_NAMES, 1)}
_DAYS = {name: number for number, name in enumerate(["sun", "mon", "tue", "wed", "thu", "fri", "sat"])}
_MACROS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_HORIZON = timedelta(days=366 * 5)


class ScheduleError(InvalidInput):
    """A text is not a cron schedule."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """The minutes at which something is due."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    any_day: bool
    any_weekday: bool

    def next_after(self, moment: datetime) -> datetime | None:
        """Return the first due minute after `moment`, or None if there is none for years."""
        at = moment.replace(second=0, microsecond=0) + timedelta(minutes=1)
        end = moment + _HORIZON
        while at < end:
            if at.month not in self.months or not self._day_fits(at):
                at = at.replace(hour=0, minute=0) + timedelta(days=1)
            elif at.hour not in self.hours:
                at = at.replace(minute=0) + timedelta(hours=1)
            elif at.minute not in self.minutes:
                at += timedelta(minutes=1)
            else:
                return at
        return None

    def _day_fits(self, at: datetime) -> bool:
        day, weekday = at.day in self.days, at.isoweekday() % 7 in self.weekdays
        if self.any_day or self.any_weekday:  # a star on one side leaves the choice to the other
            return day and weekday
        return day or weekday


def parse_schedule(text: str) -> Schedule:
    """Return the schedule a cron text describes."""
    fields = _MACROS.get(text.strip(), text).split()
    if len(fields) != 5:
        raise ScheduleError(f"{text!r} must have five fields")
    minutes = _field(fields[0], 0, 59, {})
    hours = _field(fields[1], 0, 23, {})
    days = _field(fields[2], 1, 31, {})
    months = _field(fields[3], 1, 12, _MONTHS)
    weekdays = frozenset(day % 7 for day in _field(fields[4], 0, 7, _DAYS))
    return Schedule(minutes, hours, days, months, weekdays, fields[2][0] in "*?", fields[4][0] in "*?")


def _field(text: str, low: int, high: int, names: dict[str, int]) -> frozenset[int]:
    values: set[int] = set()
    for part in text.split(","):
        span, _, step_text = part.partition("/")
        step = _number(step_text, {}, part) if step_text else 1
        if span in ("*", "?"):
            first, last = low, high
        else:
            start, dash, end = span.partition("-")
            first = _number(start, names, part)
            last = _number(end, names, part) if dash else (high if step_text else first)
        if step < 1 or not low <= first <= last <= high:
            raise ScheduleError(f"{part!r} is not within {low}-{high}")
        values.update(range(first, last + 1, step))
    return frozenset(values)


def _number(text: str, names: dict[str, int], part: str) -> int:
    if text.lower() in names:
        return names[text.lower()]
    if not text.isdigit():
        raise ScheduleError(f"{part!r} is not a number, range or step")
    return int(text)


class CronJobs(SimController):
    """Watches the clock."""

    name = "cronjob-controller"

    def watch(self) -> None:
        self.world.on(CRON_JOBS, self._changed)
        self.world.on(JOBS, self._job_changed)

    def _changed(self, old: Raw | None, new: Raw | None) -> None:
        if new is not None and (old is None or old.get("spec") != new.get("spec")):
            self.enqueue(key_of(new))

    def _job_changed(self, old: Raw | None, new: Raw | None) -> None:
        job = new if new is not None else old
        owner = controller_of(job) if job is not None else None
        if job is not None and owner is not None and owner.get("kind") == "CronJob":
            self.enqueue(StoreKey(job["metadata"]["namespace"], owner["name"]))

    async def reconcile(self, key: StoreKey) -> None:
        cron = self.world.get(CRON_JOBS, key)
        if cron is None or cron["metadata"].get("deletionTimestamp"):
            return
        jobs = self.world.children(cron["metadata"]["uid"], JOBS)
        await self._prune(cron, jobs)
        spec = cron["spec"]
        last = (cron.get("status") or {}).get("lastScheduleTime")
        if not spec.get("suspend"):
            try:
                schedule = parse_schedule(str(spec.get("schedule")))
            except ScheduleError as error:
                self.world.record(cron, "UnparseableSchedule", str(error), kind="Warning", component=self.name)
                return
            now = self.world.now()
            since = datetime.fromisoformat(last or cron["metadata"]["creationTimestamp"])
            due = schedule.next_after(since.astimezone(UTC))
            missed = due
            while missed is not None and missed <= now:  # only the latest missed time is made up for
                due, missed = missed, schedule.next_after(missed)
            if due is not None and due <= now:
                last = timestamp(due)
                await self._launch(cron, [job for job in jobs if finished_at(job) is None], due)
                due = missed
            if due is not None:
                self.enqueue_after(key, max(0.001, (due - now).total_seconds()))
        self._write_status(key, last)

    async def _launch(self, cron: Raw, active: list[Raw], due: datetime) -> None:
        spec = cron["spec"]
        deadline = spec.get("startingDeadlineSeconds")
        if deadline is not None and self.world.now() - due > timedelta(seconds=int(deadline)):
            return
        policy = spec.get("concurrencyPolicy") or "Allow"
        if policy == "Forbid" and active:
            message = "Not starting job because prior execution is running and concurrency policy is Forbid"
            self.world.record(cron, "JobAlreadyActive", message, component=self.name)
            return
        if policy == "Replace":
            for job in active:
                await self.world.delete(JOBS, key_of(job))
        template = spec["jobTemplate"]
        meta = template.get("metadata") or {}
        name = f"{cron['metadata']['name']}-{int(due.timestamp()) // 60}"
        body: Raw = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {
                "name": name,
                "namespace": cron["metadata"]["namespace"],
                "labels": meta.get("labels") or {},
                "annotations": {
                    **(meta.get("annotations") or {}),
                    "batch.kubernetes.io/cronjob-scheduled-timestamp": timestamp(due),
                },
                "ownerReferences": [owner_reference(cron)],
            },
            "spec": template.get("spec") or {},
        }
        if self.world.get(JOBS, StoreKey(cron["metadata"]["namespace"], name)) is None:
            await self.world.create(JOBS, body)
            self.world.record(cron, "SuccessfulCreate", f"Created job {name}", component=self.name)

    async def _prune(self, cron: Raw, jobs: list[Raw]) -> None:
        for outcome, field, default in (
            ("Complete", "successfulJobsHistoryLimit", 3),
            ("Failed", "failedJobsHistoryLimit", 1),
        ):
            limit = cron["spec"].get(field)
            ended = [job for job in jobs if condition_of(job, outcome) == "True"]
            ended.sort(key=lambda job: str(job["metadata"]["creationTimestamp"]))
            for job in ended[: max(0, len(ended) - (default if limit is None else int(limit)))]:
                await self.world.delete(JOBS, key_of(job))

    def _write_status(self, key: StoreKey, last: str | None) -> None:
        cron = self.world.get(CRON_JOBS, key)
        if cron is None:
            return
        active = [job for job in self.world.children(cron["metadata"]["uid"], JOBS) if finished_at(job) is None]
        status: Raw = {}
        if active:
            status["active"] = [
                {
                    "apiVersion": "batch/v1",
                    "kind": "Job",
                    "name": job["metadata"]["name"],
                    "namespace": key.namespace,
                    "uid": job["metadata"]["uid"],
                }
                for job in active
            ]
        if last is not None:
            status["lastScheduleTime"] = last
        self.world.put(CRON_JOBS, cron, status=status)
