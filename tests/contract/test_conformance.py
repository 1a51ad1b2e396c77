"""What every package keeps to, read from the sources themselves."""

from __future__ import annotations

import ast
import importlib.util
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import tidemill_common

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
SERVICES = {"gateway", "tokenizer", "safety", "router", "prefill", "decode"}
LIBRARIES = {"common", "engine"}
PACKAGES = sorted(path for path in [*ROOT.glob("services/*/tidemill_*"), *ROOT.glob("*/tidemill_*")] if path.is_dir())

# Files that speak gRPC by their role, in every package.
SHELL_NAMES = {"__main__.py", "service.py", "servicer.py", "clients.py", "messages.py"}
# Files that speak gRPC for a reason of their own.
SHELL_FILES = {
    "tidemill_common/rpc.py": "errors to statuses and back",
    "tidemill_common/server.py": "the life of a server",
    "tidemill_common/telemetry.py": "makes the Hop message of every response",
    "tidemill_decode/turn.py": "joins the engine's turn with a transfer from a prefill worker",
    "tidemill_engine/worker/process.py": "a worker's server",
    "tidemill_engine/worker/registration.py": "client of the router's registration stream",
    "tidemill_engine/worker/worker.py": "one life of a worker: engine and registrations",
    "tidemill_gateway/served.py": "reads the tokenizer's description of the model",
    "tidemill_harness/stack_status.py": "asks the services of a local stack for their counts",
}
# Test files that mirror no module, since they show what several modules do together.
TOGETHER = {
    "engine/test_disaggregation.py": "prefill engine, transfer and decode engine",
    "engine/test_equality.py": "the whole engine against transformers",
    "harness/sandbox/test_enforcement.py": "every sandbox against real commands",
}


def sources(*packages: Path) -> list[Path]:
    return [path for package in packages or PACKAGES for path in sorted(package.rglob("*.py"))]


def inside(path: Path) -> str:
    """Path from the package's name on: tidemill_x/y.py."""
    parts = path.parts
    start = next(index for index, part in enumerate(parts) if part.startswith("tidemill_"))
    return "/".join(parts[start:])


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def speaks_grpc(path: Path) -> bool:
    return any(name.split(".")[0] in {"grpc", "grpc_health", "grpc_reflection", "google", "tidemill"} for name in imports(path))


@pytest.mark.requirement("conformance:services")
def test_protos_packages_extras_wheel_and_docs_name_the_same_services() -> None:
    protos = {path.name for path in (ROOT / "protos/tidemill").iterdir() if path.is_dir()} - {"common"}
    folders = {path.parent.name for path in PACKAGES if path.parent.parent.name == "services"} - LIBRARIES
    named = {path.name.removeprefix("tidemill_") for path in PACKAGES if path.parent.parent.name == "services"} - LIBRARIES
    extras = set(PROJECT["project"]["optional-dependencies"]) & SERVICES
    headings = re.findall(r"^### tidemill_(\w+)$", (ROOT / "docs/architecture.md").read_text(encoding="utf-8"), re.M)
    documented = set(headings) - LIBRARIES - {"harness"}
    assert protos == folders == named == extras == documented == SERVICES


@pytest.mark.requirement("conformance:services")
def test_every_service_has_its_proto_service_and_entry_point() -> None:
    for service in SERVICES:
        proto = (ROOT / f"protos/tidemill/{service}/v1/{service}_service.proto").read_text(encoding="utf-8")
        assert f"service {service.capitalize()}Service " in proto
        assert (ROOT / f"services/{service}/tidemill_{service}/__main__.py").is_file()


def test_every_package_on_disk_is_shipped_tested_typed_and_linted() -> None:
    relative = {str(path.relative_to(ROOT)) for path in PACKAGES}
    names = {path.name for path in PACKAGES}
    tools = PROJECT["tool"]
    assert set(tools["hatch"]["build"]["targets"]["wheel"]["packages"]) == relative | {"gen/tidemill"}
    assert set(tools["pytest"]["ini_options"]["pythonpath"]) >= {str(path.parent.relative_to(ROOT)) for path in PACKAGES}
    assert set(tools["mypy"]["packages"]) == names | {"tests"}
    assert set(tools["importlinter"]["root_packages"]) == names
    assert all((path / "py.typed").is_file() and (path / "__init__.py").is_file() for path in PACKAGES)


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_what_is_imported_is_this_checkout(package: Path) -> None:
    spec = importlib.util.find_spec(package.name)
    assert spec is not None
    assert Path(str(spec.origin)) == package / "__init__.py"


@pytest.mark.requirement("conformance:pure-core")
def test_domain_modules_import_neither_grpc_nor_protobuf() -> None:
    shells = {inside(path) for path in sources() if path.name in SHELL_NAMES} | set(SHELL_FILES)
    assert sorted(inside(path) for path in sources() if speaks_grpc(path) and inside(path) not in shells) == []


def test_every_named_shell_file_speaks_grpc() -> None:
    known = {inside(path): path for path in sources()}
    assert [name for name in SHELL_FILES if name not in known or not speaks_grpc(known[name])] == []


def test_every_package_has_tests_and_every_test_file_mirrors_a_module() -> None:
    modules = {inside(path).removeprefix("tidemill_") for path in sources()}
    folders = {path.name.removeprefix("tidemill_") for path in PACKAGES}
    files = [path.relative_to(ROOT / "tests") for folder in folders for path in (ROOT / "tests" / folder).rglob("test_*.py")]
    assert {path.parts[0] for path in files} == folders
    mirrored = {str(path): str(path.with_name(path.name.removeprefix("test_"))) for path in files}
    assert sorted(test for test, module in mirrored.items() if module not in modules and test not in TOGETHER) == []
    assert sorted(set(TOGETHER) - set(mirrored)) == []


@pytest.mark.requirement("conformance:version")
def test_changelog_package_and_project_name_one_version() -> None:
    version = PROJECT["project"]["version"]
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)
    assert newest is not None
    assert newest[1] == version == tidemill_common.__version__


@pytest.mark.requirement("conformance:no-pickle")
def test_nothing_reads_pickles_or_unsafe_yaml() -> None:
    banned = {"pickle", "cPickle", "dill", "joblib", "cloudpickle", "shelve", "marshal", "yaml"}
    assert [inside(path) for path in sources() for name in imports(path) if name.split(".")[0] in banned] == []
    unsafe = [inside(path) for path in sources() if "allow_pickle=True" in path.read_text(encoding="utf-8")]
    assert unsafe == []


def test_torch_files_are_never_loaded() -> None:
    loads = re.compile(r"\btorch\.load\(|\.from_pretrained\([^)]*trust_remote_code=True")
    assert [inside(path) for path in sources() if loads.search(path.read_text(encoding="utf-8"))] == []


def test_documents_link_to_files_that_are_there() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    links = [(page, link) for page in pages for link in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8"))]
    missing = [
        f"{page.relative_to(ROOT)}: {link}" for page, link in links if "://" not in link and not (page.parent / link).exists()
    ]
    assert missing == []
