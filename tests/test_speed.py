"""Speeds of a benchmark on the page: their computation from times, and unusable records."""

import json

import pytest

from fairseq_rela.errors import InputError
from fairseq_rela.report.speed import load_speeds, rows, speeds_of


def times(**seconds):
    """Return the record of one comparison of `rela bench`; the ratio is that of medians here."""
    return {
        "seconds": {name: {"median": value} for name, value in seconds.items()},
        "ratio": {name: {"median": value / seconds["softmax"]} for name, value in seconds.items()},
    }


def benchmark(**changes):
    return {
        "command": "rela bench",
        "date": "2026-11-28T09:00:00+00:00",
        "versions": {"torch": "2.13.0"},
        "device": {"type": "cpu", "name": "a chip", "cores": 2, "threads": 2},
        "training": times(softmax=2.0, rela_g=2.5, rela_g_plain=3.0, sparsemax=8.0),
        "decoding": [
            {"batch": 16, "length": 8, **times(softmax=1.0, rela_g=1.0)},
            {"batch": 1, "length": 32, **times(softmax=3.0, rela_g=6.0, sparsemax=9.0)},
            {"batch": 1, "length": 8, **times(softmax=1.0, rela_g=0.5)},
        ],
        **changes,
    }


def write(tmp_path, record):
    path = tmp_path / "benchmark.json"
    path.write_text(json.dumps(record))
    return path


def test_times_become_speeds_over_softmax(tmp_path):
    speeds = load_speeds(write(tmp_path, benchmark()))
    assert speeds.training == {"softmax": 1.0, "rela_g": 0.8, "sparsemax": 0.25}
    assert [one.batch for one in speeds.decoding] == [1, 16]
    alone = speeds.decoding[0]
    assert alone.lengths == [8, 32]
    assert alone.speeds == {"softmax": [1.0, 1.0], "rela_g": [2.0, 0.5]}  # sparsemax has no time for one length
    assert alone.overall == {"softmax": 1.0, "rela_g": 4.0 / 6.5}  # (1 + 3) s to (0.5 + 6) s
    assert speeds.device == "a chip, 2 threads of 2 cores, torch 2.13.0"
    assert {"batch": 1, "attention": "rela_g", "source_length": 32, "speed_over_softmax": 0.5} in rows(speeds.decoding)


def test_each_batch_size_is_drawn_over_its_own_lengths():
    pytest.importorskip("matplotlib")
    from fairseq_rela.report.figures import speed_figure

    panels = speed_figure(speeds_of(benchmark())).draw().axes
    assert [[label.get_text() for label in axis.get_xticklabels()] for axis in panels] == [["8", "32"], ["8"]]


def test_a_part_may_be_missing(tmp_path):
    record = benchmark()
    del record["training"], record["decoding"]
    assert load_speeds(write(tmp_path, record))[2:4] == ({}, [])


@pytest.mark.parametrize(
    "changes",
    [
        {"device": None},
        {"versions": {}},
        {"training": {"ratio": {"rela_g": {"median": 0}}}},
        {"training": {"ratio": {"rela_g": {"median": "fast"}}}},
        {"decoding": [{"batch": 1, "length": 8}]},
        {
            "decoding": [
                {"batch": 1, "length": 8, **times(softmax=1.0), "seconds": {"softmax": {"median": float("nan")}}}
            ]
        },
        {"op": [{"length": 8}]},
    ],
)
def test_malformed_records_are_refused(tmp_path, changes):
    with pytest.raises(InputError, match="not in the format of `rela bench`"):
        load_speeds(write(tmp_path, benchmark(**changes)))


def test_invalid_json_and_a_missing_file_are_refused(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        load_speeds(tmp_path / "absent.json")
    with pytest.raises(InputError, match="not in the format of `rela bench`"):
        load_speeds(write(tmp_path, []))
