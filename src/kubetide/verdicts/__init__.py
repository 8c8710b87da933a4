"""Verdicts: what is wrong with an autoscaler, a workload or a node in one line, and the command that mends it.

`core` judges plain values, `cluster_reader` reads them from a cluster. `kubetide explain` and `kubetide doctor` are
made of it, and so is everything else that shows verdicts.
"""
