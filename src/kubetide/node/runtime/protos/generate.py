"""Makes the Python modules of the .proto files beside it: `python -m kubetide.node.runtime.protos.generate`.

Needs grpcio-tools (a development dependency). The results are kept in the repository.
"""

import sys
from pathlib import Path

from grpc_tools import protoc


def main() -> int:
    """Generate modules and stubs for all .proto files."""
    here = Path(__file__).parent
    sources = sorted(str(path) for path in here.glob("*.proto"))
    arguments = ["protoc", f"-I{here}", f"--python_out={here}", f"--pyi_out={here}", *sources]
    return int(protoc.main(arguments))


if __name__ == "__main__":
    sys.exit(main())
