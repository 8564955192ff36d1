"""The extra `testing`: python -P testing.py URL PREFIX."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

TEST = """
def test_it(make_memory):
    assert make_memory().threads.list().total == 0
"""

with TemporaryDirectory() as folder:
    Path(folder, "test_it.py").write_text(TEST)
    plugin = ["-p", "langchain_workingmem.testing.fixtures", "-p", "no:cacheprovider"]
    subprocess.run([sys.executable, "-P", "-m", "pytest", "-q", *plugin, folder], cwd=folder, check=True)
