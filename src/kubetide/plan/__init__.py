"""WorkloadPlan: how many pods and how big, said in one place."""
