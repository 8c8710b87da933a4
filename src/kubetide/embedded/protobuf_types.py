"""Field numbers of the messages that typed clients send, one line per message.

`1 name str` is a member; `[]` a list, `map:` a map with text keys, `?` a member whose zero is a value (a pointer in the
clients), `+` a part whose members stand in the object itself, `Ignored` what the server decides anyway. A name with an
API version is for that version only. Only objects that clients write through typed calls are here; everything else
arrives as JSON.
"""

MESSAGES: dict[str, str] = {
    # metadata
    "ObjectMeta": (
        "1 name str, 2 generateName str, 3 namespace str, 4 selfLink str, 5 uid str, 6 resourceVersion str,"
        "7 generation int, 8 creationTimestamp Time, 9 deletionTimestamp Time?, 10 deletionGracePeriodSeconds int?,"
        "11 labels map:str, 12 annotations map:str, 13 ownerReferences []OwnerReference, 14 finalizers []str,"
        "17 managedFields []Ignored"
    ),
    "OwnerReference": (
        "1 kind str, 3 name str, 4 uid str, 5 apiVersion str, 6 controller bool?, 7 blockOwnerDeletion bool?"
    ),
    "LabelSelector": "1 matchLabels map:str, 2 matchExpressions []LabelSelectorRequirement",
    "LabelSelectorRequirement": "1 key str, 2 operator str, 3 values []str",
    "DeleteOptions": (
        "1 gracePeriodSeconds int?, 2 preconditions Preconditions?, 3 orphanDependents bool?,"
        "4 propagationPolicy str?, 5 dryRun []str"
    ),
    "Preconditions": "1 uid str?, 2 resourceVersion str?",
    "ObjectReference": (
        "1 kind str, 2 namespace str, 3 name str, 4 uid str, 5 apiVersion str, 6 resourceVersion str, 7 fieldPath str"
    ),
    "LocalObjectReference": "1 name str",
    # pods
    "Pod": "1 metadata ObjectMeta, 2 spec PodSpec, 3 status PodStatus",
    "PodStatus": "1 phase str",
    "PodTemplateSpec": "1 metadata ObjectMeta, 2 spec PodSpec",
    "PodSpec": (
        "1 volumes []Volume, 2 containers []Container, 3 restartPolicy str, 4 terminationGracePeriodSeconds int?,"
        "5 activeDeadlineSeconds int?, 6 dnsPolicy str, 7 nodeSelector map:str, 8 serviceAccountName str,"
        "9 serviceAccount str, 10 nodeName str, 11 hostNetwork bool, 12 hostPID bool, 13 hostIPC bool,"
        "14 securityContext PodSecurityContext?, 15 imagePullSecrets []LocalObjectReference, 16 hostname str,"
        "17 subdomain str, 19 schedulerName str, 20 initContainers []Container,"
        "21 automountServiceAccountToken bool?, 22 tolerations []Toleration, 24 priorityClassName str,"
        "25 priority int?, 27 shareProcessNamespace bool?, 29 runtimeClassName str?, 30 enableServiceLinks bool?,"
        "31 preemptionPolicy str?, 32 overhead map:Quantity"
    ),
    "PodSecurityContext": "2 runAsUser int?, 3 runAsNonRoot bool?, 5 fsGroup int?, 6 runAsGroup int?",
    "Toleration": "1 key str, 2 operator str, 3 value str, 4 effect str, 5 tolerationSeconds int?",
    "Container": (
        "1 name str, 2 image str, 3 command []str, 4 args []str, 5 workingDir str, 6 ports []ContainerPort,"
        "7 env []EnvVar, 8 resources ResourceRequirements, 9 volumeMounts []VolumeMount, 10 livenessProbe Probe?,"
        "11 readinessProbe Probe?, 13 terminationMessagePath str, 14 imagePullPolicy str,"
        "15 securityContext SecurityContext?, 16 stdin bool, 17 stdinOnce bool, 18 tty bool,"
        "20 terminationMessagePolicy str, 22 startupProbe Probe?, 23 resizePolicy []ContainerResizePolicy,"
        "24 restartPolicy str?"
    ),
    "ContainerPort": "1 name str, 2 hostPort int, 3 containerPort int, 4 protocol str, 5 hostIP str",
    "ContainerResizePolicy": "1 resourceName str, 2 restartPolicy str",
    "SecurityContext": (
        "2 privileged bool?, 4 runAsUser int?, 5 runAsNonRoot bool?, 6 readOnlyRootFilesystem bool?,"
        "7 allowPrivilegeEscalation bool?, 8 runAsGroup int?"
    ),
    "EnvVar": "1 name str, 2 value str, 3 valueFrom EnvVarSource?",
    "EnvVarSource": (
        "1 fieldRef ObjectFieldSelector?, 2 resourceFieldRef ResourceFieldSelector?, 3 configMapKeyRef KeySelector?,"
        "4 secretKeyRef KeySelector?"
    ),
    "ObjectFieldSelector": "1 apiVersion str, 2 fieldPath str",
    "ResourceFieldSelector": "1 containerName str, 2 resource str, 3 divisor Quantity",
    "KeySelector": "1 + LocalObjectReference, 2 key str, 3 optional bool?",
    "ResourceRequirements": "1 limits map:Quantity, 2 requests map:Quantity",
    "VolumeMount": "1 name str, 2 readOnly bool, 3 mountPath str, 4 subPath str, 5 mountPropagation str?",
    "Volume": "1 name str, 2 + VolumeSource",
    "VolumeSource": "2 emptyDir EmptyDirVolumeSource?, 19 configMap ConfigMapVolumeSource?",
    "EmptyDirVolumeSource": "1 medium str, 2 sizeLimit Quantity?",
    "ConfigMapVolumeSource": "1 + LocalObjectReference, 3 defaultMode int?, 4 optional bool?",
    "Probe": (
        "1 + ProbeHandler, 2 initialDelaySeconds int, 3 timeoutSeconds int, 4 periodSeconds int,"
        "5 successThreshold int, 6 failureThreshold int, 7 terminationGracePeriodSeconds int?"
    ),
    "ProbeHandler": "1 exec ExecAction?, 2 httpGet HTTPGetAction?, 3 tcpSocket TCPSocketAction?",
    "ExecAction": "1 command []str",
    "HTTPGetAction": "1 path str, 2 port IntOrString, 3 host str, 4 scheme str",
    "TCPSocketAction": "1 port IntOrString, 2 host str",
    "Binding": "1 metadata ObjectMeta, 2 target ObjectReference",
    "Eviction": "1 metadata ObjectMeta, 2 deleteOptions DeleteOptions?",
    # workloads
    "Deployment": "1 metadata ObjectMeta, 2 spec DeploymentSpec, 3 status Ignored",
    "DeploymentSpec": (
        "1 replicas int?, 2 selector LabelSelector?, 3 template PodTemplateSpec, 4 strategy DeploymentStrategy,"
        "5 minReadySeconds int, 6 revisionHistoryLimit int?, 7 paused bool, 9 progressDeadlineSeconds int?"
    ),
    "DeploymentStrategy": "1 type str, 2 rollingUpdate RollingUpdate?",
    "RollingUpdate": "1 maxUnavailable IntOrString?, 2 maxSurge IntOrString?",
    "Job": "1 metadata ObjectMeta, 2 spec JobSpec, 3 status Ignored",
    "JobSpec": (
        "1 parallelism int?, 2 completions int?, 3 activeDeadlineSeconds int?, 4 selector LabelSelector?,"
        "5 manualSelector bool?, 6 template PodTemplateSpec, 7 backoffLimit int?, 8 ttlSecondsAfterFinished int?,"
        "9 completionMode str?, 10 suspend bool?, 14 podReplacementPolicy str?"
    ),
    "CronJob": "1 metadata ObjectMeta, 2 spec CronJobSpec, 3 status Ignored",
    "CronJobSpec": (
        "1 schedule str, 2 startingDeadlineSeconds int?, 3 concurrencyPolicy str, 4 suspend bool?,"
        "5 jobTemplate JobTemplateSpec, 6 successfulJobsHistoryLimit int?, 7 failedJobsHistoryLimit int?,"
        "8 timeZone str?"
    ),
    "JobTemplateSpec": "1 metadata ObjectMeta, 2 spec JobSpec",
    "PodDisruptionBudget": "1 metadata ObjectMeta, 2 spec PodDisruptionBudgetSpec, 3 status Ignored",
    "PodDisruptionBudgetSpec": (
        "1 minAvailable IntOrString?, 2 selector LabelSelector?, 3 maxUnavailable IntOrString?,"
        "4 unhealthyPodEvictionPolicy str?"
    ),
    # autoscaling
    "HorizontalPodAutoscaler": "1 metadata ObjectMeta, 2 spec HorizontalPodAutoscalerSpec, 3 status Ignored",
    "HorizontalPodAutoscalerSpec": (
        "1 scaleTargetRef CrossVersionObjectReference, 2 minReplicas int?, 3 maxReplicas int,"
        "4 targetCPUUtilizationPercentage int?"
    ),
    "CrossVersionObjectReference": "1 kind str, 2 name str, 3 apiVersion str",
    "HorizontalPodAutoscaler.autoscaling/v2": "1 metadata ObjectMeta, 2 spec AutoscalerSpecV2, 3 status Ignored",
    "AutoscalerSpecV2": (
        "1 scaleTargetRef CrossVersionObjectReference, 2 minReplicas int?, 3 maxReplicas int, 4 metrics []MetricSpec,"
        "5 behavior Behavior?"
    ),
    "MetricSpec": (
        "1 type str, 2 object ObjectMetricSource?, 3 pods PodsMetricSource?, 4 resource ResourceMetricSource?,"
        "5 external PodsMetricSource?, 7 containerResource ContainerResourceMetricSource?"
    ),
    "ObjectMetricSource": (
        "1 describedObject CrossVersionObjectReference, 2 target MetricTarget, 3 metric MetricIdentifier"
    ),
    "PodsMetricSource": "1 metric MetricIdentifier, 2 target MetricTarget",
    "ResourceMetricSource": "1 name str, 2 target MetricTarget",
    "ContainerResourceMetricSource": "1 name str, 2 target MetricTarget, 3 container str",
    "MetricIdentifier": "1 name str, 2 selector LabelSelector?",
    "MetricTarget": "1 type str, 2 value Quantity?, 3 averageValue Quantity?, 4 averageUtilization int?",
    "Behavior": "1 scaleUp ScalingRules?, 2 scaleDown ScalingRules?",
    "ScalingRules": (
        "1 selectPolicy str?, 2 policies []ScalingPolicy, 3 stabilizationWindowSeconds int?, 4 tolerance Quantity?"
    ),
    "ScalingPolicy": "1 type str, 2 value int, 3 periodSeconds int",
    "Scale": "1 metadata ObjectMeta, 2 spec ScaleSpec, 3 status ScaleStatus",
    "ScaleSpec": "1 replicas int?",
    "ScaleStatus": "1 replicas int, 2 selector str",
    # core objects
    "Namespace": "1 metadata ObjectMeta, 2 spec NamespaceSpec, 3 status Ignored",
    "NamespaceSpec": "1 finalizers []str",
    "Secret": "1 metadata ObjectMeta, 2 data map:bytes, 3 type str, 4 stringData map:str, 5 immutable bool?",
    "ConfigMap": "1 metadata ObjectMeta, 2 data map:str, 3 binaryData map:bytes, 4 immutable bool?",
    "ServiceAccount": (
        "1 metadata ObjectMeta, 2 secrets []ObjectReference, 3 imagePullSecrets []LocalObjectReference,"
        "4 automountServiceAccountToken bool?"
    ),
    "Service": "1 metadata ObjectMeta, 2 spec ServiceSpec, 3 status Ignored",
    "ServiceSpec": (
        "1 ports []ServicePort, 2 selector map:str, 3 clusterIP str, 4 type str, 5 externalIPs []str,"
        "7 sessionAffinity str, 8 loadBalancerIP str, 9 loadBalancerSourceRanges []str, 10 externalName str,"
        "11 externalTrafficPolicy str, 12 healthCheckNodePort int, 13 publishNotReadyAddresses bool,"
        "17 ipFamilyPolicy str?, 18 clusterIPs []str, 19 ipFamilies []str, 20 allocateLoadBalancerNodePorts bool?,"
        "21 loadBalancerClass str?, 22 internalTrafficPolicy str?"
    ),
    "ServicePort": (
        "1 name str, 2 protocol str, 3 port int, 4 targetPort IntOrString, 5 nodePort int, 6 appProtocol str?"
    ),
    "ResourceQuota": "1 metadata ObjectMeta, 2 spec ResourceQuotaSpec, 3 status Ignored",
    "ResourceQuotaSpec": "1 hard map:Quantity, 2 scopes []str",
    "PriorityClass": (
        "1 metadata ObjectMeta, 2 value int, 3 globalDefault bool, 4 description str, 5 preemptionPolicy str?"
    ),
    "Event": (
        "1 metadata ObjectMeta, 2 involvedObject ObjectReference, 3 reason str, 4 message str, 5 source EventSource,"
        "6 firstTimestamp Time, 7 lastTimestamp Time, 8 count int, 9 type str, 10 eventTime MicroTime,"
        "11 series EventSeries?, 12 action str, 13 related ObjectReference?, 14 reportingComponent str,"
        "15 reportingInstance str"
    ),
    "EventSource": "1 component str, 2 host str",
    "EventSeries": "1 count int, 2 lastObservedTime MicroTime",
    "Lease": "1 metadata ObjectMeta, 2 spec LeaseSpec",
    "LeaseSpec": (
        "1 holderIdentity str?, 2 leaseDurationSeconds int?, 3 acquireTime MicroTime?, 4 renewTime MicroTime?,"
        "5 leaseTransitions int?, 6 strategy str?, 7 preferredHolder str?"
    ),
    # access
    "Role": "1 metadata ObjectMeta, 2 rules []PolicyRule",
    "ClusterRole": "1 metadata ObjectMeta, 2 rules []PolicyRule, 3 aggregationRule AggregationRule?",
    "AggregationRule": "1 clusterRoleSelectors []LabelSelector",
    "PolicyRule": "1 verbs []str, 2 apiGroups []str, 3 resources []str, 4 resourceNames []str, 5 nonResourceURLs []str",
    "RoleBinding": "1 metadata ObjectMeta, 2 subjects []Subject, 3 roleRef RoleRef",
    "ClusterRoleBinding": "1 metadata ObjectMeta, 2 subjects []Subject, 3 roleRef RoleRef",
    "Subject": "1 kind str, 2 apiGroup str, 3 name str, 4 namespace str",
    "RoleRef": "1 apiGroup str, 2 kind str, 3 name str",
    "SelfSubjectAccessReview": "1 metadata ObjectMeta, 2 spec AccessReviewSpec, 3 status Ignored",
    "SubjectAccessReview": "1 metadata ObjectMeta, 2 spec AccessReviewSpec, 3 status Ignored",
    "LocalSubjectAccessReview": "1 metadata ObjectMeta, 2 spec AccessReviewSpec, 3 status Ignored",
    "AccessReviewSpec": (
        "1 resourceAttributes ResourceAttributes?, 2 nonResourceAttributes NonResourceAttributes?, 3 user str,"
        "4 groups []str, 6 uid str"
    ),
    "ResourceAttributes": (
        "1 namespace str, 2 verb str, 3 group str, 4 version str, 5 resource str, 6 subresource str, 7 name str"
    ),
    "NonResourceAttributes": "1 path str, 2 verb str",
    "SelfSubjectRulesReview": "1 metadata ObjectMeta, 2 spec SelfSubjectRulesReviewSpec, 3 status Ignored",
    "SelfSubjectRulesReviewSpec": "1 namespace str",
    "SelfSubjectReview": "1 metadata ObjectMeta, 2 status Ignored",
    "TokenReview": "1 metadata ObjectMeta, 2 spec TokenReviewSpec, 3 status Ignored",
    "TokenReviewSpec": "1 token str, 2 audiences []str",
    "TokenRequest": "1 metadata ObjectMeta, 2 spec TokenRequestSpec, 3 status Ignored",
    "TokenRequestSpec": "1 audiences []str, 3 boundObjectRef BoundObjectReference?, 4 expirationSeconds int?",
    "BoundObjectReference": "1 kind str, 2 apiVersion str, 3 name str, 4 uid str",
}
"""Name of a message to its members."""
