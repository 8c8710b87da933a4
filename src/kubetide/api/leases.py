"""Leases: who leads, until when."""

from datetime import datetime

from kubetide.api.meta import ApiObject, TypedObject


class LeaseSpec(ApiObject, frozen=True, kw_only=True, gc=False):
    holder_identity: str = ""
    lease_duration_seconds: int = 0
    acquire_time: datetime | None = None
    renew_time: datetime | None = None
    lease_transitions: int = 0


class Lease(TypedObject, frozen=True, kw_only=True, gc=False):
    spec: LeaseSpec = LeaseSpec()
