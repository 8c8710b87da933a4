"""Rooms, not corridors: no folder of the source has more modules than a reader can take in at once."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2] / "src" / "kubetide"
MOST = 20


def test_no_folder_has_more_than_twenty_modules() -> None:
    folders = {path.parent for path in ROOT.rglob("*.py")}
    sizes = {str(folder.relative_to(ROOT)): len(list(folder.glob("*.py"))) for folder in folders}
    assert {folder: size for folder, size in sizes.items() if size > MOST} == {}
