"""The judgement itself: a view of the cluster goes in, findings with their remedies come out."""
