import json
import sys
from pathlib import Path

import pytest

from support.serving.pod import SERVER


@pytest.fixture
def revision(tmp_path: Path) -> Path:
    """A revision folder with one model and a stand-in server."""
    source = tmp_path / "image" / "models" / "engine"
    (source / "1").mkdir(parents=True)
    (source / "1" / "model.py").write_text("# a model\n")
    folder = tmp_path / "revision"
    folder.mkdir()
    (tmp_path / "image" / "engine_package").mkdir()
    (tmp_path / "image" / "engine_package" / "__init__.py").write_text("")
    (folder / "engine.config.pbtxt").write_text('name: "engine"\n')
    plan = {
        "models": {"engine": {"config": "engine.config.pbtxt", "source": str(source)}},
        "server": {"command": [sys.executable, "-c", SERVER, "--flag"]},
        "env": {"MARK": "set"},
        "preflight": {"target": {"path": "/nowhere"}},
    }
    (folder / "launch.json").write_text(json.dumps(plan))
    return folder
