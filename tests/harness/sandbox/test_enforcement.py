"""The promises of the sandbox, kept by each one that this system has, for real."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.harness.sandbox.conftest import Workplace
from tidemill_harness.sandbox.policy import Mode


@pytest.mark.requirement("sandbox:workspace-write")
async def test_the_workspace_is_writable_and_nothing_else(workplace: Workplace) -> None:
    inside = await workplace.run("echo hi > src/new && cat src/new && mkdir src/d && mv src/new src/d/")
    outside = await workplace.run(f"echo hi > {workplace.outside}/new; touch /etc/tidemill-x; touch ~/tidemill-x")
    assert inside == "hi"
    assert (workplace.workspace / "src/d/new").exists()
    assert outside.startswith("exit code 1")
    assert not any(path.exists() for path in (workplace.outside / "new", Path("/etc/tidemill-x"), Path.home() / "tidemill-x"))


async def test_a_link_out_of_the_workspace_writes_nothing_outside(workplace: Workplace) -> None:
    (workplace.workspace / "src" / "out").symlink_to(workplace.outside)
    await workplace.run("echo hi > src/out/new; ln -s /etc src/etc; touch src/etc/tidemill-x")
    assert not (workplace.outside / "new").exists()
    assert not Path("/etc/tidemill-x").exists()


@pytest.mark.requirement("sandbox:read-only")
async def test_read_only_changes_nothing_and_reads_the_workspace(workplace: Workplace) -> None:
    (workplace.workspace / "src/file").write_text("text")
    output = await workplace.run("cat src/file; echo x > src/file", Mode.READ_ONLY)
    assert "text" in output and "exit code 1" in output
    assert "(sandbox: read-only" in output
    assert (workplace.workspace / "src/file").read_text() == "text"


@pytest.mark.requirement("sandbox:git-protected")
async def test_git_stays_as_it_is_in_a_writable_workspace(workplace: Workplace) -> None:
    await workplace.run("echo evil > .git/hooks/pre-commit; echo x >> .git/config; rm -rf .git; mv .git src/git; mv src/x .git")
    git = workplace.workspace / ".git"
    assert [path.name for path in sorted(git.iterdir())] == ["config", "hooks"]
    assert not list((git / "hooks").iterdir())
    assert (git / "config").read_text() == "[core]\n"


@pytest.mark.requirement("sandbox:no-network")
async def test_a_listening_port_of_this_machine_is_out_of_reach(workplace: Workplace) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        output = await workplace.run(f"exec 3<>/dev/tcp/127.0.0.1/{port} && echo reached")
    assert "reached" not in output and output.startswith("exit code 1")


async def test_datagrams_are_refused(workplace: Workplace) -> None:
    script = "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('192.0.2.1', 9)); print('sent')"
    assert "sent" not in await workplace.run(f'python3 -c "{script}"')


async def test_programs_that_talk_to_their_own_children_still_work(workplace: Workplace) -> None:
    script = "import asyncio; asyncio.run((lambda: asyncio.create_subprocess_exec('true'))()); print('ok')"
    assert await workplace.run(f'python3 -c "{script}"') == "ok"


@pytest.mark.requirement("sandbox:environment")
async def test_secrets_of_the_environment_are_stripped(workplace: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "TIDEMILL_API_KEY", "GH_TOKEN", "AWS_SECRET_ACCESS_KEY", "SOME_VARIABLE"):
        monkeypatch.setenv(name, "hunter2")
    monkeypatch.setenv("LC_TIME", "C")
    output = await workplace.run("env")
    assert "hunter2" not in output
    assert "PATH=" in output and "LC_TIME=C" in output


@pytest.mark.requirement("sandbox:time-limit")
async def test_a_time_limit_kills_the_whole_tree(workplace: Workplace) -> None:
    command = "echo begun; (setsid sh -c 'echo > src/started; sleep 1000' &); sleep 1000"
    output = await workplace.run(command, seconds=1)
    assert output == "timed out after 1 s, killed\nbegun"
    assert not left_behind(workplace.workspace)


async def test_what_a_command_leaves_running_ends_with_it(workplace: Workplace) -> None:
    output = await workplace.run("cd src; setsid sleep 1000 & sleep 1000 & echo done")
    assert output == "done"
    assert not left_behind(workplace.workspace)


@pytest.mark.requirement("sandbox:output-limit")
async def test_output_beyond_the_limit_loses_its_middle(workplace: Workplace) -> None:
    output = await workplace.run("seq 1 100000; echo the end", limit=1000)
    assert output.startswith("1\n2\n")
    assert output.endswith("the end")
    assert "bytes of output left out here" in output
    assert len(output) < 1200


async def test_the_temporary_folder_is_private_and_lasts_for_the_session(workplace: Workplace) -> None:
    await workplace.run('echo kept > "$TMPDIR/file"')
    assert await workplace.run('cat "$TMPDIR/file"') == "kept"
    assert (workplace.scratch / "file").exists()


async def test_resources_are_limited(workplace: Workplace) -> None:
    assert await workplace.run("ulimit -c; ulimit -f; ulimit -n") == "0\n2097152\n4096"


async def test_a_command_that_reads_standard_input_sees_its_end(workplace: Workplace) -> None:
    assert await workplace.run("cat; echo end") == "end"


def left_behind(workspace: Path) -> list[str]:
    """Processes that work in the workspace."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cwd"):
        try:
            if path.readlink().is_relative_to(workspace):
                found.append(str(path))
        except OSError:
            continue
    return found
