"""`rela align`, and the analysis of text files, gold sets and named heads, on a model trained for a few updates."""

import dataclasses
import json
import shutil

import pytest
import torch
from conftest import SHARED
from test_pairs import UNKNOWN, by_hand, write

from fairseq_rela import cli
from fairseq_rela.analysis import align as aligning
from fairseq_rela.analysis.aer import count, read_links
from fairseq_rela.analysis.analyze import analyze, analyze_text
from fairseq_rela.analysis.capture import capture, load_model
from fairseq_rela.analysis.goldset import open_gold_set
from fairseq_rela.data.folder import DataFolder
from fairseq_rela.errors import InputError
from fairseq_rela.experiment.experiment import Experiment
from fairseq_rela.experiment.reproduce import reproduce
from fairseq_rela.files.lines import read_lines
from fairseq_rela.report import heatmaps
from fairseq_rela.report.records import load_runs

SENTENCES = 40


@pytest.fixture(scope="module")
def checkpoint(trained):
    return trained / "checkpoint_last.pt"


@pytest.fixture(scope="module")
def texts(corpus, data, tmp_path_factory):
    """Return tokenised text with unknown words and empty lines, and its gold links (from 1, the target first)."""
    folder = tmp_path_factory.mktemp("texts")
    sides = [list(read_lines(data / "text" / f"test.{lang}"))[:SENTENCES] for lang in ("xa", "xb")]
    gold = list(read_lines(corpus / "test.align"))[:SENTENCES]
    sides[0][3] += f" {UNKNOWN}"
    sides[1][7] += f" {UNKNOWN}{UNKNOWN} {UNKNOWN}"
    gold[7] += f" 0p{len(sides[1][7].split()) - 1}"
    sides[0][5] = sides[1][5] = sides[1][6] = gold[5] = gold[6] = ""
    links = [[link.replace("p", "-p-").split("-") for link in line.split()] for line in gold]
    turned = [" ".join(f"{int(f[-1]) + 1}{'p' if len(f) > 2 else '-'}{int(f[0]) + 1}" for f in line) for line in links]
    files = [write(folder / f"new.{lang}", side) for lang, side in zip(("xa", "xb"), sides)]
    return (*files, write(folder / "xbxa.talp", turned))


def rela(*arguments):
    return cli.main([str(argument) for argument in arguments])


def load(path):
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.mark.slow
def test_analyze_on_text_files_equals_the_chain_by_hand(checkpoint, data, texts, tmp_path, capsys):
    source, target, gold = texts
    options = ["--gold", gold, "--gold-base", 1, "--gold-swapped"]
    hand = by_hand(data, (source, target), tmp_path / "hand")
    assert rela("analyze", checkpoint, "--data", hand, "--output", tmp_path / "a", *options) == 0
    capsys.readouterr()
    pair = ["--source", source, "--target", target, "--tokenised"]
    assert rela("analyze", checkpoint, "--data", data, "--output", tmp_path / "b", *pair, *options) == 0
    assert f"2 (0.6%) with pieces unknown to the model, such as {UNKNOWN}{UNKNOWN}" in capsys.readouterr().out
    one, other = (load(tmp_path / name / "analysis.json") for name in "ab")
    assert other.pop("text")["source"]["unknown"] == 1 and other["subset"] == "new.xa"
    assert {**one, "subset": "new.xa"} == other
    files = sorted((tmp_path / "a" / "alignments").iterdir())
    assert len(files) == 2 * 2 * 5 and load(tmp_path / "a" / "examples.json") == load(tmp_path / "b" / "examples.json")
    for path in files:
        assert path.read_bytes() == (tmp_path / "b" / "alignments" / path.name).read_bytes()
    assert other["alignment"]["sentences"] == SENTENCES
    assert load_runs([tmp_path / "b"])[0].subset == "new.xa"


@pytest.mark.slow
@pytest.mark.skipif(not (SHARED / "data").is_dir(), reason="the gold alignment is not in this project")
def test_the_gold_set_of_german_and_english_equals_the_chain_by_hand(tmp_path):
    """The 508 pairs are news; the codes, dictionaries and model come from captions."""
    raw = tmp_path / "raw"
    raw.mkdir()
    for split, name, number in (("train", "train", 2000), ("valid", "val", 100), ("test", "test_2016_flickr", 100)):
        for lang in ("en", "de"):
            lines = list(read_lines(SHARED / "data" / "multi30k" / f"{name}.{lang}.gz"))[:number]
            write(raw / f"{split}.{lang}", lines)
    data, run = tmp_path / "data", tmp_path / "run"
    splits = [word for split in ("train", "valid", "test") for word in (f"--{split}", raw / split)]
    sizes = ["--merges", 500, "--vocabulary-threshold", 1]
    assert rela("prepare", "-s", "en", "-t", "de", *splits, *sizes, "--output", data, "--workers", 1) == 0
    quick = ["--override", "optimization.max_update=2"]
    assert rela("train", "multi30k_en_de", "--data", data, "--save-dir", run, *quick) == 0
    pairs = [line.split(" ||| ") for line in read_lines(SHARED / "data" / "word_alignment" / "test.de-en")]
    source, target = (
        write(tmp_path / f"gold.{lang}", [pair[side] for pair in pairs]) for lang, side in (("en", 1), ("de", 0))
    )
    options = ["--gold", SHARED / "data" / "word_alignment" / "deen.talp", "--gold-base", 1, "--gold-swapped"]
    checkpoint = run / "checkpoint_last.pt"
    hand = by_hand(data, (source, target), tmp_path / "hand", ("en", "de"))
    assert rela("analyze", checkpoint, "--data", hand, "--output", tmp_path / "a", *options) == 0
    pair = ["--source", source, "--target", target, "--tokenised"]
    assert rela("analyze", checkpoint, "--data", data, "--output", tmp_path / "b", *pair, *options) == 0
    one, other = (load(tmp_path / name / "analysis.json") for name in "ab")
    assert other["text"]["target"]["unknown"] > 100  # news, not captions
    assert one["alignment"]["sentences"] == 508 and one["alignment"] == other["alignment"]
    assert one["sites"] == other["sites"] and one["words"] == other["words"]


def word_links(weights, source, target, first):
    """Return the links of one head by a loop; ``source`` and ``target`` are the word numbers of the pieces."""
    links = set()
    for word in sorted(set(target)):
        rows = [first + t for t, number in enumerate(target) if number == word]
        score = dict.fromkeys(sorted(set(source)), 0.0)
        for row in rows:
            for s, number in enumerate(source):
                score[number] += float(weights[row, s]) / len(rows)
        best = max(score, key=score.__getitem__)
        if score[best] > 0:
            links.add((best, word))
    return links


def test_links_and_gold_alignments_count_the_words_of_raw_files(checkpoint, corpus, data, tmp_path):
    """The full stop is part of the last word in the raw corpus, and a word of its own in the gold alignment."""
    texts, words = [], []
    for lang in ("xa", "xb"):
        texts.append(write(tmp_path / f"raw.{lang}", list(read_lines(corpus / f"test.{lang}"))[:SENTENCES]))
        pieces = [line.split() for line in read_lines(data / "bpe" / f"test.{lang}")][:SENTENCES]
        counts = [len(line.split()) for line in read_lines(texts[-1])]
        numbers = []
        for line, size in zip(pieces, counts):
            ends = [sum(not piece.endswith("@@") for piece in line[:i]) for i in range(len(line))]
            assert max(ends) == size  # the full stop
            numbers.append([min(end, size - 1) for end in ends])
        words.append(numbers)
    gold = []
    for line, source, target in zip(read_lines(corpus / "test.align"), *words):
        links = [map(int, link.split("-")) for link in line.split()]
        gold.append(" ".join(sorted({f"{min(s, max(source))}-{min(t, max(target))}" for s, t in links})))
    gold = write(tmp_path / "raw.align", gold)
    result = analyze_text(checkpoint, DataFolder(data), *texts, gold=gold)

    model, task = load_model(checkpoint, data)
    expected = {}
    for batch in capture(model, task, "test"):
        cross = [module for module in batch.modules if module.site == "cross"]
        for row, index in enumerate(batch.ids):
            for module in cross if index < SENTENCES else ():
                for head in range(4):
                    for kind, first in (("normal", 0), ("shifted", 1)):
                        weights = module.weights[row, head]
                        links = word_links(weights, words[0][index], words[1][index], first)
                        expected.setdefault((kind, module.layer, head), {})[index] = links
    wanted = read_links(read_lines(gold), "gold")
    for (kind, layer, head), links in expected.items():
        rate = count(wanted, [links[i] for i in range(SENTENCES)]).aer
        assert result["alignment"][kind]["layers"][layer]["heads"][head]["aer"] == pytest.approx(rate)
    with pytest.raises(InputError, match="outside of the sentences"):  # the gold alignment of the tokens
        analyze_text(
            checkpoint,
            DataFolder(data),
            *texts,
            gold=write(tmp_path / "t", list(read_lines(corpus / "test.align"))[:40]),
        )


def test_words_without_tokens_have_numbers_and_no_links(checkpoint, data, tmp_path):
    """A non-printing character is not a token; the words around it keep their numbers in the file."""
    plain = [write(tmp_path / f"plain.{lang}", ["damok so un", "so"]) for lang in ("xa", "xb")]
    odd = [write(tmp_path / f"odd.{lang}", ["\u200b damok \u200b so un \u200b", "so"]) for lang in ("xa", "xb")]
    numbers = [1, 3, 4]
    gold = write(tmp_path / "gold", ["1-1 2p5 5-0", "0-0"])
    one = analyze_text(checkpoint, DataFolder(data), *plain, links=True)
    other = analyze_text(checkpoint, DataFolder(data), *odd, gold=gold)
    assert other["text"]["source"]["lost"] == 3 and other["text"]["target"]["total"] == 7
    wanted = read_links(read_lines(gold), "gold")
    for name, (first, second) in one["links"].items():
        pairs = [map(int, link.split("-")) for link in first.split()]
        moved = [(numbers[s], numbers[t]) for s, t in pairs]
        assert other["links"][name] == [" ".join(f"{s}-{t}" for s, t in moved), second]
        kind, layer, head = name.split(".")
        entry = other["alignment"][kind]["layers"][int(layer[5:])]
        rate = entry["layer_attention"] if head == "mean" else entry["heads"][int(head[4:])]
        hypothesis = [moved, [tuple(map(int, link.split("-"))) for link in second.split()]]
        assert rate["aer"] == pytest.approx(count(wanted, hypothesis).aer)


def test_align_writes_the_links_of_one_head(checkpoint, data, texts, tmp_path, capsys):
    source, target, _ = texts
    pair = ["--source", source, "--target", target, "--tokenised"]
    analysis = analyze_text(checkpoint, DataFolder(data), source, target, True, links=True)
    assert rela("align", checkpoint, *pair, "--output", tmp_path / "links") == 0  # finds the data folder
    captured = capsys.readouterr()
    record = load(tmp_path / "links.json")
    lines = (tmp_path / "links").read_text().splitlines()
    assert lines == analysis["links"][record["head"]] and len(lines) == SENTENCES
    assert lines[5] == lines[6] == "" and record["rule"] == "association"
    assert record["links"] == sum(len(line.split()) for line in lines)
    assert record["head"] in captured.err and "2 (0.6%) with pieces unknown" in captured.err and not captured.out
    assert rela("align", checkpoint, *pair, "--data", data, "--head", "shifted.layer1.mean") == 0
    captured = capsys.readouterr()
    assert captured.out.splitlines() == analysis["links"]["shifted.layer1.mean"]
    for path in (source, target):
        write(tmp_path / path.name, list(read_lines(path))[:2])
    few = ["--source", tmp_path / source.name, "--target", tmp_path / target.name]
    assert rela("align", checkpoint, *few) == 0
    assert "warning: 2 pairs are too few" in capsys.readouterr().err


def test_the_reverse_model_chooses_the_head_it_agrees_with(checkpoint, data, texts, tmp_path, monkeypatch):
    """Of two heads in each direction, the second forward and the first backward head have the same links."""
    source, target, _ = texts
    back = tmp_path / "back"
    shutil.copytree(data, back)
    record = load(back / "prepare.json")
    record["settings"].update(source_lang="xb", target_lang="xa")
    (back / "prepare.json").write_text(json.dumps(record))
    forward = torch.tensor([[0, 0, -1], [2, 1, 0]])  # of target words
    backward = torch.tensor([[2, 1, 0], [-1, 0, 1]])  # of source words
    calls = []

    def positions(path, folder, first, second, *_):
        calls.append((folder.path, first, second))
        heads = backward if folder.path == back else forward
        return ["normal.layer0.head0", "normal.layer0.head1"], [heads], {"text": 1}

    monkeypatch.setattr(aligning, "_positions", positions)
    result = aligning.align(checkpoint, source, target, data, reverse=checkpoint, reverse_data=back)
    assert calls == [(data, source, target), (back, target, source)]
    assert result.lines == ["0-2 1-1 2-0"] and result.record["head"] == "normal.layer0.head1"
    assert (result.record["rule"], result.record["value"]) == ("agreement", 1.0)
    assert "head normal.layer0.head0 of the reverse model" in aligning.describe(result.record)
    with pytest.raises(InputError, match="has the languages xa-xb; give the data folder of a model for xb-xa"):
        aligning.align(checkpoint, source, target, data, reverse=checkpoint)


@pytest.mark.slow
def test_heat_maps_of_named_heads_and_sentences(checkpoint, data, texts, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    source, target, _ = texts
    command = ["analyze", checkpoint, "--data", data, "--source", source, "--target", target, "--tokenised"]
    names = ["cross.layer1.head2", "encoder.layer0.mean", "decoder.layer0.head0"]
    maps = [part for name in names for part in ("--heat-map", name)]
    assert rela(*command, "--output", tmp_path / "out", "--examples-of", "7,2", *maps) == 0
    files = {path.name: path.read_bytes() for path in (tmp_path / "out" / "heatmaps").iterdir()}
    assert set(files) == {f"sentence{i}.{name}.{kind}" for i in (2, 7) for name in names for kind in ("png", "svg")}
    examples = load(tmp_path / "out" / "examples.json")["sentences"]
    assert [sentence["id"] for sentence in examples] == [7, 2]
    assert UNKNOWN in "".join(examples[0]["target"]).replace("@@", "")
    drawn = []
    analysis = {**load(tmp_path / "out" / "analysis.json"), "examples": {"sentences": examples}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(heatmaps.plots, "draw_heat_maps", lambda maps, *axes: drawn.append(*maps))
        patch.setattr(heatmaps.plots, "render", lambda figure, kind: kind.encode())
        again = heatmaps.draw(analysis, list(map(heatmaps.parse_head, names)))
    assert set(again) == set(files)
    assert drawn[0].weights.tolist() == examples[0]["weights"]["cross"][1][2] and not drawn[0].causal
    mean = torch.tensor(examples[0]["weights"]["encoder"][0]).double().mean(0)
    assert torch.allclose(torch.as_tensor(drawn[1].weights), mean, atol=1e-6) and drawn[2].causal
    assert (drawn[0].queries, drawn[0].keys) == (examples[0]["target"], examples[0]["source"])
    assert rela(*command, "--output", tmp_path / "out") == 0  # the folder also holds the maps of the analysis
    assert not list((tmp_path / "out" / "heatmaps").iterdir())


def test_a_single_raw_pair_is_aligned(checkpoint, data, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    texts = [write(tmp_path / name, ["damok so."]) for name in ("one.xa", "one.xb")]
    command = ["analyze", checkpoint, "--data", data, "--source", texts[0], "--target", texts[1]]
    out = tmp_path / "out"
    assert rela(*command, "--output", out, "--examples-of", "0", "--heat-map", "cross.layer0.mean") == 0
    assert "with shuffled targets" not in capsys.readouterr().out
    assert (out / "heatmaps" / "sentence0.cross.layer0.mean.png").is_file()
    assert load(out / "analysis.json")["shuffled"] is None
    (run,) = load_runs([out])
    assert run.layers["cross"][0].shuffled is None and len(run.examples) == 1


TEXT = "analyze {C} --data {D} --output {O} --source {S} --target {T}"


@pytest.mark.parametrize(
    "arguments, words",
    [
        ("analyze {C} --data {D} --output {O} --source {S}", "the two sides of a text; give both"),
        ("analyze {C} --data {D} --output {O} --tokenised", "--tokenised is of the text of --source and --target"),
        ("analyze {C} --data {D} --output {O} --source {S} --target {T} --subset valid", "take the place of --subset"),
        ("analyze {C} --data {D} --output {O} --examples-of 0,x", "give numbers from 0 with commas between"),
        (TEXT + " --examples-of 40", "no such sentence; give 0 to 39"),
        ("analyze {C} --data {D} --output {O} --heat-map cross.layer0.mean", "--heat-map needs --examples-of"),
        ("analyze {C} --data {D} --output {O} --examples-of 1 --heat-map cross.0.1", "give SITE.layerL.headH"),
        (TEXT + " --examples-of 1 --heat-map cross.layer2.mean", "no such layer; give a layer of cross from 0 to 1"),
        (TEXT + " --examples-of 1 --heat-map cross.layer0.head4", "no such head; give a head from 0 to 3"),
        ("align {C} --source {S} --target {T} --output {O} --head layer0", "give a name such as normal.layer1.head3"),
        (
            "align {C} --source {S} --target {T} --output {O} --head normal.layer7.mean",
            "choose from normal.layer0.head0",
        ),
        ("align {C} --source {S} --target {T} --output {O} --reverse-data {D}", "--reverse-data needs --reverse"),
        ("align {C} --source {S} --target {T} --output {S}", "would be overwritten"),
        ("align {C} --source {T} --target {S} --output {O}", "are the two sides swapped"),
        ("align {C} --source {S} --target {S} --output {O}", "text of xb belongs here"),
        ("align {S} --source {S} --target {T} --output {O}", "not a checkpoint"),
        ("align {C} --source {S} --target {T} --data {O} --output {O}", "no prepare.json"),
        ("align {C} --source {S} --target {G} --output {O}/x", "must be of equal length"),
    ],
    ids=lambda text: text[-60:],
)
def test_wrong_arguments_are_refused(arguments, words, checkpoint, data, texts, tmp_path, capsys):
    short = write(tmp_path / "short", ["x"])
    places = {"C": checkpoint, "D": data, "S": texts[0], "T": texts[1], "G": short, "O": tmp_path / "out"}
    try:
        code = rela(*(part.format(**places) for part in arguments.split()))
    except SystemExit as error:
        code = error.code
    lines = capsys.readouterr().err.splitlines()
    assert code == 2 and len(lines) == 1 and words in lines[0], lines
    assert not [path for path in tmp_path.rglob("*") if path != short and path.is_file()]


# --- gold sets ---------------------------------------------------------------------------------------------------


def test_gold_sets_of_every_format_are_read(tmp_path):
    write(tmp_path / "test.de-en", ["ein Haus ||| a house", " ||| x", "ja ||| "])
    for name in ("deen.talp", "giza.deen.talp"):
        write(tmp_path / name, ["1-1 2p2", "", ""])
    work = tmp_path / "work"
    for languages in (("en", "de"), ("de", "en")):
        found = open_gold_set([tmp_path], languages, work)
        assert (found.links.name, found.base, found.swapped) == ("deen.talp", 1, languages == ("en", "de"))
        sides = {"de": ["ein Haus", "", "ja"], "en": ["a house", "x", ""]}
        assert [list(read_lines(path)) for path in (found.source, found.target)] == [sides[lang] for lang in languages]
    write(tmp_path / "t.en", ["a"])
    write(tmp_path / "t.de", ["b"])
    links = write(tmp_path / "links", ["0-0"])
    found = open_gold_set([links, tmp_path / "t.de", tmp_path / "t.en"], ("en", "de"), work)
    assert found == (
        tmp_path / "t.en",
        tmp_path / "t.de",
        links,
        0,
        False,
        [tmp_path / "t.en", tmp_path / "t.de", links],
    )
    # the text shows which side comes first where the name of the links does not
    assert open_gold_set([tmp_path / "test.de-en", links], ("en", "de"), work).swapped

    def refused(match, *paths, languages=("en", "de")):
        with pytest.raises(InputError, match=match):
            open_gold_set(paths, languages, work)

    refused("no such file or folder", tmp_path / "nothere")
    refused("give the sentences as one file NAME.en-fr", tmp_path, languages=("en", "fr"))
    refused("found: none", tmp_path / "t.de", tmp_path / "t.en")
    (tmp_path / "deen.talp").unlink()
    write(tmp_path / "fast_align.deen.talp", [""])
    refused("found: fast_align.deen.talp, giza.deen.talp", tmp_path)
    refused("line 1: not", write(tmp_path / "bad.de-en", ["no sides"]), links)


@pytest.mark.slow
def test_reproduce_accepts_a_gold_set(checkpoint, corpus, data, tmp_path, capsys):
    """The gold set has the text of the test set here, so both give the same results."""
    run = tmp_path / "synthetic" / "rela_g"
    run.mkdir(parents=True)
    shutil.copyfile(checkpoint, run / "average.pt")
    shutil.copytree(data, tmp_path / "synthetic" / "data")
    folder = tmp_path / "gold"
    folder.mkdir()
    sides = [list(read_lines(data / "text" / f"test.{lang}")) for lang in ("xa", "xb")]
    write(folder / "test.xb-xa", [f"{b} ||| {a}" for a, b in zip(*sides)])
    links = [[link.split("-") for link in line.split()] for line in read_lines(corpus / "test.align")]
    write(folder / "xbxa.talp", [" ".join(f"{int(t) + 1}-{int(s) + 1}" for s, t in line) for line in links])
    experiment = Experiment("synthetic", "rela_g", tmp_path, raw=corpus, gold_alignment=(folder,))
    reproduce(experiment, ["analyze"])
    analysis = load(run / "analysis.json")
    expected = analyze(run / "average.pt", data, gold=corpus / "test.align")
    for kind in ("normal", "shifted"):
        assert analysis["alignment"][kind] == expected["alignment"][kind]
    assert analysis["sites"] == expected["sites"] and analysis["gold"]["file"] == "xbxa.talp"
    for name, lines in expected["links"].items():
        assert (run / "alignments" / f"{name}.pharaoh").read_text().splitlines() == lines
    assert "0 (0.0%) with pieces unknown" in capsys.readouterr().out
    reproduce(experiment, ["analyze"])
    assert "already analysed" in capsys.readouterr().out
    write(folder / "xbxa.talp", [""] * 299 + ["1-1"])
    reproduce(experiment, ["analyze"])
    assert "already analysed" not in capsys.readouterr().out
    with pytest.raises(InputError, match="nothere: no such file or folder"):
        reproduce(dataclasses.replace(experiment, gold_alignment=(tmp_path / "nothere",)), ["analyze"])
