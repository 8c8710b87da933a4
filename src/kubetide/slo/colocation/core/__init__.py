"""What a colocation profile does to a pod, and which pods are refused."""
