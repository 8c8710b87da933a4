"""The read model of a cluster and everything that is made of it without looking at the world again."""
