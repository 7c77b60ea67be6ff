"""How a job ends: verdict, exit code, summary, and what is said of a failure."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from signal import SIGTERM

import pytest

from tests.process.conftest import BOUND, Run, until

MOST_LINES = 12


def test_four_ranks_succeed(run: Run) -> None:
    assert run.act("out:hello", ranks=4).wait() == 0
    assert run.out.splitlines() == ["hello"] * 4
    assert len(run.said) == 1
    assert "all 4 ranks succeeded" in run.said[0]
    assert run.summary["exit_code"] == 0
    assert run.summary["origin"] == "workers"
    assert run.summary["culprit"] is None


def test_four_ranks_have_torchruns_environment_and_are_told_of_a_restart(run: Run) -> None:
    options = ("--max-restarts", "2", "--role", "trainer", "--rdzv-id", "mine")
    words = ("env", "until:env-0-0", "until:env-1-0", "until:env-2-0", "until:env-3-0", "exit:3@1#0", "idle#0")
    assert run.act(*words, ranks=4, options=options).wait() == 0
    for restart in range(2):
        found = [json.loads((run.signs / f"env-{rank}-{restart}").read_text()) for rank in range(4)]
        for rank, env in enumerate(found):
            expected = {
                "RANK": rank, "LOCAL_RANK": rank, "ROLE_RANK": rank, "GROUP_RANK": 0, "GROUP_WORLD_SIZE": 1,
                "WORLD_SIZE": 4, "LOCAL_WORLD_SIZE": 4, "ROLE_WORLD_SIZE": 4, "ROLE_NAME": "trainer",
                "MASTER_ADDR": "127.0.0.1", "TORCHELASTIC_RESTART_COUNT": restart, "TORCHELASTIC_MAX_RESTARTS": 2,
                "TORCHELASTIC_RUN_ID": "mine", "TORCHELASTIC_USE_AGENT_STORE": "False",
            }  # fmt: skip
            assert {name: env.get(name) for name in expected} == {k: str(v) for k, v in expected.items()}
            assert int(env["OMP_NUM_THREADS"]) >= 1
        assert len({env["MASTER_PORT"] for env in found}) == 1
        assert len({env["TORCHELASTIC_ERROR_FILE"] for env in found}) == 4


def test_a_lone_rank_keeps_the_launchers_streams(run: Run) -> None:
    assert run.act("out:hello", "err:there", ranks=1).wait() == 0
    assert run.out == "hello\n"
    assert run.err.splitlines()[0] == "there"


@pytest.mark.parametrize(
    ("word", "code", "says"),
    [
        ("exit:1@1", 1, "exit code 1"),
        ("exit:2@1", 2, "exit code 2"),
        ("exit:69@1", 69, "exit code 69"),
        ("exit:71@1", 71, "exit code 71"),
        ("exit:75@1", 75, "exit code 75"),
        ("exit:93@1", 93, "exit code 93"),
        ("exit:255@1", 255, "exit code 255"),
        ("raise:boom@1", 1, "exit code 1"),
        ("kill:SEGV@1", 139, "SIGSEGV"),
        ("kill:ABRT@1", 134, "SIGABRT"),
        ("kill:KILL@1", 137, "SIGKILL"),
        ("kill:TERM@1", 143, "SIGTERM"),
        ("kill:RTMAX@1", 192, "SIGRTMAX"),
    ],
)
def test_a_failure_ends_with_the_culprits_own_code(run: Run, word: str, code: int, says: str) -> None:
    assert run.act("up", word, "idle").wait() == code
    summary = run.summary
    assert summary["exit_code"] == code
    assert summary["origin"] == "workers"
    assert summary["culprit"]["rank"] == 1
    assert summary["culprit"]["pid"] == run.workers()[1]
    assert f"rank 1 on {summary['culprit']['host']} (pid {summary['culprit']['pid']}): {says}" in run.said[0]
    assert says in run.said[-1]
    assert len(run.said) <= MOST_LINES


@pytest.mark.parametrize("word", ["exit:7@1", "kill:SEGV@1", "exit:93@1"])
def test_one_for_every_failure_if_asked_for_torchruns_codes(run: Run, word: str) -> None:
    assert run.act(word, "idle", options=("--exit-code", "torchrun")).wait() == 1
    assert run.summary["exit_code"] == 1
    assert run.summary["origin"] == "workers"


def test_a_summary_is_written_where_one_is_asked_for(run: Run) -> None:
    file = run.place / "summary.json"
    assert run.act("exit:7", ranks=1, options=("--summary-file", str(file))).wait() == 7
    assert json.loads(file.read_text()) == run.summary


def test_a_summary_goes_through_a_link_or_a_pipe_which_stay_what_they_are(new_run: Callable[..., Run]) -> None:
    run = new_run("link")
    (run.place / "target").write_text("")
    (run.place / "link").symlink_to("target")
    assert run.act("exit:0", options=("--summary-file", str(run.place / "link"))).wait() == 0
    assert (run.place / "link").is_symlink()
    assert json.loads((run.place / "target").read_text()) == run.summary
    run = new_run("pipe")
    os.mkfifo(run.place / "pipe")
    reader = os.open(run.place / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    assert run.act("exit:0", options=("--summary-file", str(run.place / "pipe"))).wait() == 0
    assert json.loads(os.read(reader, 1 << 16)) == run.summary
    os.close(reader)
    assert (run.place / "pipe").is_fifo()


def test_a_culprit_that_ends_slowly_is_still_the_one_to_blame(run: Run) -> None:
    words = ("err:Connection closed by peer@0", "exit:1@0", "work:0.4@1", "exit:42@1")
    assert run.act(*words).wait() == 42
    assert "rank 1" in run.said[-1]


def test_who_fails_to_save_is_told(run: Run) -> None:
    run.act("fail@1", "up", "idle").up()
    run.send(SIGTERM)
    assert run.wait() == 143
    assert any("rank 1 on" in line and "exit code 1 as it was to stop" in line for line in run.said)
    assert any("cannot save" in line for line in run.said)


def test_one_rank_goes_on_when_nobody_reads_any_more(run: Run) -> None:
    read, write = os.pipe()
    run.act("up", "until:go", "lines:50000", "write:" + str(run.place / "done"), ranks=1, stdout=write)
    os.close(write)
    run.up(1)
    os.close(read)
    (run.signs / "go").touch()
    assert run.wait() == 0
    assert (run.place / "done").exists()


def test_a_last_line_without_its_end_does_not_touch_ours(run: Run) -> None:
    with open(run.place / "both", "wb") as both:
        words = ("open:words", "up", "until:0.0@1", "exit:3@1")
        assert run.act(*words, stdout=both, stderr=both).wait() == 3
    lines = (run.place / "both").read_text().splitlines()
    assert all(line.startswith("elastic-run: ") for line in lines if "elastic-run" in line)
    assert lines.count("words") == 2


def test_the_group_restarts_within_the_budget(run: Run) -> None:
    assert run.act("exit:3@1#0", "kill:SEGV@0#1", "out:done", options=("--max-restarts", "2"), ranks=4).wait() == 0
    assert run.out.splitlines().count("done") >= 4
    assert run.summary["restarts"] == 2
    assert run.summary["origin"] == "workers"
    assert "2 restarts, the last after rank 0" in run.said[-1]


def test_a_spent_budget_ends_with_the_last_culprits_code(run: Run) -> None:
    assert run.act("exit:3@1#0", "exit:4@0#1", "exit:5@1#2", "idle", options=("--max-restarts", "2")).wait() == 5
    assert "2 of 2 restarts used" in run.said[-1]
    assert run.summary["restarts"] == 2


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


def test_no_failure_takes_more_lines_whatever_there_is_to_say(run: Run) -> None:
    much = [f"err:{'x' * 500} {n}@1" for n in range(40)]
    victim = ("err:Connection closed by peer@0", "up@0", "exit:1@0", "until:0.0@1", "until:0.0@2")
    words = (*much, *victim, r'errorfile:{"message": "one\ntwo\nthree"}@1', "exit:4@1", "idle@2")
    code = run.act(*words, ranks=3, options=("--max-restarts", "2")).wait()
    assert code in (1, 4)
    recovered = sum("recovered from" in line for line in run.said)  # a death while recovering has no line of its own
    assert 1 <= recovered <= 2
    assert len(run.said) - recovered <= 3 * MOST_LINES, run.said
    assert all(len(line) <= 300 for line in run.said)


def test_victims_and_those_we_stopped_are_not_blamed(run: Run) -> None:
    words = ("err:RuntimeError_Connection closed by peer@0", "up@0", "exit:1@0", "until:0.0", "exit:9@2", "idle")
    run.act(*words, ranks=3).wait()
    assert run.summary["culprit"]["rank"] in (0, 2)  # 0 may be all there is to see before the others are stopped
    assert [line for line in run.said if "stopped by us" in line] == []


def test_a_culprit_that_is_seen_with_its_victim_is_blamed(run: Run) -> None:
    """Rank 1 dies; 0 fails over it. Both exits are seen in one turn, as the launcher was suspended meanwhile."""
    words = ("up", "until:now", "kill:SEGV@1", "err:recvValue failed@0", "exit:1@0", "idle")
    run.act(*words, ranks=3).up(ranks=3)
    from signal import SIGCONT, SIGSTOP  # the guard allows a launcher that is suspended for an instant

    run.send(SIGSTOP)
    (run.signs / "now").touch()
    pids = run.workers()
    try:
        until(lambda: all(_ended(pids[rank]) for rank in (0, 1)), 0.7, "both ended")
    except AssertionError:
        pytest.skip("this machine is too busy for a suspension that the guard does not see")
    finally:
        run.send(SIGCONT)
    code = run.wait()
    if code == 75:
        pytest.skip("the guard saw the suspension")
    assert code == 139
    assert run.summary["culprit"]["rank"] == 1
    assert "rank 1" in run.said[-1]


def _ended(pid: int) -> bool:
    return "Z (zombie)" in Path(f"/proc/{pid}/status").read_text()


def test_a_rank_that_fails_while_it_is_stopped_is_blamed_rather_than_a_victim(run: Run) -> None:
    words = ("err:Traceback (most recent call last)@1", "err:ValueError@1", "up", "work:1@1", "exit:1@1")
    victim = ("err:Connection closed by peer@0", "until:1.0@0", "exit:1@0")
    run.act(*words, *victim).wait()
    assert run.summary["culprit"]["rank"] == 1


def test_an_error_file_is_shown_and_kept(run: Run) -> None:
    said = '{"message": "my own words"}'
    assert run.act(f"errorfile:{said}@1", "exit:4@1", "idle").wait() == 4
    assert "elastic-run:   it says: my own words" in run.said
    assert (run.directory / "attempt_0/1/error.json").read_text() == said
    assert run.summary["culprit"]["error"] == "my own words"


@pytest.mark.parametrize(
    "word",
    [
        "errordir",
        "errorfile:",
        "errorfile:{",
        "errorfile:[1]",
        'errorfile:{"message": {"message": 1, "extraInfo": {"timestamp": ' + "9" * 400 + "}}}",
        'errorfile:{"message": {"message": "x", "extraInfo": {"timestamp": "never"}}}',
        'errorfile:{"message": "\\ud800"}',
        "errorfile:" + "[" * 5000,
    ],
    ids=["directory", "empty", "torn", "list", "overflow", "no number", "surrogate", "deep"],
)
def test_an_error_file_of_any_kind_changes_nothing_of_the_outcome(run: Run, word: str) -> None:
    assert run.act(f"{word}@1", "exit:4@1", "idle").wait() == 4
    assert run.summary["origin"] == "workers"
    assert run.summary["culprit"]["rank"] == 1


def test_a_scratch_directory_that_a_cleaner_took_is_made_again(run: Run) -> None:
    words = ("up@1", "until:1.0@0", "sweep@0#0", "exit:3@0#0", "idle#0", "out:done")
    assert run.act(*words, options=("--max-restarts", "1")).wait() == 0
    assert run.out.splitlines() == ["done", "done"]


def test_ranks_that_finish_early_do_no_harm_and_restart_with_the_group(run: Run) -> None:
    words = ("out:started", "exit:0@0#0", "work:0.4@1#0", "exit:5@1#0")
    assert run.act(*words, options=("--max-restarts", "1")).wait() == 0
    assert run.out.splitlines() == ["started"] * 4


def test_a_program_that_cannot_be_executed_is_a_failure_with_its_reason(run: Run) -> None:
    broken = run.place / "broken"
    broken.write_text("no shebang")
    broken.chmod(0o755)
    assert run.start(*run.flags(), "--no-python", str(broken)).wait() == 126
    assert "could not be started" in run.said[0]
    assert "Exec format error" in run.said[0]


@pytest.mark.parametrize("restarts", ["0", "1"])
def test_the_kernels_memory_killer_is_named(run: Run, restarts: str) -> None:
    limit = Path("/sys/fs/cgroup/memory") / f"elastic-run-test-{run.mark}"
    try:
        limit.mkdir()
        (limit / "memory.limit_in_bytes").write_text(str(64 << 20))
    except OSError as error:
        pytest.skip(f"no memory cgroup (v1) can be made here: {error.strerror}")
    hungry = run.place / "hungry.py"
    hungry.write_text(
        "import os\n"
        "if os.environ['RANK'] == '1' and os.environ['TORCHELASTIC_RESTART_COUNT'] == '0': x = bytearray(200 << 20)\n"
        "if os.environ['TORCHELASTIC_RESTART_COUNT'] == '1': raise SystemExit(0)\n"
        "import time; time.sleep(60)"
    )
    try:
        into = ("sh", "-c", f'echo $$ > {limit}/cgroup.procs; exec "$@"', "sh")
        code = run.start(*run.flags(), "--max-restarts", restarts, str(hungry), before=into).wait()
        assert code == (0 if restarts == "1" else 137)
        assert "rank 1" in run.said[0]
        assert "SIGKILL, by the kernel's out-of-memory killer" in run.said[0]
        run.gone(10)
    finally:
        run.close()
        until(lambda: _removed(limit), BOUND, "the cgroup is empty")


def _removed(cgroup: Path) -> bool:
    try:
        cgroup.rmdir()
    except OSError:
        return False
    return True
