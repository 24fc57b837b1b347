"""What the wheel holds beside modules."""

import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_wheel_holds_files_modules_read(wheel: Path) -> None:
    files = (path for name in ("flows", "ragen", "schemas", "tasks") for path in (ROOT / name).rglob("*.*"))
    read = {f"starpo/{path.relative_to(ROOT)}" for path in files if path.suffix not in (".py", ".pyc")}
    assert any("chat_templates" in name for name in read)
    assert read <= set(zipfile.ZipFile(wheel).namelist())
