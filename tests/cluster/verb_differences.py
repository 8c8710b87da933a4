"""Where a real kube-apiserver and the embedded one are allowed to differ, and why. Nothing else may."""

REAL_ONLY_DIFFERENCES: dict[str, str] = {
    "an_exact_version_shows_the_past": "served from etcd, which may have compacted it by then",
    "a_watch_can_begin_with_the_state_and_a_bookmark": "needs an etcd that announces progress requests (3.5.8 or later)",
}
"""Cases not run against a real server, with the reason."""
