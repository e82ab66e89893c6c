"""From archives to pairs of lines: every format, and the inputs that must be refused."""

import gzip
import json

import pytest
import wmt

from fairseq_rela.corpora.extract import cost, extract, finished
from fairseq_rela.corpora.spec import SPLITS, Expected, Part, Sources, parse_sources
from fairseq_rela.errors import InputError

LANGUAGES = ("en", "de")
EN = ["one &amp; two", "three  four", "five\x85six\rseven", "eight"]
DE = ["eins &amp; zwei", "drei  vier", "fünf\u2028sechs", "acht"]


def sources(train, **changes):
    small = Part("plain", ("dev:dev.en", "dev:dev.de"))
    splits = {"train": (train,), "valid": (small,), "test": (small,)}
    return Sources(LANGUAGES, {**splits, **changes.pop("splits", {})}, changes.pop("subsets", {}), **changes)


def made(tmp_path, files, train, **changes):
    """Extract archives with these bytes; return the record and the training lines of both sides."""
    files = {"dev": wmt.tar({"dev.en": wmt.plain(EN[:2]), "dev.de": wmt.plain(DE[:2])}), **files}
    archives = {}
    for name, content in files.items():
        archives[name] = tmp_path / name
        archives[name].write_bytes(content)
    record = extract(sources(train, **changes), archives, tmp_path / "raw", {"task": "t"})
    lines = [(tmp_path / "raw" / f"train.{lang}").read_bytes().decode().split("\n")[:-1] for lang in LANGUAGES]
    return record, lines


SGM = {"x.en": wmt.sgm(EN[:2], "en", "srcset"), "x.de": wmt.sgm(DE[:2], "de", "refset")}


@pytest.mark.parametrize(
    "content, part",
    [
        (wmt.tar({"d/x.en": wmt.plain(EN), "d/x.de": wmt.plain(DE)}), Part("plain", ("a:d/x.en", "a:d/x.de"))),
        (wmt.tar({"x.de": wmt.plain(DE), "x.en": wmt.plain(EN)}, "w:"), Part("plain", ("a:x.en", "a:x.de"))),
        (wmt.zipped({"x.de": wmt.plain(DE), "x.en": wmt.plain(EN)}), Part("plain", ("a:x.en", "a:x.de"))),
        (
            wmt.tar({f"x.{lang}.gz": gzip.compress(wmt.plain(lines)) for lang, lines in (("en", EN), ("de", DE))}),
            Part("plain", ("a:x.en.gz", "a:x.de.gz")),
        ),
        (wmt.plain(map("\t".join, zip(DE, EN))), Part("tsv", ("a",), ("de", "en"))),
        (gzip.compress(wmt.plain(map("\t".join, zip(EN, DE)))), Part("tsv", ("a",), ("en", "de"))),
        (wmt.plain(map(" ||| ".join, zip(DE, EN))), Part("bars", ("a",), ("de", "en"))),
    ],
)
def test_every_format_gives_the_lines_unchanged(content, part, tmp_path):
    _, lines = made(tmp_path, {"a": content}, part)
    assert lines == [EN, DE]


def test_tmx_with_longer_codes_and_a_third_language_is_read(tmp_path):
    content = wmt.tmx(zip(DE[:2], EN[:2], "xy"), ("de-AT", "EN_gb", "fr")).replace(
        b"three  four", b"three <hi>four</hi>"
    )
    _, lines = made(tmp_path, {"a": gzip.compress(content)}, Part("tmx", ("a",), ("de", "en")))
    assert lines == [["one &amp; two", "three four"], DE[:2]]


def test_sgm_is_read_like_sacrebleu_reads_it(tmp_path):
    """Entities are kept and white space is collapsed, as by sacreBLEU's own reader."""
    from sacrebleu.dataset.fake_sgml import FakeSGMLDataset

    record, lines = made(tmp_path, {"a": wmt.tar(SGM)}, Part("sgm", ("a:x.en", "a:x.de"), expected=Expected(2)))
    assert lines == [["one &amp; two", "three four"], ["eins &amp; zwei", "drei vier"]]
    assert record["splits"]["train"] == [{"from": "a:x.en", "pairs": 2, "left_out": {}}]
    for name, side in zip(("x.en", "x.de"), lines):
        (tmp_path / name).write_bytes(SGM[name])
        reader = FakeSGMLDataset.__new__(FakeSGMLDataset)
        reader._convert_format(str(tmp_path / name), str(tmp_path / "theirs"))
        assert (tmp_path / "theirs").read_text(encoding="utf-8").split("\n")[:-1] == side


def test_files_of_a_pattern_are_paired_by_name(tmp_path):
    members = {}
    for book in ("2", "10", "1"):
        members[f"c/Book{book}_en.txt"] = wmt.plain([f"en{book}"])
        members[f"c/Book{book}_{'ch' if book == '2' else 'cn'}.txt"] = wmt.plain([f"de{book}"])
    part = Part("plain", ("a:c/*_en.txt", "a:c/*_c[hn].txt"))
    _, lines = made(tmp_path, {"a": wmt.zipped(members)}, part)
    assert lines == [["en1", "en10", "en2"], ["de1", "de10", "de2"]]
    del members["c/Book10_cn.txt"]
    (tmp_path / "2").mkdir()
    with pytest.raises(InputError, match="a file has no other side among .*c/Book10_en.txt"):
        made(tmp_path / "2", {"a": wmt.zipped(members)}, part)


@pytest.mark.parametrize("name", ["./d/x.en", "d/x[1].en", "d/[!y].en", "d/?.en"])
def test_members_are_found_by_their_name_in_tar_or_a_pattern(name, tmp_path):
    members = {"d/x.en": "d/x.en", "d/x[1].en": "d/x[1].en", "d/y.en": "d/y.en"}
    wanted = "d/x[1].en" if "[1]" in name else "d/x.en"
    files = {member: wmt.plain(EN if member == wanted else ["other"]) for member in members}
    if name == "d/?.en":
        del files["d/y.en"]
    content = {"a": wmt.tar({**files, "d/x.de": wmt.plain(DE)})}
    assert made(tmp_path, content, Part("plain", (f"a:{name}", "a:./d/x.de")))[1] == [EN, DE]


def test_a_single_file_is_the_member_whatever_its_name(tmp_path):
    files = {"a": gzip.compress(wmt.plain(EN)), "b": wmt.plain(DE)}
    assert made(tmp_path, files, Part("plain", ("a:training/x.en", "b:training/x.de")))[1] == [EN, DE]


def test_a_member_of_both_sides_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"x.en of a matches both x.\* and x.en"):
        made(tmp_path, {"a": wmt.tar({"x.en": wmt.plain(EN)})}, Part("plain", ("a:x.*", "a:x.en")))


def test_text_in_utf_16_is_refused(tmp_path):
    for number, encoding in enumerate(("utf-16", "utf-16-le")):
        (tmp_path / str(number)).mkdir()
        files = {"a": "\n".join(EN * 100).encode(encoding), "b": "\n".join(EN * 100).encode(encoding)}
        with pytest.raises(InputError, match="pairs are damaged .not UTF-8: "):
            made(tmp_path / str(number), files, Part("plain", ("a", "b")))


def test_every_line_of_a_table_needs_the_same_number_of_columns(tmp_path):
    rows = [f"{en}\t{de}\t0.5" for en, de in zip(EN, DE)] * 100
    record, lines = made(tmp_path, {"a": wmt.plain([*rows, "a tab\tmore\tgut\t0.5"])}, Part("tsv", ("a",), LANGUAGES))
    assert lines == [EN * 100, DE * 100]
    assert record["splits"]["train"][0]["left_out"] == {"not 3 columns": 1}


def test_codes_of_other_formats_in_tmx_are_left_out(tmp_path):
    inner = "<bpt i='1'>&lt;b&gt;</bpt>Hello <hi>dear<ph>{1}</ph></hi> world<ept i='1'>&lt;/b&gt;</ept>!"
    content = wmt.tmx([("MARK", "Hallo")], ("en", "de")).replace(b"MARK", inner.encode())
    assert made(tmp_path, {"a": content}, Part("tmx", ("a",), LANGUAGES))[1] == [["Hello dear world!"], ["Hallo"]]


def test_tmx_with_a_namespace_and_a_country_code_is_read(tmp_path):
    content = wmt.tmx([("one", "um"), ("two", "dois")], ("en", "pt-BR")).replace(b"<tmx ", b'<tmx xmlns="http://x" ')
    part = Part("tmx", ("a",), ("en", "pt_BR"))
    (tmp_path / "a").write_bytes(content)
    extract(
        Sources(("en", "pt_BR"), dict.fromkeys(SPLITS, (part,)), {}),
        {"a": tmp_path / "a"},
        tmp_path / "raw",
        {},
    )
    assert (tmp_path / "raw" / "train.pt_BR").read_text() == "um\ndois\n"


def test_sides_in_separate_archives_are_paired(tmp_path):
    _, lines = made(tmp_path, {"a": wmt.plain(EN), "b": gzip.compress(wmt.plain(DE))}, Part("plain", ("a", "b")))
    assert lines == [EN, DE]


def test_damaged_pairs_of_a_large_corpus_are_left_out_and_counted(tmp_path):
    en, de = wmt.plain(["a"] * 300), wmt.plain(["b"] * 300)
    broken = en[:20] + b"\xff" + en[21:]
    record, lines = made(tmp_path, {"a": broken, "b": de}, Part("plain", ("a", "b"), expected=Expected(300)))
    assert record["splits"]["train"][0] == {"from": "a", "pairs": 299, "left_out": {"not UTF-8": 1}}
    assert [len(side) for side in lines] == [299, 299]
    with pytest.raises(InputError, match="1 of .* pairs are damaged .not UTF-8: 1"):
        (tmp_path / "2").mkdir()
        made(tmp_path / "2", {"a": b"\xff\n" + en[:20], "b": de[:22]}, Part("plain", ("a", "b")))


@pytest.mark.parametrize(
    "files, part, message",
    [
        ({"a": wmt.plain(EN), "b": wmt.plain(DE[:3])}, Part("plain", ("a", "b")), "a has 4 lines, b has 3"),
        (
            {"a": wmt.plain(EN), "b": wmt.plain(DE)},
            Part("plain", ("a", "b"), expected=Expected(5)),
            "4 pairs, 5 are exp",
        ),
        (
            {"a": wmt.plain(EN), "b": wmt.plain(DE)},
            Part("plain", ("a", "b"), expected=Expected(8, 0.1)),
            "8 give or take 10.0% are expected",
        ),
        ({"a": wmt.tar({"y.en": b"x\n"})}, Part("plain", ("a:x.en", "a:x.de")), "has no member x.en; it has y.en"),
        ({"a": wmt.plain(["a\tb", "c"])}, Part("tsv", ("a",), ("en", "de")), "not two columns: 1"),
        ({"a": wmt.plain(["a ||| b ||| c"])}, Part("bars", ("a",), ("en", "de")), "not two columns: 1"),
        ({"a": wmt.tmx([("x", "y")], ("en", "de"))[:-30]}, Part("tmx", ("a",), ("en", "de")), "^a: damaged TMX"),
        ({"a": wmt.tmx([("x", "y")], ("en", "fr"))}, Part("tmx", ("a",), ("en", "de")), "not both languages: 1"),
        ({"a": wmt.tmx([], ("en", "de"))}, Part("tmx", ("a",), ("en", "de")), "holds no pair"),
        (
            {"a": wmt.tar({**SGM, "x.de": wmt.sgm(DE[:1], "de", "refset")})},
            Part("sgm", ("a:x.en", "a:x.de")),
            "differ at document news.0, segment 2",
        ),
        (
            {"a": wmt.tar({**SGM, "x.de": SGM["x.de"].replace(b'docid="news', b'docid="sports')})},
            Part("sgm", ("a:x.en", "a:x.de")),
            "differ at document news.0, segment 1",
        ),
        (
            {"a": wmt.tar({**SGM, "x.de": SGM["x.de"].replace(b"</seg>", b"", 1)})},
            Part("sgm", ("a:x.en", "a:x.de")),
            "does not end in its line",
        ),
        (
            {"a": wmt.tar({k: v.replace(b"</seg>\n", b"</seg>") for k, v in SGM.items()})},
            Part("sgm", ("a:x.en", "a:x.de")),
            "without a line to itself",
        ),
        (
            {"a": wmt.tar({k: v.replace(b"<seg ", b"<hl><SEG ", 1) for k, v in SGM.items()})},
            Part("sgm", ("a:x.en", "a:x.de")),
            "a:x.en, line 4: a <seg> without id",
        ),
        (
            {"a": wmt.tar({**SGM, "x.de": SGM["x.de"].replace(b"drei", b"dr\xe9i")})},
            Part("sgm", ("a:x.en", "a:x.de")),
            "a:x.de, line 5: not UTF-8",
        ),
        (
            {"a": wmt.tmx([("x", "y")], ("en", "de")).replace(b"UTF-8", b"GB2312")},
            Part("tmx", ("a",), ("en", "de")),
            "the encoding of this TMX file is not read .*; convert it to UTF-8",
        ),
        (
            {"a": wmt.tmx([("x", "y")], ("en", "de")).replace(b"UTF-8", b"nonsense")},
            Part("tmx", ("a",), ("en", "de")),
            "convert it to UTF-8",
        ),
    ],
)
def test_unexpected_content_is_an_error_and_no_output_is_left(files, part, message, tmp_path):
    with pytest.raises(InputError, match=message):
        made(tmp_path, files, part)
    assert not (tmp_path / "raw").exists() and not list(tmp_path.glob(".*"))


def test_dev_and_test_sets_with_damaged_lines_are_refused(tmp_path):
    part = Part("plain", ("a", "b"))
    with pytest.raises(InputError, match="not UTF-8: 1"):
        files = {"a": wmt.plain(EN * 100), "b": wmt.plain(DE * 99 + DE[:3]) + b"\xff\n"}
        made(tmp_path, files, part, splits={"test": (part,)})


def test_the_reference_must_have_its_published_length(tmp_path):
    part = Part("plain", ("a", "b"))
    files = {"a": wmt.plain(EN), "b": wmt.plain(DE)}
    made(tmp_path, files, part, reference_length=wmt.reference_length(DE[:2]))
    (tmp_path / "2").mkdir()
    with pytest.raises(InputError, match="13a tokens, 99 are expected"):
        made(tmp_path / "2", files, part, reference_length=99)


def test_a_subset_of_the_test_set_is_its_line_numbers(tmp_path):
    """B19: the filtered set is lines of the full one, in its own order; equal lines have different numbers."""
    part = Part("plain", ("a", "b"))
    files = {"a": wmt.plain(["x", "y", "x", "z"]), "b": wmt.plain("1213")}
    subset = {"s": wmt.plain(["z\t3", "x\t1", "x\t1"])}
    made(tmp_path, {**files, **subset}, part, splits={"test": (part,)}, subsets={"few": Part("tsv", ("s",), LANGUAGES)})
    assert (tmp_path / "raw" / "test.few.lines").read_text() == "3\n0\n2\n"
    few = {"few": Part("tsv", ("s",), LANGUAGES)}
    for number, (lines, message) in enumerate(
        ((b"x\t2\n", "not in the test set"), (b"w\t1\n", "not in the test set"), (b"z\t3\nz\t1\n", "twice"))
    ):
        (tmp_path / str(number)).mkdir()
        with pytest.raises(InputError, match=message):
            made(tmp_path / str(number), {**files, "s": lines}, part, splits={"test": (part,)}, subsets=few)


def test_a_subset_with_another_reference_gives_a_warning(tmp_path, capsys):
    part = Part("plain", ("a", "b"))
    files = {"a": wmt.plain(["x", "y", "z"]), "b": wmt.plain("123"), "s": wmt.plain(["z\t3", "y\tother"])}
    made(tmp_path, files, part, splits={"test": (part,)}, subsets={"few": Part("tsv", ("s",), LANGUAGES)})
    assert (tmp_path / "raw" / "test.few.lines").read_text() == "2\n1\n"
    assert "s: 1 of 2 references differ from the test set's, which are used" in capsys.readouterr().out


def test_corpora_whose_own_sizes_are_unknown_are_counted_together(tmp_path):
    files = {"a": wmt.plain(EN * 100 + ["left out"]), "b": wmt.plain(DE * 100) + b"\xff\n"}
    part = Part("plain", ("a", "b"))
    splits = {"train": (part, part)}
    made(tmp_path, files, part, splits=splits, train_pairs=Expected(802))
    (tmp_path / "2").mkdir()
    with pytest.raises(InputError, match="802 pairs in all corpora together, 820 give or take 1.0% are expected"):
        made(tmp_path / "2", files, part, splits=splits, train_pairs=Expected(820, 0.01))


def test_the_size_is_reported_before_extraction(tmp_path):
    parts = (Part("plain", ("a", "b"), expected=Expected(2_000_000)), Part("plain", ("a", "b")))
    splits = dict.fromkeys(SPLITS, parts)
    said = cost(Sources(LANGUAGES, splits, {}, bytes_a_pair=300), tmp_path)
    assert said.startswith("2,000,000 training pairs and more: about 0.6 GB of text; ")
    said = cost(Sources(LANGUAGES, splits, {}, train_pairs=Expected(10**7), bytes_a_pair=300), tmp_path)
    assert said.startswith("10,000,000 training pairs: about 3.0 GB of text; ")


def test_chinese_in_the_other_column_is_found(tmp_path, capsys):
    content = {"a": wmt.plain(["one\t一", "two\t二"])}
    languages = ("zh", "en")
    small = Part("tsv", ("a",), ("zh", "en"))
    (tmp_path / "a").write_bytes(content["a"])
    extract(Sources(languages, dict.fromkeys(SPLITS, (small,)), {}), {"a": tmp_path / "a"}, tmp_path / "raw", {})
    assert (tmp_path / "raw" / "train.zh").read_text(encoding="utf-8") == "一\n二\n"
    assert "the other column" in capsys.readouterr().out


def test_a_finished_folder_is_reused_only_if_unchanged(tmp_path):
    part = Part("plain", ("a", "b"))
    record, _ = made(tmp_path, {"a": wmt.plain(EN), "b": wmt.plain(DE)}, part)
    raw = tmp_path / "raw"
    assert finished(raw, {"task": "t"}) == json.loads(json.dumps(record))
    assert finished(tmp_path / "other", {}) is None
    with pytest.raises(InputError, match="made from other corpora"):
        finished(raw, {"task": "u"})
    (raw / "train.en").write_text("x\n")
    with pytest.raises(InputError, match="train.en is missing or has changed"):
        finished(raw, {"task": "t"})
    with pytest.raises(InputError, match="not made by the stage extract"):
        (raw / "extract.json").unlink()
        finished(raw, {"task": "t"})


WHOLE = {split: [{"source": "a", "target": "b"}] for split in SPLITS}


@pytest.mark.parametrize(
    "spec, message",
    [
        ({}, "train: give a list"),
        ({"train": [{"source": "a", "goal": "b"}]}, "train: an entry has other keys"),
        ({"train": [{"format": "xml", "source": "a"}]}, "no format 'xml'"),
        ({"train": [{"source": "a"}]}, "the format plain has source and target"),
        ({"train": [{"format": "tsv", "source": "a", "target": "b"}]}, "the format tsv has file"),
        ({"train": [{"format": "tsv", "file": "a", "columns": ["en", "fr"]}]}, "columns must be en and de"),
        ({"train": [{"source": "a:x", "target": "a:x"}]}, "train: a:x is given for both sides"),
        ({"train": [{"source": "a", "target": "b", "pairs": "many"}]}, "pairs: 'many' is not a count"),
        ({"train": [{"source": "a", "target": "b", "pairs": 1, "tolerance": 2}]}, "tolerance: 2 is not a share"),
        ({**WHOLE, "train_pairs": 5}, "train_pairs: 5 is not a mapping with pairs and tolerance"),
        ({**WHOLE, "bytes_a_pair": 0.5}, "bytes_a_pair: 0.5 is not a number"),
    ],
)
def test_a_malformed_corpus_file_is_refused(spec, message):
    with pytest.raises(InputError, match=message):
        parse_sources(spec, LANGUAGES)
