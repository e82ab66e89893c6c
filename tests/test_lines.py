"""Lines end only at LF; outputs appear complete or not at all."""

import gzip
import os
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairseq_rela.errors import InputError
from fairseq_rela.files.lines import count_lines, read_line_blocks, read_lines, read_parallel
from fairseq_rela.files.outputs import write_whole
from fairseq_rela.files.records import read_json, write_json

BREAKS = "\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029\x00"


@given(st.lists(st.text(st.characters(blacklist_characters="\n", blacklist_categories=("Cs",)))))
def test_only_lf_ends_a_line(tmp_path_factory, lines):
    path = tmp_path_factory.mktemp("lines") / "text"
    path.write_bytes("".join(line + "\n" for line in ["", *lines]).encode())  # for the first line: see below
    assert list(read_lines(path)) == ["", *lines] and count_lines(path) == len(lines) + 1


@pytest.mark.parametrize("name", ["text", "text.gz"])
def test_a_byte_order_mark_is_not_part_of_the_text(tmp_path, name):
    """B04: only before the first line; later it is an ordinary character."""
    content = "\ufeffone\n\ufefftwo\n".encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    lines = ["one", "\ufefftwo"]
    assert list(read_lines(tmp_path / name)) == lines
    for size in (1, 2):
        blocks = list(read_line_blocks(tmp_path / name, size))
        assert [line for block in blocks for line in block.decode()] == lines
        assert [line for block in blocks for line in pickle.loads(pickle.dumps(block)).decode()] == lines


def test_line_breaks_of_every_kind_shift_no_line(tmp_path):
    """B04: a corpus of 300 lines has CR in line 3 of one side and in line 4 of the other."""
    source, target = tmp_path / "s", tmp_path / "t.gz"
    left = [f"s{i}" + (BREAKS + "x" if i == 2 else "") for i in range(300)]
    right = [f"t{i}" + (BREAKS + "x" if i == 3 else "") for i in range(300)]
    source.write_bytes("\n".join(left).encode())  # no LF at the end
    target.write_bytes(gzip.compress(("\n".join(right) + "\n").encode()))
    pairs = list(read_parallel(source, target))
    assert len(pairs) == 300
    assert all(a.startswith(f"s{i}") and b.startswith(f"t{i}") for i, (a, b) in enumerate(pairs))


@pytest.mark.parametrize("name", ["text", "text.gz"])
@pytest.mark.parametrize("end", ["", "\n"])
def test_another_process_reads_the_same_blocks(tmp_path, name, end):
    lines = [f"{i} " + "ä" * (i % 7) + BREAKS[i % 10] for i in range(25)]
    content = ("\n".join(lines) + end).encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    blocks = list(read_line_blocks(tmp_path / name, 10))
    sent = [pickle.dumps(block) for block in blocks]
    again = [pickle.loads(block) for block in sent]
    assert [block.decode() for block in again] == [lines[:10], lines[10:20], lines[20:]]
    assert [len(block) for block in again] == [10, 10, 5] and [block.start for block in again] == [0, 10, 20]
    assert [block.content for block in again] == [block.content for block in blocks]
    assert (lines[0].encode() in sent[0]) == name.endswith(".gz"), "only what is in an archive is sent"


@pytest.mark.parametrize("change", [lambda text: text[:40], lambda text: text.replace(b"7\n", b"77\n"), None])
def test_a_file_that_changes_while_it_is_read_is_an_error(tmp_path, change):
    path = tmp_path / "text"
    path.write_bytes(b"".join(b"%d\n" % i for i in range(30)))
    sent = [pickle.dumps(block) for block in read_line_blocks(path, 10)]
    if change is None:
        path.unlink()
    else:
        path.write_bytes(change(path.read_bytes()))
    with pytest.raises(InputError, match="has changed while it was read|cannot be read"):
        for block in sent:
            pickle.loads(block).decode()


def test_unequal_numbers_of_lines_are_an_error(tmp_path):
    (tmp_path / "s").write_text("1\n2\n3\n")
    (tmp_path / "t").write_text("1\n2\n")
    for order in (("s", "t"), ("t", "s")):
        with pytest.raises(InputError, match=r"t has 2 lines, .*s has 3"):
            list(read_parallel(*(tmp_path / name for name in order)))


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("a", b"fine\nb\xe4d\n", "line 2: not UTF-8"),
        ("a", b"\xed\xa0\x80\n", "line 1: not UTF-8"),  # a lone surrogate
        ("a.gz", gzip.compress(b"text\n" * 1000, mtime=0)[:-20], "damaged or truncated"),
        ("a.gz", b"<html>not found</html>", "damaged or truncated"),
        ("a.gz", b"", None),
    ],
)
def test_bad_files_are_named(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content)
    if message is None:
        assert list(read_lines(path)) == []
        return
    with pytest.raises(InputError, match=message) as error:
        list(read_lines(path))
    assert str(path) in str(error.value) and "\n" not in str(error.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InputError, match="absent: cannot be read"):
        list(read_lines(tmp_path / "absent"))


def test_the_next_writing_removes_partial_files_of_killed_processes(tmp_path):
    gone = 2**22 + 1  # larger than any process number of Linux
    mine = tmp_path / f".a[1].{gone}.partial"
    others = [tmp_path / f".{name}.partial" for name in (f"a[1].{os.getppid()}", f"a1.{gone}", "a[1].7x", "a[1]")]
    for path in (mine, *others):
        path.write_text("half")
    with write_whole(tmp_path / "a[1]") as file:
        file.write("whole")
    assert sorted(tmp_path.iterdir()) == sorted([*others, tmp_path / "a[1]"])


def test_a_failed_writing_keeps_the_old_file_and_leaves_no_other(tmp_path):
    path = tmp_path / "out"
    path.write_text("old")
    with pytest.raises(RuntimeError), write_whole(path) as file:
        file.write("half")
        raise RuntimeError
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_a_file_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"), write_whole(tmp_path / "file" / "out"):
        pass


def test_json_is_read_back_and_damaged_json_is_refused(tmp_path):
    write_json(tmp_path / "x.json", {"a": "ä"})
    assert read_json(tmp_path / "x.json") == {"a": "ä"}
    (tmp_path / "x.json").write_text("{")
    with pytest.raises(InputError, match="not valid JSON"):
        read_json(tmp_path / "x.json")
