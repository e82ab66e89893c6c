"""From raw text to a data folder: no line is lost or shifted, and no incomplete folder remains."""

import gzip
import json
import os
import random
import shutil
import signal

import pytest
from conftest import run_rela

from fairseq_rela.corpora.spec import Expected
from fairseq_rela.data import clean
from fairseq_rela.data import prepare as prepare_module
from fairseq_rela.data.binarise import Binarised, count_sentences
from fairseq_rela.data.folder import DataFolder
from fairseq_rela.data.prepare import Corpus, prepare
from fairseq_rela.data.settings import Settings
from fairseq_rela.errors import InputError
from fairseq_rela.files.lines import read_lines
from fairseq_rela.files.locks import only_process
from fairseq_rela.files.records import sha256

SPLITS = ("train", "valid", "test")


def small(folder, languages=("en", "de"), train=60):
    """Write a raw corpus of random syllables; return the pair of files of each split."""
    rng = random.Random(1)
    folder.mkdir(parents=True, exist_ok=True)
    for split, n in zip(SPLITS, (train, 12, 13)):
        for lang in languages:
            lines = [
                " ".join(rng.choice(["ab", "bab", "cab", "dab"]) for _ in range(1 + i % 7)) + "." for i in range(n)
            ]
            (folder / f"{split}.{lang}").write_text("".join(line + "\n" for line in lines))
    return {split: (folder / f"{split}.en", folder / f"{split}.de") for split in SPLITS}


SETTINGS = Settings("en", "de", merges=10, vocabulary_threshold=1)


def fake_binarise(folder, languages, prefixes, workers, log):
    """Return the counts of fairseq-preprocess without running it, as it needs seconds to start."""
    log.write_text("")
    return {
        split: {lang: Binarised(sum(1 for _ in read_lines(f"{prefix}.{lang}")), 1, 0) for lang in languages}
        for split, prefix in prefixes.items()
    }


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(prepare_module, "binarise", fake_binarise)


def test_all_recorded_counts_agree_with_the_files(data):
    record = DataFolder(data).record
    for split in SPLITS:
        kept = record["splits"][split]["kept"]
        for lang in ("xa", "xb"):
            assert count_sentences(data / f"{split}.xa-xb.{lang}") == kept
            assert sum(1 for _ in read_lines(data / "bpe" / f"{split}.{lang}")) == kept
    assert record["splits"]["test"]["read"] == record["splits"]["test"]["kept"] == 300
    assert record["versions"]["sacremoses"] and record["settings"]["merges"] == 150


def test_binary_data_equal_the_bpe_encoded_text(data):
    from fairseq.data import Dictionary, data_utils

    for lang in ("xa", "xb"):
        dictionary = Dictionary.load(str(data / f"dict.{lang}.txt"))
        dataset = data_utils.load_indexed_dataset(str(data / f"test.xa-xb.{lang}"), dictionary)
        lines = list(read_lines(data / "bpe" / f"test.{lang}"))
        got = [dictionary.string(dataset[i]) for i in range(len(dataset))]
        assert [line.split() for line in got] == [line.split() for line in lines]


def test_raw_dev_and_test_sets_are_untouched(corpus, data):
    for split in ("valid", "test"):
        for lang in ("xa", "xb"):
            assert (data / "raw" / f"{split}.{lang}").read_bytes() == (corpus / f"{split}.{lang}").read_bytes()


def test_new_text_is_segmented_like_the_training_text(corpus, data):
    lines = list(read_lines(corpus / "test.xa"))
    assert list(DataFolder(data).segment(lines)) == list(read_lines(data / "bpe" / "test.xa"))


def test_a_second_run_reuses_the_data_and_changed_settings_are_refused(quick, tmp_path, capsys):
    files = small(tmp_path / "raw")
    output = tmp_path / "data"
    first = prepare(Corpus(files), SETTINGS, output, workers=1)
    assert prepare(Corpus(files), SETTINGS, output, workers=1) == first
    assert "already prepared" in capsys.readouterr().out
    with pytest.raises(InputError, match="other files or settings"):
        prepare(Corpus(files), Settings("en", "de", merges=11, vocabulary_threshold=1), output)
    with open(files["train"][0], "a") as file:
        file.write("more.\n")
    with open(files["train"][1], "a") as file:
        file.write("mehr.\n")
    with pytest.raises(InputError, match="other files or settings"):
        prepare(Corpus(files), SETTINGS, output)


def test_files_of_both_sides_may_have_the_same_name(quick, tmp_path):
    files = small(tmp_path / "raw")
    for split, pair in files.items():
        for path, lang in zip(pair, ("en", "de")):
            (tmp_path / lang).mkdir(exist_ok=True)
            path.rename(tmp_path / lang / split)
    files = {split: (tmp_path / "en" / split, tmp_path / "de" / split) for split in files}
    record = prepare(Corpus(files), SETTINGS, tmp_path / "data", workers=1)
    assert record["inputs"]["train"] == {f"{lang}:train": sha256(tmp_path / lang / "train") for lang in ("en", "de")}
    files["train"][0].write_text(files["train"][0].read_text().replace("bab", "dab"))
    with pytest.raises(InputError, match="other files or settings"):
        prepare(Corpus(files), SETTINGS, tmp_path / "data")


def test_changed_subsets_are_refused_as_other_files(quick, tmp_path):
    files, subset = small(tmp_path / "raw"), tmp_path / "raw" / "test.hard.lines"
    subset.write_text("0\n1\n")
    prepare(Corpus(files, subsets={"hard": subset}), SETTINGS, tmp_path / "data", workers=1)
    prepare(Corpus(files, subsets={"hard": subset}), SETTINGS, tmp_path / "data")
    subset.write_text("2\n3\n")
    for subsets in ({"hard": subset}, {}, {"hard": subset, "new": subset}):
        with pytest.raises(InputError, match="other files or settings"):
            prepare(Corpus(files, subsets=subsets), SETTINGS, tmp_path / "data")


def test_a_damaged_result_is_an_error(quick, tmp_path):
    files, output = small(tmp_path / "raw"), tmp_path / "data"
    prepare(Corpus(files), SETTINGS, output, workers=1)
    (output / "bpecodes").write_text("#version: 0.2\n")
    with pytest.raises(InputError, match="bpecodes is missing or has changed"):
        prepare(Corpus(files), SETTINGS, output)


def test_the_bytes_do_not_depend_on_workers_or_compression(quick, tmp_path):
    files = small(tmp_path / "raw", train=2500)
    packed = {}
    for split, pair in files.items():
        packed[split] = tuple(path.with_name(path.name + ".gz") for path in pair)
        for path, gz in zip(pair, packed[split]):
            gz.write_bytes(gzip.compress(path.read_bytes()))
    records = [
        prepare(Corpus(given), SETTINGS, tmp_path / f"data{i}", workers)
        for i, (given, workers) in enumerate(((files, 1), (files, 3), (packed, 2)))
    ]
    assert records[0]["outputs"] == records[1]["outputs"] == records[2]["outputs"]
    assert len(records[0]["outputs"]) == 3 + 6 + 6 + 4


def test_cleaning_counts_what_each_rule_removed(quick, tmp_path):
    files = small(tmp_path / "raw")
    extra = [("", "leer"), ("one two three four", "x"), ("a " * 30, "b " * 30), ("\x0b \u2028", "\r"), ("ok", "gut")]
    extra += [("x y", "a" + "o" * 1000), ("x y", "a" + "o" * 999)]
    for side in (0, 1):
        with open(files["train"][side], "a", newline="") as file:
            file.writelines(pair[side] + "\n" for pair in extra)
        for split in ("valid", "test"):
            with open(files[split][side], "a") as file:
                file.write("\n" if side else "a line without translation\n")
    settings = Settings("en", "de", max_tokens=20, max_ratio=3, merges=5, vocabulary_threshold=1)
    record = prepare(Corpus(files), settings, tmp_path / "data", workers=1)
    train = record["splits"]["train"]
    # one sentence in seven has two tokens on each side, and no pair has unequal lengths
    assert {rule: n for rule, n in train["removed"].items() if n} == {"empty": 2, "long": 2, "ratio": 1}
    assert train["read"] == 67 and train["kept"] == 62
    # dev and test are never cleaned
    assert record["splits"]["valid"]["kept"] == 13 and record["splits"]["test"]["kept"] == 14


def test_line_breaks_inside_lines_shift_no_line(quick, tmp_path):
    """B04, through the whole text pipeline."""
    files = small(tmp_path / "raw", train=300)
    for side, at in ((0, 2), (1, 3)):
        lines = files["train"][side].read_text().split("\n")[:-1]
        lines = [f"n{i} " + line for i, line in enumerate(lines)]
        lines[at] = "\r".join(lines[at].split(" ")) + "\x85\u2028\x0b\x1c end\r"
        files["train"][side].write_bytes("".join(line + "\n" for line in lines).encode())
    settings = Settings("en", "de", max_ratio=100, merges=10, vocabulary_threshold=1)
    record = prepare(Corpus(files), settings, tmp_path / "data", workers=2)
    assert record["splits"]["train"]["kept"] == 300
    for lang in ("en", "de"):
        lines = (tmp_path / "data" / "text" / f"train.{lang}").read_bytes().decode().split("\n")
        assert [line.split()[0] for line in lines[:-1]] == [f"n{i}" for i in range(300)]


def test_special_symbols_and_bpe_marks_in_the_text_are_escaped(quick, tmp_path):
    files = small(tmp_path / "raw")
    wild = "<unk> a@@ @@b &amp; ||| </s> @@\t<pad> \u00a0 x"
    for side in (0, 1):
        with open(files["train"][side], "a") as file:
            file.writelines([wild + "\n"] * 5)
    for tokeniser in ("moses", "none"):
        settings = Settings("en", "de", tokeniser=tokeniser, merges=10, vocabulary_threshold=1)
        prepare(Corpus(files), settings, tmp_path / tokeniser, workers=1)
        for path in (tmp_path / tokeniser / "text").iterdir():
            words = set(path.read_text().split())
            assert not words & {"<unk>", "</s>", "<pad>", "<s>"} and not any("@@" in w for w in words)


@pytest.mark.parametrize(
    "spoil, message",
    [
        (lambda f: f["train"][1].write_text("one line\n"), r"train.de has 1 lines, .*train.en has 60"),
        (lambda f: f["valid"][0].write_bytes(b"\xff\n" * 12), "line 1: not UTF-8"),
        (lambda f: f["test"][0].unlink(), "test.en: no such file"),
        (lambda f: f["train"][0].write_text("\n" * 60), "no pair is left of the 60"),
        (lambda f: [path.write_text("a\n" * 60) for path in f["train"]], "no word of two letters"),
        (lambda f: f["test"][0].write_text(" ".join("abcd" * 1100) + "\n" * 13), "test, line 1: more pieces"),
    ],
)
def test_bad_input_is_named_and_leaves_no_files(quick, tmp_path, spoil, message):
    files = small(tmp_path / "raw")
    spoil(files)
    with pytest.raises(InputError, match=message):
        prepare(Corpus(files), SETTINGS, tmp_path / "out" / "data", workers=1)
    left = list((tmp_path / "out").iterdir()) if (tmp_path / "out").exists() else []
    assert left == []


def test_expected_numbers_of_pairs_are_checked(quick, tmp_path):
    files = small(tmp_path / "raw")
    with pytest.raises(InputError, match="60 pairs, 61 are expected"):
        prepare(Corpus(files, {"train": 61}), SETTINGS, tmp_path / "data", workers=1)


def test_a_folder_with_other_files_is_not_overwritten(quick, tmp_path):
    files = small(tmp_path / "raw")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "thesis.tex").write_text("x")
    with pytest.raises(InputError, match="was not made by `rela prepare`"):
        prepare(Corpus(files), SETTINGS, tmp_path / "data")
    assert [p.name for p in (tmp_path / "data").iterdir()] == ["thesis.tex"]


def test_files_of_an_interrupted_run_are_replaced(quick, tmp_path):
    files = small(tmp_path / "raw")
    prepare(Corpus(files), SETTINGS, tmp_path / "data", workers=1)
    checksums = DataFolder(tmp_path / "data").outputs
    partial = tmp_path / ".data.partial"
    shutil.copytree(tmp_path / "data" / "text", partial / "text")
    (partial / "text" / "train.en").write_text("torn")
    shutil.rmtree(tmp_path / "data")
    prepare(Corpus(files), SETTINGS, tmp_path / "data", workers=1)
    assert DataFolder(tmp_path / "data").outputs == checksums and not partial.exists()


@pytest.mark.parametrize(
    "options, message",
    [
        (dict(source_lang="en", target_lang="en"), "both en"),
        (dict(source_lang="../x", target_lang="en"), "--source-lang"),
        (dict(source_lang="en", target_lang="de", tokeniser="spacy"), "--tokeniser spacy"),
        (dict(source_lang="en", target_lang="de", merges=0), "--merges 0"),
        (dict(source_lang="en", target_lang="de", max_ratio=0.5), "--max-ratio 0.5"),
    ],
)
def test_invalid_settings_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        Settings(**options)


def test_the_command_prepares_paths_with_spaces(tmp_path):
    small(tmp_path / "raw folder")
    arguments = ["prepare", "-s", "en", "-t", "de", "--output", tmp_path / "my data", "--merges", 10]
    arguments += ["--vocabulary-threshold", 1]
    for split in SPLITS:
        arguments += [f"--{split}", tmp_path / "raw folder" / split]
    result = run_rela(*arguments, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "train: 60 of 60 pairs" in result.stdout and "$ fairseq-preprocess" in result.stdout
    assert not [path for path in tmp_path.iterdir() if path.suffix == ".log"]
    assert not (tmp_path / "my data" / "preprocess.log").exists()  # it names folders and times
    record = json.loads((tmp_path / "my data" / "prepare.json").read_text())
    assert record["outputs"]["bpecodes"] == sha256(tmp_path / "my data" / "bpecodes")
    assert "already prepared" in run_rela(*arguments, cwd=tmp_path).stdout


def test_two_processes_cannot_make_the_same_folder(quick, tmp_path):
    files = small(tmp_path / "raw")
    busy = pytest.raises(InputError, match="is being made by another process")
    with only_process(tmp_path / "data"), busy:
        prepare(Corpus(files), SETTINGS, tmp_path / "data", workers=1)
    assert prepare(Corpus(files), SETTINGS, tmp_path / "data", workers=1)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["data", "raw"]


def test_a_comma_in_the_path_at_which_fairseq_preprocess_splits_changes_nothing(tmp_path):
    files = small(tmp_path / "raw")
    records = [prepare(Corpus(files), SETTINGS, tmp_path / name / "data", workers=1) for name in ("a,b", "plain")]
    assert records[0]["outputs"] == records[1]["outputs"]


@pytest.mark.parametrize("content", ["[]", "{}", '{"settings": {}}', "{"])
def test_a_malformed_record_is_refused(content, tmp_path):
    (tmp_path / "prepare.json").write_text(content)
    with pytest.raises(InputError, match="prepare.json: not"):
        DataFolder(tmp_path)


def test_repeated_pairs_are_dropped_if_requested(quick, tmp_path):
    files = small(tmp_path / "raw")
    for side in (0, 1):
        lines = files["train"][side].read_text().splitlines()
        # a repeated pair with another space, and a repeated source with a new target, which is kept
        more = [lines[3].replace(" ", "  "), ["neu.", lines[5]][side - 1]]
        files["train"][side].write_text("".join(line + "\n" for line in lines + more))
    settings = Settings("en", "de", merges=10, vocabulary_threshold=1, remove_duplicates=True)
    record = prepare(Corpus(files), settings, tmp_path / "data", 1)
    lines = [tuple(read_lines(tmp_path / "data" / "text" / f"train.{lang}")) for lang in ("en", "de")]
    pairs = list(zip(*lines))
    assert len(set(pairs)) == len(pairs) == record["splits"]["train"]["kept"]
    assert record["splits"]["train"]["removed"]["duplicate"] == 62 - len(pairs) > 0


def test_training_pairs_with_too_many_pieces_are_removed_from_text_and_pieces(quick, tmp_path):
    files = small(tmp_path / "raw")
    settings = Settings("en", "de", merges=1, vocabulary_threshold=1, max_pieces=12)
    record = prepare(Corpus(files), settings, tmp_path / "data", 2)
    counts = record["splits"]["train"]
    assert counts["removed"]["long in pieces"] > 0 and counts["kept"] + counts["removed"]["long in pieces"] == 60
    for lang in ("en", "de"):
        text = list(read_lines(tmp_path / "data" / "text" / f"train.{lang}"))
        pieces = list(read_lines(tmp_path / "data" / "bpe" / f"train.{lang}"))
        assert [line.replace("@@ ", "") for line in pieces] == text and len(text) == counts["kept"]
        assert max(len(line.split()) for line in pieces) <= 12
    # dev and test are never cleaned
    assert record["splits"]["test"]["kept"] == 13
    with pytest.raises(InputError, match="every pair has more than 1 pieces"):
        prepare(Corpus(files), Settings("en", "de", merges=1, vocabulary_threshold=1, max_pieces=1), tmp_path / "d")


def test_an_unexpected_number_of_remaining_pairs_is_an_error(quick, tmp_path):
    files = small(tmp_path / "raw")
    prepare(Corpus(files, kept=Expected(58, 0.05)), SETTINGS, tmp_path / "data", 1)
    with pytest.raises(InputError, match="60 pairs are left after cleaning .*, 50 give or take 5.0% are expected"):
        prepare(Corpus(files, kept=Expected(50, 0.05)), SETTINGS, tmp_path / "other", 1)


def test_truecasing_is_learnt_from_the_training_text_and_applied_to_all(quick, tmp_path):
    files = small(tmp_path / "raw")
    for pair in files.values():
        for path in pair:
            lines = [f"{line.capitalize()[:-1]} ab Zab." for line in path.read_text().splitlines()]
            path.write_text("".join(line + "\n" for line in lines))
    settings = Settings("en", "de", merges=10, vocabulary_threshold=1, truecase=True)
    prepare(Corpus(files), settings, tmp_path / "data", 2)
    first = {line.split()[0] for line in read_lines(tmp_path / "data" / "text" / "test.en")}
    # these are in lower case inside sentences
    assert first <= {"ab", "bab", "cab", "dab"}
    assert {line.split()[-2] for line in read_lines(tmp_path / "data" / "text" / "train.de")} == {"Zab"}
    assert list(DataFolder(tmp_path / "data").segment(read_lines(files["test"][0]))) == list(
        read_lines(tmp_path / "data" / "bpe" / "test.en")
    )
    # the raw reference keeps its case
    assert (tmp_path / "data" / "raw" / "test.de").read_bytes() == files["test"][1].read_bytes()


def test_an_already_tokenised_split_is_not_tokenised_again(quick, tmp_path):
    files = small(tmp_path / "raw")
    for path in files["train"]:
        path.write_text("".join(f"x &amp; y ##AT##-##AT## z ca. {line}\n" for line in path.read_text().splitlines()))
    settings = Settings("en", "de", merges=10, vocabulary_threshold=1, tokenised=["train"])
    prepare(Corpus(files), settings, tmp_path / "data", 1)
    assert all(line.startswith("x &amp; y @-@ z ca. ") for line in read_lines(tmp_path / "data" / "text" / "train.en"))
    assert all(line.endswith(" .") for line in read_lines(tmp_path / "data" / "text" / "test.en"))


def test_pieces_that_are_not_in_the_dictionary_are_counted(corpus, tmp_path):
    files = {split: [corpus / f"{split}.{lang}" for lang in ("xa", "xb")] for split in SPLITS}
    odd = tmp_path / "test.xa"
    odd.write_text("".join(f"Ω{line}\n" for line in read_lines(corpus / "test.xa")), encoding="utf-8")
    files["test"][0] = odd
    settings = Settings("xa", "xb", merges=50, vocabulary_threshold=8)
    record = prepare(Corpus({k: tuple(v) for k, v in files.items()}), settings, tmp_path / "data", 2)
    assert record["splits"]["test"]["unknown"]["xa"] > 0.01 and record["splits"]["valid"]["unknown"]["xa"] == 0
    assert "unknown pieces: xa" in prepare_module.describe(record)


def test_a_killed_worker_is_an_error_and_leaves_no_files(quick, tmp_path, monkeypatch):
    files = small(tmp_path / "raw", train=3000)
    monkeypatch.setattr(clean, "why_removed", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
    with pytest.raises(InputError, match="was killed, perhaps because memory ran out"):
        prepare(Corpus(files), SETTINGS, tmp_path / "data", 2)
    assert [path.name for path in tmp_path.iterdir()] == ["raw"]


def test_lines_of_a_subset_are_copied(quick, tmp_path):
    files = small(tmp_path / "raw")
    (tmp_path / "test.few.lines").write_text("3\n1\n")
    prepare(Corpus(files, subsets={"few": tmp_path / "test.few.lines"}), SETTINGS, tmp_path / "data", 1)
    assert (tmp_path / "data" / "raw" / "test.few.lines").read_text() == "3\n1\n"
    assert "raw/test.few.lines" in DataFolder(tmp_path / "data").outputs


@pytest.mark.parametrize("content", ["3\n13\n", "3\n-1\n", "3\n3\n", "3\n\n", "3\n\u0663\n", "3\nx\n", ""])
def test_impossible_lines_of_a_subset_are_refused(quick, tmp_path, content):
    """-1 would silently select the last line."""
    files = small(tmp_path / "raw")
    (tmp_path / "test.few.lines").write_text(content)
    with pytest.raises(
        InputError, match="test.few.lines(, line 2: .* is repeated or not the number of a test line|: no lines)"
    ):
        prepare(Corpus(files, subsets={"few": tmp_path / "test.few.lines"}), SETTINGS, tmp_path / "data", 1)
    assert not (tmp_path / "data").exists()


def test_full_width_letters_become_ascii_only_if_requested(quick, tmp_path):
    files = small(tmp_path / "raw")
    for path in files["train"]:
        path.write_text("".join(f"ＡＢｃ１， {line}\n" for line in path.read_text().splitlines()), "utf-8")
    wide = Settings("en", "de", merges=10, vocabulary_threshold=1, normalise_width=True)
    for name, settings, word in (("as it is", SETTINGS, "ＡＢｃ１"), ("ascii", wide, "ABc1")):
        record = prepare(Corpus(files), settings, tmp_path / name, 1)
        lines = list(read_lines(tmp_path / name / "text" / "train.en"))
        assert lines and all(line.split()[0] == word for line in lines)
        # the default gives the record of versions without the setting, whose folders stay valid
        assert record["settings"].get("normalise_width") == (True if settings is wide else None)
        assert prepare(Corpus(files), settings, tmp_path / name, 1) == record
        assert next(DataFolder(tmp_path / name).segment(["ＡＢｃ１"])).replace("@@ ", "") == word
    with pytest.raises(InputError, match="was prepared from other files or settings"):
        prepare(Corpus(files), SETTINGS, tmp_path / "ascii", 1)
    with pytest.raises(InputError, match="--normalise-width 'yes': must be true or false"):
        Settings("en", "de", normalise_width="yes")


def test_many_pairs_removed_by_the_ratio_rule_give_a_hint(quick, tmp_path):
    files = small(tmp_path / "raw")
    without_spaces = "我们今天去了北京"
    lines = list(read_lines(files["train"][1]))
    files["train"][0].write_text("a b c d e f g h i j.\n" * 60)
    for many, hinted in ((20, True), (2, False)):
        files["train"][1].write_text(
            "".join(f"{without_spaces}\n" for _ in range(many)) + "a b c.\n" * (60 - many), "utf-8"
        )
        settings = Settings("en", "zh", tokeniser="none", merges=10, vocabulary_threshold=1)
        record = prepare(Corpus(files), settings, tmp_path / f"data{many}", 1)
        assert record["splits"]["train"]["removed"]["ratio"] == many
        hints = [line for line in prepare_module.describe(record).splitlines() if line.startswith("warning: the ratio")]
        assert len(hints) == hinted
        if hinted:
            assert "removed 33% of the training pairs" in hints[0] and "jieba" in hints[0]
    files["train"][1].write_text(f"{without_spaces}\n" * len(lines), "utf-8")
    with pytest.raises(InputError, match=r"no pair is left of the 60 in .*; the ratio rule removed 100% of"):
        prepare(Corpus(files), settings, tmp_path / "none", 1)
