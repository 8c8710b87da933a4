"""CronJobs: make a Job when its minute comes."""

from datetime import UTC, datetime, timedelta

from kubetide.api.values.schedule import ScheduleError, parse_schedule
from kubetide.embedded.apiserver.rest.status import Raw
from kubetide.embedded.apiserver.rest.strategy import timestamp
from kubetide.embedded.apiserver.storage.objects import StoreKey
from kubetide.embedded.sim.controllers.base import SimController
from kubetide.embedded.sim.controllers.jobs import finished_at
from kubetide.embedded.sim.world import CRON_JOBS, JOBS, condition_of, controller_of, key_of, owner_reference


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
