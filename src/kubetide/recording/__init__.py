"""Recordings of a cluster: what was used, asked for and decided, in a file that other tools can read.

`format` says what is in a file, `writer` and `reader` are its two ends, `core` decides what may be in it at all. The
sources are beside them: Prometheus, a live cluster, CSV, packs of traces.
"""
