"""The hub is a stand-in here: a local HTTP server with the calls that huggingface_hub makes."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.engine import hf_files
from tidemill_common.errors import Reason, TidemillError
from tidemill_engine import hub
from tidemill_engine.model_store import ModelStore

_COMMIT = "c" * 40


class StandInHub(ThreadingHTTPServer):
    """Serves the files of ``repositories`` (name to directory); ``asked`` has the paths that were read."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repositories: dict[str, Path] = {}
        self.asked: list[str] = []


class _Handler(BaseHTTPRequestHandler):
    server: StandInHub

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def _answer(self, with_body: bool) -> None:
        path = self.path.split("?")[0].strip("/")
        for name, directory in self.server.repositories.items():
            if path.startswith(f"api/models/{name}"):
                return self._send(self._info(name, directory), with_body)
            if path.startswith(f"{name}/resolve/{_COMMIT}/"):
                file = path.removeprefix(f"{name}/resolve/{_COMMIT}/")
                self.server.asked.append(file)
                return self._send((directory / file).read_bytes(), with_body)
        self.send_response(404)
        self.send_header("X-Error-Code", "RepoNotFound")
        self.send_header("Content-Length", "0")
        self.end_headers()
        return None

    def _info(self, name: str, directory: Path) -> bytes:
        files = [{"rfilename": path.name, "size": path.stat().st_size} for path in sorted(directory.iterdir())]
        return json.dumps({"id": name, "sha": _COMMIT, "siblings": files}).encode()

    def _send(self, body: bytes, with_body: bool) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", f'"{hashlib.sha1(body).hexdigest()}"')
        self.send_header("X-Repo-Commit", _COMMIT)
        self.end_headers()
        if with_body:
            self.wfile.write(body)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[StandInHub]:
    with StandInHub() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.requirement("model:add-hub")
@pytest.mark.parametrize("shards", [1, 2])
def test_a_model_of_the_hub_is_added_with_what_it_needs(server: StandInHub, tmp_path: Path, shards: int) -> None:
    source = hf_files.model(tmp_path / "source", shards=shards)
    (source / "README.md").write_text("long")
    (source / "pytorch_model.bin").write_bytes(bytes(100))
    server.repositories["Org/Tiny-Llama"] = source
    told: list[tuple[str, int, int]] = []
    model, _ = ModelStore(tmp_path / "store").add("Org/Tiny-Llama", None, lambda *each: told.append(each))
    assert model.name == "tiny-llama"
    assert model.profile is not None
    assert model.profile.source == "Org/Tiny-Llama"
    for weights in source.glob("*.safetensors"):
        assert (model.directory / weights.name).read_bytes() == weights.read_bytes()
    assert not {"README.md", "pytorch_model.bin"} & set(server.asked)
    assert any(done == total > 0 for what, done, total in told if what == "Downloaded")


@pytest.mark.requirement("model:add-hub")
def test_a_model_that_can_not_be_served_is_refused_before_its_weights_are_loaded(server: StandInHub, tmp_path: Path) -> None:
    server.repositories["Org/Moe"] = hf_files.model(tmp_path / "source", num_local_experts=8)
    with pytest.raises(TidemillError, match="mixture of experts"):
        ModelStore(tmp_path / "store").add("Org/Moe", None, lambda *_: None)
    assert set(server.asked) == {"config.json"}
    assert list((tmp_path / "store").iterdir()) == []


def test_a_repository_that_the_hub_does_not_have_is_named(server: StandInHub, tmp_path: Path) -> None:
    with pytest.raises(TidemillError, match=r"did not give 'Org/Nothing'") as caught:
        hub.fetch("Org/Nothing", tmp_path, lambda *_: None)
    assert caught.value.reason is Reason.DOWNLOAD_FAILED


def test_a_hub_out_of_reach_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(TidemillError, match=r"the hub at http://127.0.0.1:9 did not give"):
        hub.fetch("Org/Tiny", tmp_path, lambda *_: None)


def test_config_comes_first_and_an_index_stands_for_the_single_file() -> None:
    sizes = {"model-00001-of-00001.safetensors": 5, "model.safetensors": 5, "model.safetensors.index.json": 1}
    chosen = hub.wanted(sizes | {"config.json": 1, "original/consolidated.pth": 9}, "Org/M")
    assert list(chosen) == ["config.json", "model.safetensors.index.json", "model-00001-of-00001.safetensors"]
    with pytest.raises(TidemillError, match=r"no safetensors weights \(it has m.gguf; download a GGUF file"):
        hub.wanted({"config.json": 1, "m.gguf": 9}, "Org/M")
    with pytest.raises(TidemillError, match=r"has no config.json"):
        hub.wanted({"m.gguf": 9}, "Org/M")
