"""What the runtime proxy remembers of pods and containers, and how hook answers change requests on their way.

The kubelet's later calls name only ids; the hooks want to know the pod behind them. The store is filled by the calls
that pass, and after a restart from what the runtime reports.
"""

from dataclasses import dataclass, field, replace

from kubetide.node.runtime.protos import cri_pb2 as cri
from kubetide.node.runtime.protos import hooks_pb2 as hooks
from kubetide.node.runtime.proxy_merge import LinuxResources, merge_hook_response, merge_update_request


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPod:
    """A sandbox as the hooks need to know it."""

    name: str = ""
    uid: str = ""
    namespace: str = ""
    runtime_handler: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    cgroup_parent: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredContainer:
    """A container as the hooks need to know it."""

    pod: StoredPod
    name: str = ""
    attempt: int = 0
    container_id: str = ""
    annotations: dict[str, str] = field(default_factory=dict)
    resources: LinuxResources | None = None
    env: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class ProxyStore:
    """Pods by sandbox id, containers by container id."""

    pods: dict[str, StoredPod] = field(default_factory=dict)
    stopped: dict[str, StoredPod] = field(default_factory=dict)
    """Sandboxes that were stopped and not removed yet."""
    containers: dict[str, StoredContainer] = field(default_factory=dict)


def pod_of(request: cri.RunPodSandboxRequest) -> StoredPod:
    """Return the pod that a RunPodSandbox request describes."""
    config = request.config
    return StoredPod(
        name=config.metadata.name,
        uid=config.metadata.uid,
        namespace=config.metadata.namespace,
        runtime_handler=request.runtime_handler,
        labels=dict(config.labels),
        annotations=dict(config.annotations),
        cgroup_parent=config.linux.cgroup_parent,
    )


def container_of(request: cri.CreateContainerRequest, pod: StoredPod) -> StoredContainer:
    """Return the container that a CreateContainer request describes."""
    config = request.config
    parent = request.sandbox_config.linux.cgroup_parent
    return StoredContainer(
        pod=replace(pod, cgroup_parent=parent or pod.cgroup_parent),
        name=config.metadata.name,
        attempt=config.metadata.attempt,
        annotations=dict(config.annotations),
        resources=from_message(config.linux.resources),
        env={variable.key: variable.value for variable in config.envs},
    )


def pod_hook_request(pod: StoredPod) -> hooks.PodSandboxHookRequest:
    """Return the hook request of a pod."""
    return hooks.PodSandboxHookRequest(
        pod_meta=hooks.PodSandboxMetadata(name=pod.name, uid=pod.uid, namespace=pod.namespace),
        runtime_handler=pod.runtime_handler,
        labels=pod.labels,
        annotations=pod.annotations,
        cgroup_parent=pod.cgroup_parent,
    )


def container_hook_request(container: StoredContainer) -> hooks.ContainerResourceHookRequest:
    """Return the hook request of a container."""
    pod = container.pod
    request = hooks.ContainerResourceHookRequest(
        pod_meta=hooks.PodSandboxMetadata(name=pod.name, uid=pod.uid, namespace=pod.namespace),
        container_meta=hooks.ContainerMetadata(
            name=container.name, attempt=container.attempt, id=container.container_id
        ),
        container_annotations=container.annotations,
        pod_annotations=pod.annotations,
        pod_labels=pod.labels,
        pod_cgroup_parent=pod.cgroup_parent,
        container_envs=container.env,
    )
    if container.resources is not None:
        request.container_resources.ParseFromString(to_message(container.resources).SerializeToString())
    return request


def with_pod_answer(
    request: cri.RunPodSandboxRequest, pod: StoredPod, answer: hooks.PodSandboxHookResponse
) -> StoredPod:
    """Put a hook's answer into the request and return the pod as it is then; resources are not part of it."""
    pod = replace(
        pod,
        labels={**pod.labels, **answer.labels},
        annotations={**pod.annotations, **answer.annotations},
        cgroup_parent=answer.cgroup_parent or pod.cgroup_parent,
    )
    request.config.labels.update(pod.labels)
    request.config.annotations.update(pod.annotations)
    if pod.cgroup_parent:
        request.config.linux.cgroup_parent = pod.cgroup_parent
    return pod


def with_container_answer(
    request: cri.CreateContainerRequest, container: StoredContainer, answer: hooks.ContainerResourceHookResponse
) -> StoredContainer:
    """Put a hook's answer into the request and return the container as it is then."""
    container = _answered(container, answer)
    config = request.config
    config.annotations.update(container.annotations)
    if container.resources is not None:
        config.linux.resources.CopyFrom(to_message(container.resources))
    if container.pod.cgroup_parent:
        request.sandbox_config.linux.cgroup_parent = container.pod.cgroup_parent
    if answer.container_envs:
        # The kubelet's order stays (a variable may be built on an earlier one); what is new comes last.
        del config.envs[:]
        config.envs.extend(cri.KeyValue(key=key, value=value) for key, value in container.env.items())
    return container


def updated(container: StoredContainer, request: cri.UpdateContainerResourcesRequest) -> StoredContainer:
    """Return the container with what an update request sets."""
    merged = merge_update_request(container.resources or LinuxResources(), from_message(request.linux))
    return replace(container, resources=merged, annotations={**container.annotations, **dict(request.annotations)})


def with_update_answer(
    request: cri.UpdateContainerResourcesRequest,
    container: StoredContainer,
    answer: hooks.ContainerResourceHookResponse,
) -> StoredContainer:
    """Put a hook's answer into an update request and return the container as it is then."""
    container = _answered(container, answer)
    request.annotations.update(container.annotations)
    if container.resources is not None:
        request.linux.CopyFrom(to_message(container.resources))
    return container


def from_message(message: cri.LinuxContainerResources) -> LinuxResources:
    """Return resources of the runtime interface as a value."""
    return LinuxResources(
        cpu_period=message.cpu_period,
        cpu_quota=message.cpu_quota,
        cpu_shares=message.cpu_shares,
        memory_limit_in_bytes=message.memory_limit_in_bytes,
        oom_score_adj=message.oom_score_adj,
        cpuset_cpus=message.cpuset_cpus,
        cpuset_mems=message.cpuset_mems,
        hugepage_limits=tuple((page.page_size, page.limit) for page in message.hugepage_limits),
        unified=dict(message.unified),
        memory_swap_limit_in_bytes=message.memory_swap_limit_in_bytes,
    )


def to_message(resources: LinuxResources) -> cri.LinuxContainerResources:
    """Return resources as a message of the runtime interface."""
    return cri.LinuxContainerResources(
        cpu_period=resources.cpu_period,
        cpu_quota=resources.cpu_quota,
        cpu_shares=resources.cpu_shares,
        memory_limit_in_bytes=resources.memory_limit_in_bytes,
        oom_score_adj=resources.oom_score_adj,
        cpuset_cpus=resources.cpuset_cpus,
        cpuset_mems=resources.cpuset_mems,
        hugepage_limits=[cri.HugepageLimit(page_size=size, limit=limit) for size, limit in resources.hugepage_limits],
        unified=dict(resources.unified),
        memory_swap_limit_in_bytes=resources.memory_swap_limit_in_bytes,
    )


def _answered(container: StoredContainer, answer: hooks.ContainerResourceHookResponse) -> StoredContainer:
    resources = container.resources
    if answer.HasField("container_resources"):
        given = cri.LinuxContainerResources.FromString(answer.container_resources.SerializeToString())
        resources = merge_hook_response(resources or LinuxResources(), from_message(given))
    env = {key: answer.container_envs.get(key, value) for key, value in container.env.items()}
    env |= {key: value for key, value in answer.container_envs.items() if key not in env}
    return replace(
        container,
        annotations={**container.annotations, **dict(answer.container_annotations)},
        resources=resources,
        env=env,
        pod=replace(container.pod, cgroup_parent=answer.pod_cgroup_parent or container.pod.cgroup_parent),
    )
