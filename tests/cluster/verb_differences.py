"""Where a real kube-apiserver and the embedded one are allowed to differ, and why. Nothing else may."""

REAL_ONLY_DIFFERENCES: dict[str, str] = {
    "a_watch_can_begin_with_the_state_and_a_bookmark": (
        "an API server refuses it on an etcd without progress requests, such as 3.4"
    ),
}
"""Cases not run against a real server, with the reason."""
