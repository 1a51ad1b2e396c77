from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tidemill_common.errors import Reason, TidemillError
from tidemill_harness.sandbox import confine, probe
from tidemill_harness.sandbox.policy import Mode, Policy, Unconfined
from tidemill_harness.sandbox.seatbelt import Seatbelt


class Broken(Unconfined):
    name = "broken"

    def wrap(self, policy: Policy, argv: Sequence[str]) -> list[str]:
        return ["sh", "-c", "echo no namespaces here >&2; exit 3"]


def test_every_sandbox_of_this_system_is_tried_and_works() -> None:
    found = {finding.sandbox.name: finding.works for finding in probe.findings()}
    assert found["landlock"] and found["bubblewrap"]


@pytest.mark.requirement("sandbox:refuse-without")
def test_without_a_sandbox_only_full_access_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "_candidates", lambda: [(Broken(), "here"), (Unconfined(), "here")])
    probe.best.cache_clear()
    broken, leaky = probe.findings()
    with pytest.raises(TidemillError) as caught:
        probe.choose(Mode.WORKSPACE_WRITE)
    probe.best.cache_clear()
    assert (broken.works, broken.detail) == (False, "here: no namespaces here")
    assert (leaky.works, leaky.detail) == (False, "here: a command could write outside the workspace")
    assert caught.value.reason is Reason.CONFIG and "tidemill doctor" in caught.value.sentence()
    assert probe.choose(Mode.FULL_ACCESS).name == "none"


def test_the_filter_exists_for_both_architectures_and_jumps_stay_inside() -> None:
    for machine in ("x86_64", "aarch64"):
        program = confine.network_filter(machine)
        assert len(program) % 8 == 0
        count = len(program) // 8
        for index in range(count):
            code, true, false = program[index * 8], program[index * 8 + 2], program[index * 8 + 3]
            if code in (0x15, 0x35):
                assert index + 1 + max(true, false) < count


def test_the_macos_profile_denies_before_it_allows(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    line = Seatbelt().wrap(Policy(Mode.WORKSPACE_WRITE, tmp_path, tmp_path), ["true"])
    profile = line[2]
    assert profile.index("(deny network*)") < profile.index('(param "WORKSPACE")') < profile.index('(param "PROTECTED0")')
    assert f"PROTECTED0={tmp_path}/.git" in line and line[-1] == "true"
