"""Names of devices in sysfs."""

import re

_ROOT_COMPLEX = re.compile(r"pci[0-9]{4}:[0-9a-fA-F]{2}")


def pcie_root(path: str) -> str:
    """Return the PCIe root complex in a resolved sysfs path, or empty text."""
    match = _ROOT_COMPLEX.search(path)
    return match[0] if match else ""
