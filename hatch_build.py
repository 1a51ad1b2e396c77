"""Build hook: compiles protos/ into gen/, which is not committed. Also run by `make protos`."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).parent


def compile_protos(root: Path = ROOT) -> None:
    """Write the messages, stubs and type stubs of every proto file to gen/."""
    import grpc_tools
    from grpc_tools import protoc

    source, target = root / "protos", root / "gen"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    files = sorted(str(path) for path in source.rglob("*.proto"))
    include = Path(grpc_tools.__file__).parent / "_proto"
    plugins = [f"--plugin=protoc-gen-{kind}={_program(f'protoc-gen-{kind}')}" for kind in ("mypy", "mypy_grpc")]
    outputs = [f"--{kind}_out={target}" for kind in ("python", "mypy", "grpc_python", "mypy_grpc")]
    if protoc.main(["protoc", f"-I{source}", f"-I{include}", *plugins, *outputs, *files]) != 0:
        raise SystemExit("protoc failed: see above")


def _program(name: str) -> str:
    """A script of this environment, whether or not its folder is on PATH."""
    return shutil.which(name) or str(Path(sys.executable).with_name(name))


class ProtoBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Compiles the protos before a wheel or an editable install is made."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile into gen/ next to this file."""
        compile_protos(Path(self.root))


if __name__ == "__main__":
    compile_protos()
    sys.exit(0)
