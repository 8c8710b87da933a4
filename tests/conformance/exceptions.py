"""Vectors that kubetide does not follow on purpose, each with its reason.

`DIFFERENCES` holds cases that run and must differ: where kubetide's rule is the safer one it stays. One that agrees
after all is a failure, so that the list cannot outlive its reasons. `NOT_APPLICABLE` holds suites whose subject is
not in the product. The runner counts both apart, and `docs/node/differences.md` tells users about them.
"""

DIFFERENCES: dict[str, str] = {
    "cpusuppress_quantity-001": (
        "a node that reports no CPU capacity is not known well enough: nothing is suppressed, where upstream works "
        "with a capacity of 0 and cuts best-effort work to its minimum"
    ),
}
"""By the id of a case."""

_NO_DOCKER = "the runtime proxy speaks CRI only: Docker Engine is not a runtime that current kubelets can use"

NOT_APPLICABLE: dict[str, str] = {
    "node-qos/proxy_docker_container_id": _NO_DOCKER,
    "node-qos/proxy_docker_env": _NO_DOCKER,
    "node-qos/proxy_docker_expected_parent": _NO_DOCKER,
    "node-qos/proxy_docker_labels": _NO_DOCKER,
    "node-qos/proxy_docker_update_merge": _NO_DOCKER,
}
"""By the key of a suite."""
