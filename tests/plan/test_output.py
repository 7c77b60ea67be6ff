"""Where output goes: grammar of --redirects and --tee, filters, prefixes."""

from __future__ import annotations

import pytest

from elastic_run.errors import ConfigError
from elastic_run.plan.output import Choice, Output, Place, checked_template, mapping, needles, ranks, size

BOTH = frozenset({"stdout", "stderr"})


def place(local_rank: int = 0, rank: int = 4, alone: bool = False) -> Place:
    return Place(rank, local_rank, "default", "host", alone)


def output(redirects: str = "0", tee: str = "0", **more: object) -> Output:
    return Output(mapping("-r", redirects, 16), mapping("-t", tee, 16), **more)  # type: ignore[arg-type]


def test_one_digit_is_for_all_ranks_and_pairs_are_for_those_named() -> None:
    assert mapping("-r", "3", 2) == {0: BOTH, 1: BOTH}
    chosen = mapping("-r", "0:1,10:2", 12)
    assert (chosen[0], chosen[10], chosen[11]) == (frozenset({"stdout"}), frozenset({"stderr"}), frozenset())
    assert mapping("-r", "5:3", 2) == {0: frozenset(), 1: frozenset()}


@pytest.mark.parametrize("text", ["4", "", "0:4", "x:1", "0:1,", "0-3", "0:1;1:2", "-1:3", "0:1,0:2", "7:1,7:1"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--tee"):
        mapping("--tee", text, 2)


def test_tee_goes_to_file_and_console_with_torchruns_prefix() -> None:
    assert output(tee="0:1").choose(place(), "stdout", False, True) == Choice(True, True, b"[default0]:")


def test_redirected_output_is_not_shown_and_tee_beats_it() -> None:
    assert output(redirects="3").choose(place(), "stdout", True, True) == Choice(True, False, b"[default0]:")
    assert output(redirects="3", tee="3").choose(place(), "stdout", False, True) == Choice(True, True, b"[default0]:")


def test_a_lone_rank_keeps_the_launchers_streams_unless_asked() -> None:
    assert output().choose(place(alone=True), "stdout", False, True) is None
    assert output(tee="1").choose(place(alone=True), "stderr", False, True) is None
    assert output(tee="1").choose(place(alone=True), "stdout", False, True) is not None
    assert output().choose(place(alone=True), "stdout", False, False) == Choice(True, True)  # a pipe may be closed
    assert output().choose(place(alone=True), "stdout", True, True) == Choice(True, True, b"[default0]:")


def test_filters_by_local_and_by_global_rank_only_hide() -> None:
    for hidden in (output(local_ranks=frozenset({1})), output(ranks=frozenset({0}))):
        assert hidden.choose(place(alone=True), "stdout", False, True) == Choice(True, False)
    shown = output(local_ranks=frozenset({0}), ranks=frozenset({4})).choose(place(), "stdout", False, True)
    assert shown == Choice(True, True)


def test_filters_that_show_nothing_are_told() -> None:
    assert output(local_ranks=frozenset({0, 9}), ranks=frozenset({7})).unseen(2, 8) == ""
    assert output(local_ranks=frozenset({2})).unseen(2, 8).startswith("--local-ranks-filter names no rank")
    assert output(ranks=frozenset({8, 9})).unseen(2, 8).startswith("--ranks-filter names no rank")


def test_the_prefix_follows_the_template() -> None:
    choice = output(tee="3", template="${hostname}/${rank}/${local_rank}/${role_name} ").choose(
        place(), "stdout", False, True
    )
    assert choice is not None
    assert choice.prefix == b"host/4/0/default "


def test_what_is_said_about_one_stream_asks_for_files_apart() -> None:
    assert [output().asked(0), output(tee="0:2").asked(0), output(redirects="3").asked(1)] == [False, True, True]
    assert not output(tee="0:2", redirects="0:1").asked(1)


def test_line_filters_are_for_what_is_teed() -> None:
    both = output(tee="0:1", filters=(("stdout", ("x",)),))
    choice = both.choose(place(0), "stdout", False, True)
    other = both.choose(place(1), "stdout", False, True)
    assert choice is not None
    assert other is not None
    assert (choice.filters, other.filters) == (("x",), ())


def test_lists() -> None:
    assert ranks("f", "") is None
    assert ranks("f", "0, 12") == {0, 12}
    assert needles("a,b,,c") == ("a", "b,c")
    assert needles("") == ()
    with pytest.raises(ConfigError, match="--local-ranks-filter"):
        ranks("--local-ranks-filter", "0,x")


def test_sizes() -> None:
    assert [size("s", t) for t in ("7", "2k", "3M", "1G", "1GiB")] == [7, 2048, 3 << 20, 1 << 30, 1 << 30]
    for text in ("", "0", "M", "1T", "-1"):
        with pytest.raises(ConfigError, match="--log-max-size"):
            size("--log-max-size", text)


@pytest.mark.parametrize("text", ["${nope}", "$", "${"])
def test_templates_with_other_names_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="these names may be used"):
        checked_template("--log-line-prefix-template", text)
