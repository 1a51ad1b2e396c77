"""Fixtures of every package's tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

from tidemill_common import paths
from tidemill_common.model_dir import PROFILE_FILE

# How long an example takes depends on what else the machine does.
settings.register_profile("tidemill", deadline=None)
settings.load_profile("tidemill")


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """Directory of the default model; a test that needs it fails where it is missing."""
    directory = paths.models_dir() / "smollm2"
    if not (directory / PROFILE_FILE).is_file():
        pytest.fail(f"the default model is not in {directory}; `make model` (or `tidemill model add smollm2`) brings it")
    return directory
