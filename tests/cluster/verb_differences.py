"""Where a real kube-apiserver and the embedded one are allowed to differ, and why. Nothing else may."""

REAL_ONLY_DIFFERENCES: dict[str, str] = {
    "an_exact_version_shows_the_past": "served from etcd, which may already have compacted it under load",
}
"""Cases not run against a real server, with the reason."""
