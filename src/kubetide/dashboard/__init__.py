"""What a person looks at while a cluster runs: a read model, and the lines that show it."""
