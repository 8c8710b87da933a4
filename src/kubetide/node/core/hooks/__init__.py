"""Runtime hooks: cgroup values that the kubelet does not know about, set over NRI, a runtime proxy or a reconciler."""
