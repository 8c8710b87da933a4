"""The simulated cluster: controllers, scheduler, kubelets, kernel, load, in virtual time."""
