"""fairseq's own commands with a language model: binarise, train, evaluate, sample and analyse, as a user would."""

import json
import re

import pytest
from conftest import ROOT, run_fairseq, run_rela

from fairseq_rela import safe_loading

pytestmark = pytest.mark.slow

USER_DIR = ("--user-dir", ROOT / "fairseq_rela")
SIZES = ("--decoder-layers", 1, "--decoder-embed-dim", 16, "--decoder-ffn-embed-dim", 32)


def ok(result):
    assert result.returncode == 0, (result.stdout + result.stderr)[-3000:]
    return result.stdout + result.stderr


def perplexity(lines, checkpoint, *options):
    """Return the perplexity that fairseq-eval-lm prints for the test set."""
    printed = ok(run_fairseq("eval_lm", lines, *USER_DIR, "--path", checkpoint, "--cpu", *options))
    return float(re.search(r"Perplexity: ([\d.]+)", printed).group(1))


def test_a_language_model_from_text_to_samples(corpus, tmp_path):
    """Train by flags (softmax) and by Hydra (rela_g); evaluate, sample, and analyse both."""
    data = tmp_path / "LM"
    prefixes = [part for split in ("train", "valid", "test") for part in (f"--{split}pref", corpus / f"{split}.xb")]
    ok(run_fairseq("preprocess", "--only-source", *prefixes, "--destdir", data, "--workers", 1))
    flags = ("--task", "language_modeling", "--tokens-per-sample", 32, "--arch", "transformer_lm_rela_tiny", *SIZES)
    training = ("--max-tokens", 640, "--max-update", 6, "--optimizer", "adam", "--lr", "1e-3", "--cpu")
    softmax, rela_g = tmp_path / "softmax", tmp_path / "rela_g"
    ok(run_fairseq("train", data, *USER_DIR, *flags, "--attention", "softmax", *training, "--save-dir", softmax))
    overrides = ["task.tokens_per_sample=32", "dataset.max_tokens=640", "optimization.max_update=6", "common.cpu=true"]
    overrides += ["model.decoder_layers=1", "model.decoder_embed_dim=16", f"checkpoint.save_dir={rela_g}"]
    ok(
        run_fairseq(
            *("hydra_train", "--config-dir", ROOT / "configs" / "lm", "--config-name", "language_model"),
            *(f"task.data={data}", *overrides),
            cwd=tmp_path,
        )
    )
    for folder, attention in ((softmax, "softmax"), (rela_g, "rela_g")):
        checkpoint = folder / "checkpoint_last.pt"
        state = safe_loading.load(checkpoint)
        assert state["cfg"]["model"]["attention"] == attention
        assert any("attn_norm" in name for name in state["model"]) is (attention == "rela_g")
        words = len((data / "dict.txt").read_text().splitlines())
        assert 1 < perplexity(data, checkpoint, "--tokens-per-sample", 32) < 2 * words
        prompt = tmp_path / "prompt"
        lines = (corpus / "test.xb").read_text().splitlines()[:2]
        prompt.write_text("".join(" ".join(line.split()[:3]) + "\n" for line in lines))
        sampling = ("--sampling", "--beam", 1, "--max-len-b", 12, "--cpu", "--path", checkpoint, *USER_DIR)
        sampling = (data, "--task", "language_modeling", "--tokens-per-sample", 32, *sampling)
        assert "H-0\t" in ok(run_fairseq("interactive", *sampling, "--input", prompt))
        assert "H-0\t" in ok(run_fairseq("generate", *sampling, "--max-len-b", 40, "--required-batch-size-multiple", 1))
        ok(run_rela("analyze", checkpoint, "--data", data, "--output", folder))
        printed = ok(run_rela("attention", checkpoint, "--data", data, "--output", folder / "attention.json"))
        assert re.search(rf"decoder +{attention}", printed) and "encoder" not in printed
        analysis = json.loads((folder / "analysis.json").read_text())
        assert analysis["sites"].keys() == {"decoder"} and analysis["attention"] == attention
    ok(run_rela("report", softmax, rela_g, "--output", tmp_path / "report.html"))
    assert "by position in the context" in (tmp_path / "report.html").read_text(encoding="utf-8")
