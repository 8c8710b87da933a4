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

SATURATES = (
    "a count beyond 32 bits is the largest one, where upstream on amd64 gets the smallest, so that a huge load scales "
    "its target down"
)
"""A named difference that the adapter of whole reconciles finds by rule."""

NO_SUCH_FEATURE = (
    "a scheduler feature that the kernel does not list is not written, where upstream tries and fails in every sync"
)

ONE_FIELD = "cpu.max without a period, which no kernel prints, is read as a quota instead of being refused"

ZERO_NEXT_TO_AN_AVERAGE = (
    "a total of 0 that autoscaling/v1 has to carry next to an average is not taken for a target, whatever the release: "
    "up to 1.35 upstream makes the object invalid on its way through v1"
)
"""A named difference that the adapter of the autoscaling API finds by rule."""

_NO_DOCKER = "the runtime proxy speaks CRI only: Docker Engine is not a runtime that current kubelets can use"

NO_NUMA_PAGES = "memory per NUMA node of a cgroup is neither reported nor acted on"
_NO_LISTS = "nothing compares or intersects whole resource lists: resources are compared one by one"
_NO_PROCESS_GROUPS = "core scheduling gives a cookie to whole thread groups, so process groups are not read"

NOT_APPLICABLE: dict[str, str] = {
    "node/amplify": "amplified integers are the scheduler's: the controller writes the ratio",
    "node/memory_numa_stat": NO_NUMA_PAGES,
    "node/min_resource_list": _NO_LISTS,
    "node/proc_pid_stat": _NO_PROCESS_GROUPS,
    "node/resource_list_equal": _NO_LISTS,
    "node/zone_list_equal": "zones are compared by what the agent or the controller would write (nrt_changed)",
    "node-qos/anolis_detection": "each kernel feature is looked for by itself, not the distribution",
    "node-qos/parse_cpuacct_stat_v2": "user and system time are not read; usage and throttling have suites",
    "node-qos/parse_memory_numa_stat_v1": NO_NUMA_PAGES,
    "node-qos/parse_memory_numa_stat_v2": NO_NUMA_PAGES,
    "node-qos/parse_proc_stat": _NO_PROCESS_GROUPS,
    "node-qos/proxy_docker_container_id": _NO_DOCKER,
    "node-qos/proxy_docker_env": _NO_DOCKER,
    "node-qos/proxy_docker_expected_parent": _NO_DOCKER,
    "node-qos/proxy_docker_labels": _NO_DOCKER,
    "node-qos/proxy_docker_update_merge": _NO_DOCKER,
    "node-qos/resctrl_cmdline_flags": "the flags of the CPU decide, whatever the kernel's command line says",
}
"""By the key of a suite."""
