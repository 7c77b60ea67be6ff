"""How a job ends: verdict, exit code, summary, and what is said of a failure."""

from __future__ import annotations

import json

import pytest

from tests.process.conftest import ACT, Run


def test_four_ranks_succeed(run: Run) -> None:
    assert run.act("out:hello", ranks=4).wait() == 0
    assert run.out.splitlines() == ["hello"] * 4
    assert len(run.said) == 1
    assert "all 4 ranks succeeded" in run.said[0]
    assert run.summary["exit_code"] == 0
    assert run.summary["origin"] == "workers"


def test_a_lone_rank_keeps_the_launchers_streams(run: Run) -> None:
    assert run.act("out:hello", "err:there", ranks=1).wait() == 0
    assert run.out == "hello\n"
    assert run.err.splitlines()[0] == "there"


@pytest.mark.parametrize(
    ("word", "code", "says"),
    [
        ("exit:3@1", 3, "exit code 3"),
        ("exit:75@1", 75, "exit code 75"),
        ("exit:93@1", 93, "exit code 93"),
        ("exit:255@1", 255, "exit code 255"),
        ("raise:boom@1", 1, "exit code 1"),
        ("kill:SEGV@1", 139, "SIGSEGV"),
        ("kill:KILL@1", 137, "SIGKILL"),
        ("kill:TERM@1", 143, "SIGTERM"),
    ],
)
def test_a_failure_ends_with_the_culprits_own_code(run: Run, word: str, code: int, says: str) -> None:
    assert run.act("up", word, "idle").wait() == code
    assert run.summary["origin"] == "workers"
    assert run.summary["culprit"]["rank"] == 1
    assert f"rank 1 on {run.summary['culprit']['host']}" in run.said[0]
    assert says in run.said[0]
    assert says in run.said[-1]
    assert len(run.said) <= 12


def test_one_for_every_failure_if_asked_for_torchruns_codes(run: Run) -> None:
    assert run.act("exit:7@1", "idle", options=("--exit-code", "torchrun")).wait() == 1
    assert run.summary["exit_code"] == 1


def test_the_group_restarts_within_the_budget(run: Run) -> None:
    assert run.act("exit:3@1#0", "kill:SEGV@0#1", "out:done", options=("--max-restarts", "2"), ranks=4).wait() == 0
    assert run.out.splitlines().count("done") >= 4
    assert run.summary["restarts"] == 2
    assert "2 restarts, the last after rank 0" in run.said[-1]


def test_a_spent_budget_ends_with_the_last_culprits_code(run: Run) -> None:
    assert run.act("exit:3@1#0", "exit:4@0#1", "exit:5@1#2", "idle", options=("--max-restarts", "2")).wait() == 5
    assert "2 of 2 restarts used" in run.said[-1]


def test_a_window_forgets_old_restarts(run: Run) -> None:
    options = ("--max-restarts", "1", "--restart-window", "0.05")
    assert run.act("work:0.2", "exit:3@1#0", "exit:3@1#1", "exit:3@1#2", options=options).wait() == 0
    assert run.summary["restarts"] == 3


def test_a_crash_loop_without_progress_is_not_to_be_requeued(run: Run) -> None:
    mark = run.place / "progress"
    options = ("--max-restarts", "unlimited", "--progress-file", str(mark), "--max-no-progress", "2")
    words = (f"write:{mark}@0#0", f"write:{mark}@0#1", "exit:9@0", "idle")
    assert run.act(*words, options=options).wait() == 93
    assert run.summary["origin"] == "launcher"
    assert run.summary["restarts"] == 3
    assert "crash loop" in run.said[-1]


def test_unlimited_restarts_are_ended_by_short_lives(run: Run) -> None:
    assert run.act("exit:9@0", "idle", options=("--max-restarts", "unlimited")).wait() == 93
    assert run.summary["restarts"] == 2


def test_the_end_of_stderr_and_the_place_of_the_logs_are_shown(run: Run) -> None:
    assert run.act("err:first@1", "raise:the reason@1", "idle").wait() == 1
    shown = [line.removeprefix("elastic-run: ") for line in run.said]
    assert "  | RuntimeError: the reason" in shown
    (logs,) = [line.removeprefix("  logs: ") for line in shown if line.startswith("  logs: ")]
    assert logs == str(run.directory / "attempt_0" / "1")
    assert "first\n" in (run.directory / "attempt_0/1/stderr.log").read_text()


def test_victims_and_those_we_stopped_are_not_blamed(run: Run) -> None:
    words = ("err:RuntimeError_Connection closed by peer@0", "exit:1@0", "raise:mine@2", "idle")
    assert run.act(*words, ranks=3).wait() == 1
    assert run.summary["culprit"]["rank"] in (0, 2)  # 0 may be all there is to see before the others are stopped
    blamed = [line for line in run.said if "stopped by us" in line]
    assert blamed == []


def test_a_rank_that_fails_while_it_is_stopped_is_blamed_rather_than_a_victim(run: Run) -> None:
    words = ("err:Traceback (most recent call last)@1", "err:ValueError@1", "up", "work:1@1", "exit:1@1")
    victim = ("err:Connection closed by peer@0", "work:0.3@0", "exit:1@0")
    run.act(*words, *victim).wait()
    assert run.summary["culprit"]["rank"] == 1


def test_an_error_file_is_shown_and_kept(run: Run) -> None:
    assert run.act("errorfile:my own words@1", "exit:4@1", "idle").wait() == 4
    assert "elastic-run:   it says: my own words" in run.said
    assert json.loads((run.directory / "attempt_0/1/error.json").read_text()) == {"message": "my own words"}
    assert run.summary["culprit"]["error"] == "my own words"


def test_ranks_that_finish_early_do_no_harm_and_restart_with_the_group(run: Run) -> None:
    words = ("out:started", "exit:0@0#0", "work:0.4@1#0", "exit:5@1#0")
    assert run.act(*words, options=("--max-restarts", "1")).wait() == 0
    assert run.out.splitlines() == ["started"] * 4


def test_a_program_that_cannot_be_executed_is_a_failure_with_its_reason(run: Run) -> None:
    broken = run.place / "broken"
    broken.write_text("no shebang")
    broken.chmod(0o755)
    code = run.start("--log-dir", str(run.logs), "--nproc-per-node", "2", "--no-python", str(broken)).wait()
    assert code == 126
    assert "could not be started" in run.said[0]
    assert "Exec format error" in run.said[0]


def test_the_kernels_memory_killer_is_named(run: Run) -> None:
    group = run.place.name
    try:
        limit = __import__("pathlib").Path("/sys/fs/cgroup/memory") / f"elastic-run-test-{group}"
        limit.mkdir()
        (limit / "memory.limit_in_bytes").write_text(str(64 << 20))
    except OSError:
        pytest.skip("no memory cgroup (v1) can be made here")
    try:
        hungry = run.place / "hungry.py"
        hungry.write_text(
            "import os\nif os.environ['RANK'] == '1': x = bytearray(200 << 20)\nimport time; time.sleep(60)"
        )
        into = ("sh", "-c", f'echo $$ > {limit}/cgroup.procs; exec "$@"', "sh")
        flags = ("--nproc-per-node", "2", "--log-dir", str(run.logs), "--shutdown-timeout", "0.6")
        assert run.start(*flags, str(hungry), before=into).wait() == 137
        assert "SIGKILL, by the kernel's out-of-memory killer" in run.said[0]
        run.gone(10)
    finally:
        run.close()
        limit.rmdir()


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["nowhere.py"], "nowhere.py"),
        (["."], "directory"),
        (["-m", "no.such.module"], "--module"),
        (["--nproc-per-node", "0", ACT], "--nproc-per-node"),
        (["--log-dir", "/dev/null/logs", ACT], "--log-dir"),
        (["-m", "--no-python", "x"], "--no-python"),
    ],
)
def test_bad_input_starts_nothing_and_leaves_nothing(run: Run, words: list[str], named: str) -> None:
    before = sorted(run.place.iterdir())
    assert run.start(*words).wait() == 2
    assert run.out == ""
    assert run.err.count("\n") == 1
    assert named in run.err
    assert sorted(set(run.place.iterdir()) - {run.place / "out", run.place / "err"}) == before
    assert list(run.tmp.iterdir()) == []
