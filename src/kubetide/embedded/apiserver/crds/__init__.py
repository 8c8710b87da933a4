"""CustomResourceDefinitions and the conversion of their versions."""
