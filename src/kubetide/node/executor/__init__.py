"""Cgroup writes as plans: ordered, merged, skipped when unchanged, audited."""
