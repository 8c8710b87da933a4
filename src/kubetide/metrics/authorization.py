"""What somebody may ask for: the API server decides (SubjectAccessReview), and its answer is kept for a while.

Members of `system:masters` may do everything, as everywhere in Kubernetes, also while the API server cannot be asked.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from kubetide.api.values.codec import decode_raw, encode
from kubetide.clock import Clock
from kubetide.kube.client.client import Client
from kubetide.metrics.answer_cache import AnswerCache
from kubetide.metrics.core.identity import User

_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
_MASTERS = "system:masters"


class Authorizer:
    """Asks the API server whether a user may do something."""

    def __init__(self, client: Client, clock: Clock, *, allowed_ttl: timedelta, denied_ttl: timedelta) -> None:
        self._client = client
        self._answers: AnswerCache[bool] = AnswerCache(clock, lambda allowed: allowed_ttl if allowed else denied_ttl)

    async def allows(self, user: User, attributes: Mapping[str, str]) -> bool:
        """Return whether a user may do this to a resource. Raises where the API server cannot be asked."""
        return await self._ask(user, {"resourceAttributes": dict(attributes)})

    async def allows_path(self, user: User, path: str) -> bool:
        """Return whether a user may read a path that is no resource."""
        return await self._ask(user, {"nonResourceAttributes": {"path": path, "verb": "get"}})

    async def _ask(self, user: User, what: dict[str, dict[str, str]]) -> bool:
        if _MASTERS in user.groups:
            return True
        ((kind, attributes),) = what.items()
        question = (user.key(), kind, tuple(sorted(attributes.items())))
        return await self._answers.get(question, lambda: self._review(user, what))

    async def _review(self, user: User, what: Mapping[str, Any]) -> bool:
        spec = {
            "user": user.name,
            "groups": list(user.groups),
            "uid": user.uid,
            "extra": {key: list(values) for key, values in user.extra.items()},
            **what,
        }
        body = encode({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec})
        answer = decode_raw((await self._client.request("POST", _REVIEWS, body=body)).body, what=_REVIEWS)
        status = answer.get("status") or {}
        return bool(status.get("allowed")) and not status.get("denied")
