"""Simulated nodes: kubelet, kernel, cgroups, memory, disks, in-place resize."""
