"""Jobs: run pods until enough have succeeded, or too many have failed."""

from datetime import datetime

from kubetide.embedded.apiserver.rest.status import Raw
from kubetide.embedded.apiserver.storage.objects import StoreKey
from kubetide.embedded.sim.controllers.adoption import OwnerController
from kubetide.embedded.sim.controllers.replicas import pod_from
from kubetide.embedded.sim.world import (
    JOBS,
    PODS,
    is_active,
    is_ready,
    key_of,
    phase_of,
    with_condition,
)


class Jobs(OwnerController):
    """Counts successes."""

    name = "job-controller"
    resource, kind = JOBS, "Job"

    async def reconcile(self, key: StoreKey) -> None:
        job = self.world.get(JOBS, key)
        if job is None or job["metadata"].get("deletionTimestamp"):
            return
        if finished_at(job) is not None:
            await self._expire(key, job)
            return
        self._claims.settle(job)
        pods = self.world.children(job["metadata"]["uid"], PODS)
        active = [pod for pod in pods if is_active(pod)]
        succeeded = sum(phase_of(pod) == "Succeeded" for pod in pods)
        failed = sum(phase_of(pod) == "Failed" for pod in pods)
        spec = job["spec"]
        completions = spec.get("completions")
        parallelism = 1 if spec.get("parallelism") is None else int(spec["parallelism"])
        limit = 6 if spec.get("backoffLimit") is None else int(spec["backoffLimit"])
        outcome = ""
        enough = succeeded >= int(completions) if completions is not None else bool(succeeded and not active)
        if failed > limit:
            outcome = "Failed"
        elif enough:
            outcome = "Complete"
        if outcome:
            for pod in active:
                await self.world.delete(PODS, key_of(pod), uid=pod["metadata"]["uid"])
            active = []
        elif not spec.get("suspend"):
            left = parallelism if completions is None else min(parallelism, int(completions) - succeeded)
            if completions is None and succeeded:
                left = len(active)
            for _ in range(left - len(active)):
                pod = await self.world.create(PODS, self._pod(job))
                active.append(pod)
                self.world.record(
                    job, "SuccessfulCreate", f"Created pod: {pod['metadata']['name']}", component=self.name
                )
        self._write_status(key, len(active), sum(is_ready(p) for p in active), succeeded, failed, outcome)

    def _pod(self, job: Raw) -> Raw:
        labels = {
            "batch.kubernetes.io/job-name": job["metadata"]["name"],
            "job-name": job["metadata"]["name"],
            "batch.kubernetes.io/controller-uid": job["metadata"]["uid"],
        }
        pod = pod_from(job, job["spec"]["template"], labels=labels)
        pod["spec"] = {"restartPolicy": "Never", **pod["spec"]}
        return pod

    def _write_status(self, key: StoreKey, active: int, ready: int, succeeded: int, failed: int, outcome: str) -> None:
        job = self.world.get(JOBS, key)
        if job is None:
            return
        before = job.get("status") or {}
        now = self.world.stamp()
        status: Raw = {"startTime": before.get("startTime") or now, "ready": ready}
        counts = {"active": active, "succeeded": succeeded, "failed": failed}
        status |= {name: count for name, count in counts.items() if count}
        if before.get("conditions"):
            status["conditions"] = before["conditions"]
        if outcome:
            condition = {"type": outcome, "status": "True", "lastProbeTime": now, "lastTransitionTime": now}
            if outcome == "Failed":
                condition |= {
                    "reason": "BackoffLimitExceeded",
                    "message": "Job has reached the specified backoff limit",
                }
            else:
                status["completionTime"] = now
            status["conditions"] = with_condition(before.get("conditions"), condition)
            reason = "Completed" if outcome == "Complete" else "BackoffLimitExceeded"
            self.world.record(job, reason, f"Job {outcome.lower()}", component=self.name)
        self.world.put(JOBS, job, status=status)
        if outcome:
            self.enqueue(key)

    async def _expire(self, key: StoreKey, job: Raw) -> None:
        lifetime = job["spec"].get("ttlSecondsAfterFinished")
        end = finished_at(job)
        if lifetime is None or end is None:
            return
        left = int(lifetime) - (self.world.now() - end).total_seconds()
        if left <= 0:
            await self.world.delete(JOBS, key)
        else:
            self.enqueue_after(key, left)


def finished_at(job: Raw) -> datetime | None:
    """Return when a job ended, well or badly; None while it runs."""
    for condition in (job.get("status") or {}).get("conditions") or ():
        if condition.get("type") in ("Complete", "Failed") and condition.get("status") == "True":
            return datetime.fromisoformat(condition["lastTransitionTime"])
    return None
