"""Messages of the protocols that the agent speaks with container runtimes: NRI, CRI, runtime hooks, ttRPC.

The .proto files hold only the fields that kubetide reads or writes. Unknown fields survive a decode and encode, so
a message that passes through keeps what is not named here. `generate.py` makes the Python modules.
"""
