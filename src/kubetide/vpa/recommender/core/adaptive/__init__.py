"""Sizes that learn from what they would have cost: the adaptive estimator.

    cpu       the request follows the container at the cadence that has paid off for it (`cpu`, `mixture`)
    memory    one number: limit = request, with a margin priced by the fleet's own jumps (`margin`)
              two numbers: requests that fill nodes by what is usually needed, limits for peaks (`sharing`)

`sizes.Adaptive` holds them together. Everything learned is a column per container and a few numbers per fleet
(`columns`), bounded in size, and has a checkpoint form: a restart changes no decision. No transcendental function and
no BLAS is used, so decisions are equal on every CPU.
"""
