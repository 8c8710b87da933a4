"""Rooms, not corridors: no folder has more modules, and no module more lines, than a reader can take in."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2] / "src" / "kubetide"
MOST = 20
LONGEST = 400
SMALLEST, FEW = 40, 20


def test_no_folder_has_more_than_twenty_modules() -> None:
    folders = {path.parent for path in ROOT.rglob("*.py")}
    sizes = {
        str(folder.relative_to(ROOT)): len([path for path in folder.glob("*.py") if path.name != "__init__.py"])
        for folder in folders
    }
    assert {folder: size for folder, size in sizes.items() if size > MOST} == {}


def test_no_module_has_more_than_four_hundred_lines() -> None:
    lengths = {
        str(path.relative_to(ROOT)): path.read_text().count("\n")
        for path in ROOT.rglob("*.py")
        if not path.name.endswith("_pb2.py")
    }
    assert {module: length for module, length in lengths.items() if length > LONGEST} == {}


def test_few_modules_are_smaller_than_forty_lines() -> None:
    """A module that small stands for something that people look for by name, or belongs to its neighbour."""
    small = [
        str(path.relative_to(ROOT))
        for path in ROOT.rglob("*.py")
        if path.read_text().count("\n") < SMALLEST and path.name not in ("__init__.py", "__main__.py", "generate.py")
    ]
    assert len(small) <= FEW, small
