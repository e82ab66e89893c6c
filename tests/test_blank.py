"""A blank sentence stays blank, although the model alone would invent words for it."""

import argparse
from pathlib import Path

import pytest
import torch
from conftest import ROOT, make_model, make_task, run_fairseq
from fairseq.sequence_generator import SequenceGenerator
from fairseq.token_generation_constraints import pack_constraints
from test_tasks import GENERATION, sample, task_with

from fairseq_rela.data.folder import DataFolder
from fairseq_rela.errors import InputError
from fairseq_rela.experiment.decoding import load_decoding
from fairseq_rela.experiment.translation import translate
from fairseq_rela.files.lines import read_lines

WORDS, BLANK = 4, 1  # the row of the batch that is blank


def batch_and_model():
    task = task_with(words=WORDS)
    model = make_model(task=make_task(WORDS)).float()
    torch.manual_seed(0)
    torch.nn.init.normal_(model.decoder.output_projection.weight, std=0.1)
    batch = sample(WORDS)
    tokens = batch["net_input"]["src_tokens"]
    tokens[BLANK] = task.source_dictionary.pad()
    tokens[BLANK, -1] = task.source_dictionary.eos()
    batch["net_input"]["src_lengths"][BLANK] = 1
    return task, model, batch


def same(hypotheses, others):
    return [h["tokens"].tolist() for h in hypotheses] == [h["tokens"].tolist() for h in others]


@pytest.mark.parametrize("alignment", [None, "hard", "soft"])
@pytest.mark.parametrize("gnmt_lenpen", [None, 0.6])
def test_blank_sentences_stay_blank_and_the_others_are_unchanged(gnmt_lenpen, alignment):
    _, model, batch = batch_and_model()
    task = task_with(words=WORDS, gnmt_lenpen=gnmt_lenpen)
    generator = task.build_generator([model], argparse.Namespace(**GENERATION, print_alignment=alignment))
    invented = generator.generate([model], batch)
    assert len(invented[BLANK][0]["tokens"]) > 1  # the search alone invents words
    found = task.inference_step(generator, [model], batch)
    for row in range(3):
        assert len(found[row]) == 4
        assert row == BLANK or same(found[row], invented[row])
    for hypothesis in found[BLANK]:
        assert hypothesis["tokens"].tolist() == [task.target_dictionary.eos()]
        assert float(hypothesis["score"]) == 0 and hypothesis["positional_scores"].tolist() == [0]
        assert len(hypothesis["alignment"]) == 0


def test_a_batch_of_blank_sentences_stays_blank():
    task, model, batch = batch_and_model()
    eos = task.source_dictionary.eos()
    batch["net_input"] = {"src_tokens": torch.full((3, 1), eos), "src_lengths": torch.ones(3, dtype=torch.long)}
    generator = task.build_generator([model], argparse.Namespace(**GENERATION))
    assert [h["tokens"].tolist() for hs in task.inference_step(generator, [model], batch) for h in hs] == [[eos]] * 12


def test_words_of_prefixes_and_constraints_are_kept():
    """A blank row keeps its prefix or constraint; a blank row without them stays blank in such a batch."""
    task, model, batch = batch_and_model()
    invented = task.build_generator([model], argparse.Namespace(**GENERATION)).generate([model], batch)

    class Asked:  # fairseq's search itself fails with prefixes and constraints on a vocabulary of 4 words
        def generate(self, models, sample, prefix_tokens, constraints):
            return [list(hypotheses) for hypotheses in invented]

    eos, pad, word = task.target_dictionary.eos(), task.target_dictionary.pad(), torch.tensor([5])
    for options, kept in (
        ({"prefix_tokens": torch.tensor([[5, pad], [5, pad], [5, 6]])}, True),
        ({"prefix_tokens": torch.tensor([[5, pad], [eos, pad], [5, 6]])}, False),
        ({"constraints": pack_constraints([[], [word], []])}, True),
        ({"constraints": pack_constraints([[word], [], []])}, False),
    ):
        found = task.inference_step(Asked(), [model], batch, **options)
        assert same(found[BLANK], invented[BLANK]) is kept
        assert same(found[0], invented[0]) and same(found[2], invented[2])


def test_the_score_of_a_reference_for_a_blank_source_is_unchanged():
    task, model, batch = batch_and_model()
    batch["target"] = torch.full((3, 3), 5)
    batch["net_input"]["prev_output_tokens"] = torch.full((3, 3), 6)
    generator = task.build_generator([model], argparse.Namespace(**GENERATION, score_reference=True))
    assert not isinstance(generator, SequenceGenerator)
    assert task.inference_step(generator, [model], batch)[BLANK][0]["tokens"].tolist() == [5, 5, 5]


# blank lines, lines of spaces, characters that preprocessing removes, and lines with words
LINES = ["", "a b c", "  \t ", "\u200b", "\u3000", "a"]
BLANKS = (0, 2, 3, 4)


@pytest.mark.slow
def test_rela_translate_keeps_blank_lines(data, trained, tmp_path):
    (tmp_path / "in.xa").write_text("".join(line + "\n" for line in LINES), encoding="utf-8")
    decoding = load_decoding(beam=2)
    translate(DataFolder(data), trained / "checkpoint_last.pt", tmp_path / "out", decoding, source=tmp_path / "in.xa")
    for suffix in ("bpe", "tok", "txt"):
        lines = list(read_lines(tmp_path / f"out.{suffix}"))
        assert len(lines) == len(LINES) and [i for i, line in enumerate(lines) if not line] == list(BLANKS)


def test_rela_translate_refuses_an_output_without_a_name_and_a_missing_model(data, tmp_path):
    for output, message in ((Path("."), "--output .: give a name"), (tmp_path / "o", "x.pt: no such checkpoint")):
        with pytest.raises(InputError, match=message):
            translate(DataFolder(data), tmp_path / "x.pt", output, load_decoding())


def test_the_hub_interface_keeps_blank_lines(data, trained):
    from fairseq_rela.models.transformer_rela import TransformerRelaModel

    hub = TransformerRelaModel.from_pretrained(
        str(trained),
        checkpoint_file="checkpoint_last.pt",
        data_name_or_path=str(data),
        bpe="rela_bpe",
        bpe_codes=str(data / "bpecodes"),
        tokenizer="rela_moses",
        source_lang="xa",
        target_lang="xb",
    )
    output = hub.translate(LINES, beam=2)
    assert [i for i, line in enumerate(output) if not line] == list(BLANKS)
    assert hub.translate("") == ""
    assert hub.translate([""]) == [""]


@pytest.mark.slow
def test_fairseq_interactive_keeps_blank_lines(data, trained, tmp_path):
    (tmp_path / "in").write_text("".join(line + "\n" for line in LINES), encoding="utf-8")
    arguments = [data, "--user-dir", ROOT / "fairseq_rela", "--task", "translation_rela", "--cpu", "--beam", 2]
    arguments += ["--path", trained / "checkpoint_last.pt", "--input", tmp_path / "in", "--buffer-size", 8]
    arguments += ["--source-lang", "xa", "--target-lang", "xb", "--max-tokens", 1000, "--print-alignment", "hard"]
    arguments += ["--bpe", "rela_bpe", "--bpe-codes", data / "bpecodes", "--tokenizer", "rela_moses"]
    result = run_fairseq("interactive", *arguments)
    assert result.returncode == 0, result.stderr[-2000:]
    for prefix in ("H-", "D-"):
        output = [line.split("\t") for line in result.stdout.splitlines() if line.startswith(prefix)]
        assert [int(columns[0][2:]) for columns in output] == list(range(len(LINES)))
        assert [i for i, columns in enumerate(output) if not columns[2]] == list(BLANKS)
