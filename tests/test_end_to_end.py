"""fairseq's own commands with the plugin, and the whole chain, run as by a user from another folder."""

import json
import re
import shutil
import sys

import pytest
import torch
from conftest import ROOT, run, run_fairseq, run_rela, train_arguments
from test_safe_loading import Hostile
from warm import WARM

from fairseq_rela import checkpoints, safe_loading
from fairseq_rela.compat import drops_last_batch
from fairseq_rela.experiment.naming import run_name
from fairseq_rela.experiment.tasks import task_names
from fairseq_rela.experiment.translation import read_hypotheses
from fairseq_rela.files.lines import read_lines
from fairseq_rela.models.layers import FUSED_PARAMETERS

pytestmark = pytest.mark.slow

USER_DIR = ("--user-dir", ROOT / "fairseq_rela")
PLUGIN_TASK = (*USER_DIR, "--task", "translation_rela")


def ok(result):
    assert result.returncode == 0, (result.stdout + result.stderr)[-3000:]
    return result


def one_line(result, *words, code=2):
    """Check that the command failed with one line on standard error that contains these words."""
    lines = result.stderr.strip().splitlines()
    assert result.returncode == code and len(lines) == 1, result.stderr[-2000:]
    assert all(word in lines[0] for word in words), lines[0]


@pytest.fixture(scope="module")
def averaged(trained):
    ok(run_rela("average", trained, "--last", 3, "--output", trained / "average.pt"))
    return trained / "average.pt"


def test_average_records_the_checkpoints_it_used(trained, averaged):
    record = json.loads(averaged.with_name("average.pt.json").read_text())
    assert [c["updates"] for c in record["checkpoints"]] == [8, 6, 4]
    models = [safe_loading.load(trained / c["file"])["model"] for c in record["checkpoints"]]
    got = safe_loading.load(averaged)["model"]
    for key, value in got.items():
        torch.testing.assert_close(value, sum(m[key] for m in models) / 3)


def generate(data, checkpoint, output, *options, cwd, task=PLUGIN_TASK):
    arguments = [data, *task, "--path", checkpoint, "--results-path", output, "--max-tokens", 2000, *options]
    return run_fairseq("generate", *arguments, cwd=cwd)


def test_generate_loses_no_line(data, trained, tmp_path):
    """B01: 300 sentences with fairseq's default batch sizes, which are multiples of 8."""
    ok(generate(data, trained / "checkpoint_last.pt", tmp_path, "--beam", 2, cwd=tmp_path))
    assert len(read_hypotheses(tmp_path / "generate-test.txt", 300)) == 300
    ok(generate(data, trained / "checkpoint_last.pt", tmp_path, "--beam", 2, "--batch-size", 7, cwd=tmp_path))
    assert len(read_hypotheses(tmp_path / "generate-test.txt", 300)) == 300


def test_generate_with_fairseqs_task_warns_about_lost_lines(data, trained, tmp_path):
    """The task of the command is used, not that of training."""
    task = (*USER_DIR, "--task", "translation")
    result = ok(generate(data, trained / "checkpoint_last.pt", tmp_path, "--batch-size", 7, cwd=tmp_path, task=task))
    ids = {line.split("\t")[0] for line in read_lines(tmp_path / "generate-test.txt") if line.startswith("H-")}
    assert ("drops the last batch" in result.stderr) == drops_last_batch()
    assert (len(ids) < 300) == drops_last_batch()


def test_the_gnmt_penalty_of_the_command_line_is_applied(data, trained, tmp_path):
    """Scores in the output have base 2: sum log2 p / ((5 + L) / 6)^0.6."""
    ok(generate(data, trained / "checkpoint_last.pt", tmp_path, "--gnmt-lenpen", 0.6, "--beam", 3, cwd=tmp_path))
    scores, positions = {}, {}
    for line in read_lines(tmp_path / "generate-test.txt"):
        columns = line.split("\t")
        if line.startswith("H-"):
            scores[columns[0][2:]] = float(columns[1])
        elif line.startswith("P-"):
            positions[columns[0][2:]] = [float(p) for p in columns[1].split()]
    assert len(scores) == 300
    for index, score in scores.items():
        p = positions[index]
        assert score == pytest.approx(sum(p) / ((5 + len(p)) / 6) ** 0.6, abs=1e-3 * len(p))


def test_interactive_translates_raw_text(corpus, data, trained, tmp_path):
    """The text is tokenised and segmented like the training data, so that every piece is known."""
    lines = list(read_lines(corpus / "test.xa"))[:3]
    (tmp_path / "in").write_text("".join(line + "\n" for line in lines))
    result = ok(
        run_fairseq(
            "interactive",
            *(data, *PLUGIN_TASK, "--path", trained / "checkpoint_last.pt", "--input", tmp_path / "in", "--beam", 1),
            *("--tokenizer", "rela_moses", "--bpe", "rela_bpe", "--bpe-codes", data / "bpecodes"),
            *("--source-lang", "xa", "--target-lang", "xb"),
            cwd=tmp_path,
        )
    )
    sources = [line.split("\t")[1] for line in result.stdout.splitlines() if line.startswith("S-")]
    assert sources == list(read_lines(data / "bpe" / "test.xa"))[:3]
    assert sum(line.startswith("D-") for line in result.stdout.splitlines()) == 3


def test_fairseq_validate_prints_a_loss(data, trained, tmp_path):
    arguments = [data, *PLUGIN_TASK, "--path", trained / "checkpoint_last.pt", "--valid-subset", "valid"]
    result = ok(run_fairseq("validate", *arguments, "--max-tokens", 1000, cwd=tmp_path))
    assert re.search(r"valid on 'valid' subset \| loss \d", result.stdout + result.stderr)


def test_a_missing_user_dir_gives_the_documented_error(data, trained, tmp_path):
    """B33: docs/troubleshooting.md explains fairseq's error message."""
    arguments = [data, "--task", "translation", "--path", trained / "checkpoint_last.pt"]
    result = run_fairseq("generate", *arguments, cwd=tmp_path)
    assert result.returncode != 0
    last = result.stderr.strip().splitlines()[-1]
    assert "Replacement index" in last or "KeyError" in last or "_name" in last
    assert "Replacement index" in (ROOT / "docs" / "troubleshooting.md").read_text()


def test_the_hub_interface_translates_raw_text(corpus, data, averaged, tmp_path):
    code = f"""{WARM}
import fairseq_rela
from fairseq_rela.models.transformer_rela import TransformerRelaModel
model = TransformerRelaModel.from_pretrained(
    {str(averaged.parent)!r}, "average.pt", {str(data)!r}, tokenizer="rela_moses", source_lang="xa", target_lang="xb",
    bpe="rela_bpe", bpe_codes={str(data / "bpecodes")!r}, gnmt_lenpen=0.6,
)
lines = [line.rstrip("\\n") for line in open({str(corpus / "test.xa")!r})][:5]
pieces = [model.src_dict.string(model.encode(line)) for line in lines]
for piece, text in zip(pieces, model.translate(lines, beam=4, max_len_a=1, max_len_b=50)):
    print(piece, text, sep="\\t")
"""
    result = ok(run(sys.executable, "-W", "ignore", "-c", code, cwd=tmp_path))
    rows = [line.split("\t") for line in result.stdout.splitlines() if "\t" in line]
    assert [row[0] for row in rows] == list(read_lines(data / "bpe" / "test.xa"))[:5]
    ok(run_rela("translate", data, "--checkpoint", averaged, "--output", tmp_path / "out"))
    assert [row[1] for row in rows] == list(read_lines(tmp_path / "out.txt"))[:5]


def test_translating_a_test_set_or_its_text_file_gives_the_same_lines(corpus, data, averaged, tmp_path):
    """There is one output line for each input line, in order, also for empty lines."""
    ok(run_rela("translate", data, "--checkpoint", averaged, "--output", tmp_path / "set", cwd=tmp_path))
    text = (corpus / "test.xa").read_text()
    (tmp_path / "in put.txt").write_text("\n" + text)
    result = run_rela(
        *("translate", data, "--checkpoint", averaged, "--output", tmp_path / "text"),
        *("--input", tmp_path / "in put.txt"),
        cwd=tmp_path,
    )
    assert "301 sentences" in ok(result).stdout
    for suffix in ("bpe", "tok", "txt"):
        of_set, of_text = (list(read_lines(tmp_path / f"{name}.{suffix}")) for name in ("set", "text"))
        assert len(of_set) == 300 and len(of_text) == 301 and of_text[1:] == of_set
    scores = run_rela(
        *("score", "--hypotheses", tmp_path / "set.bpe", "--reference", corpus / "test.xb", "-t", "xb"),
        *("--tokenised-reference", data / "text" / "test.xb"),
    )
    assert "sacreBLEU " in ok(scores).stdout and "tokenised BLEU " in scores.stdout


def test_a_line_that_is_too_long_is_named(data, averaged, tmp_path):
    """B08: fairseq leaves out long lines without an error."""
    (tmp_path / "in").write_text("a b.\n" + "damok " * 1100 + "\n")
    result = run_rela(
        "translate", data, "--checkpoint", averaged, "--output", tmp_path / "o", "--input", tmp_path / "in"
    )
    one_line(result, "in, line 2:", "shorten or split")
    assert not (tmp_path / "o.txt").exists()


COUNT_CALLS = (
    f"{WARM}"
    + """
import sys
sys.argv[0] = "count"
import torch, fairseq_rela
from fairseq.modules import MultiheadAttention
from fairseq_rela.attention import VariantAttention
from fairseq_rela.analysis.capture import load_model
from pathlib import Path
calls = {"variant": 0, "fused": 0, "encoder layers": 0}
functional = torch.nn.functional.multi_head_attention_forward
fused = getattr(torch, "_transformer_encoder_layer_fwd", None)
def count(name, function):
    def counted(*args, **kwargs):
        calls[name] += 1
        return function(*args, **kwargs)
    return counted
torch.nn.functional.multi_head_attention_forward = count("fused", functional)
torch._transformer_encoder_layer_fwd = count("fused", fused)
model, task = load_model(Path(sys.argv[1]), Path(sys.argv[2]))
model.encoder.layers[0].register_forward_hook(count("encoder layers", lambda *_: None))
for module in model.modules():
    if isinstance(module, VariantAttention):
        module.register_forward_hook(count("variant", lambda *_: None))
task.load_dataset("test")
batches = task.get_batch_iterator(task.dataset("test"), max_sentences=5, max_positions=(1024, 1024))
batch = next(batches.next_epoch_itr())
class Args: beam = 2; max_len_a = 0; max_len_b = 6; lenpen = 1
with torch.no_grad():
    hypotheses = task.build_generator([model], Args()).generate([model], batch)
steps = max(len(h["tokens"]) for hs in hypotheses for h in hs)
print(calls["variant"], calls["fused"], calls["encoder layers"], steps)
"""
)


@pytest.mark.parametrize("attention", ["rela_g", "entmax15", "softmax"])
def test_a_new_process_decodes_with_the_trained_attention(attention, data, tmp_path):
    """B02, B03: the calls in decoding are counted after loading from a file."""
    flags = ["--attention", attention, "--max-update", 1, "--disable-validation"]
    ok(run_fairseq("train", *train_arguments(data, tmp_path), *flags, cwd=tmp_path))
    checkpoint = tmp_path / "checkpoint_last.pt"
    assert safe_loading.load(checkpoint)["cfg"]["model"]["attention"] == attention
    result = ok(run(sys.executable, "-W", "ignore", "-c", COUNT_CALLS, checkpoint, data, cwd=tmp_path))
    variant, fused, encoder, steps = map(int, result.stdout.split()[-4:])
    assert encoder == 1 and steps >= 2
    if attention == "softmax":
        assert variant == 0 and fused == 2  # the encoder's two layers; decoder steps use fairseq's own code
    else:
        assert fused == 0 and variant == 2 + 2 * 2 * steps  # encoder, and both attentions of each decoder step


def test_a_softmax_transformer_starts_a_rela_model(data, tmp_path):
    softmax, rela = tmp_path / "softmax", tmp_path / "rela"
    small = ["--encoder-layers", 2, "--decoder-layers", 2, "--max-update", 2, "--disable-validation"]
    for side in ("encoder", "decoder"):
        small += [f"--{side}-embed-dim", 128, f"--{side}-ffn-embed-dim", 256, f"--{side}-attention-heads", 4]
    ok(run_fairseq("train", *train_arguments(data, softmax, "transformer"), *small, cwd=tmp_path))
    flags = ["--finetune-from-model", softmax / "checkpoint_last.pt", "--max-update", 1, "--lr", "1e-30"]
    result = ok(run_fairseq("train", *train_arguments(data, rela), *flags, "--disable-validation", cwd=tmp_path))
    fresh = [line for line in (result.stdout + result.stderr).splitlines() if "keep their start values" in line]
    assert len(fresh) == 1 and "encoder.layers.0.self_attn.attn_norm.gate" in fresh[0]
    before, after = (safe_loading.load(f / "checkpoint_last.pt")["model"] for f in (softmax, rela))
    assert set(after) - set(before) == {key for key in after if "attn_norm" in key}
    # fairseq 0.12.2 saves a buffer that it never fills, and copies of the encoder's weights for a fused kernel
    kept = {key: value for key, value in before.items() if key in after and not key.endswith("_float_tensor")}
    assert all(torch.equal(after[key], value) for key, value in kept.items() if value.is_floating_point())
    assert all(any(f".{name}" in key for name in FUSED_PARAMETERS) for key in set(before) - set(after))


def hydra(task, data, save_dir, *overrides, cwd):
    return run_fairseq(
        "hydra_train",
        *("--config-dir", ROOT / "configs", "--config-name", task, f"task.data={data}"),
        *(f"checkpoint.save_dir={save_dir}", "optimization.max_update=1", "common.log_interval=1", *overrides),
        cwd=cwd,
    )


@pytest.mark.parametrize("task", task_names())
def test_every_task_trains_from_another_folder(task, data, tmp_path):
    """B36, B37: the user dir is found, paths are resolved, and nothing is written to the current folder."""
    ok(hydra(task, data, tmp_path / "run", "size=tiny", cwd=tmp_path))
    state = safe_loading.load(tmp_path / "run" / "checkpoint_last.pt")
    assert checkpoints.updates_of(state) == 1
    assert state["cfg"]["model"]["_name"] == "transformer_rela_tiny" and state["cfg"]["model"]["attention"] == "rela_g"
    assert state["cfg"]["generation"]["beam"] == 4 and state["cfg"]["task"]["gnmt_lenpen"] == 0.6
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


def test_a_sweep_trains_every_attention(data, tmp_path):
    save_dir = f"{tmp_path}/${{model.attention}}"
    ok(hydra("synthetic", data, save_dir, "attention=softmax,rela_g", "model.encoder_layers=1", "-m", cwd=tmp_path))
    for attention in ("softmax", "rela_g"):
        state = safe_loading.load(tmp_path / attention / "checkpoint_last.pt")
        assert state["cfg"]["model"]["attention"] == attention
        assert not any(key.startswith("encoder.layers.1") for key in state["model"])  # flat keys are used
        assert any("attn_norm" in key for key in state["model"]) == (attention == "rela_g")


@pytest.mark.parametrize(
    "override, words",
    [
        ("optimizer.adam_betas=[0.9,0.98]", None),  # B38: the form that works without quotes
        ("optimization.update_freq=[2]", None),
        ("model.attention_sites=[decoder,cross]", None),
        ("+model.decoder_layers_to_keep=[0]", None),
        ("model.attention=relu2", "--attention relu2: no such variant"),
        ("model.encoder_attention_heads=3", "--encoder-attention-heads 3 does not divide"),
        ("model.encoder_layer=3", "encoder_layer"),
    ],
)
def test_overrides_are_applied_or_refused(override, words, data, tmp_path):
    result = hydra("synthetic", data, tmp_path / "run", override, cwd=tmp_path)
    if words is None:
        ok(result)
    else:
        assert result.returncode != 0 and words in result.stderr
        assert "Traceback" not in result.stderr or "encoder_layer=" in override


def test_flags_are_applied_by_fairseq_train(data, tmp_path):
    """B05: encoder layers by flag, a preset's size, invalid values refused in one line with exit code 2."""

    def parameters(*flags):
        result = run_fairseq("train", *train_arguments(data, tmp_path), "--max-update", 1, "--no-save", *flags)
        found = re.search(r"num. shared model params: ([\d,]+)", result.stdout + result.stderr)
        return int(found.group(1).replace(",", ""))

    layer = 4 * 128**2 + 4 * 128 + 2 * 128 + 2 * 128 * 256 + 256 + 128 + 4 * 128
    quiet = "--disable-validation"
    assert parameters(quiet) - parameters(quiet, "--encoder-layers", 1) == layer
    result = run_fairseq("train", *train_arguments(data, tmp_path), "--attention", "relu2")
    assert result.returncode == 2 and "Traceback" not in result.stderr
    assert [line for line in result.stderr.splitlines() if "fairseq_rela: error: --attention relu2" in line]


@pytest.fixture
def hostile(tmp_path):
    """Return a folder of checkpoints that run code when unpickled, and the file that the code would make."""
    folder, mark = tmp_path / "hostile", tmp_path / "ran"
    folder.mkdir()
    torch.save({"model": {}, "args": None, "cfg": {}, "extra": Hostile(mark)}, folder / "checkpoint_last.pt")
    yield folder
    assert not mark.exists()


def test_a_hostile_checkpoint_is_refused_everywhere(hostile, data, tmp_path):
    evil = hostile / "checkpoint_last.pt"
    one_line(run_rela("attention", evil, "--data", data), "refused")
    one_line(run_rela("average", hostile, "--last", 1, "--output", tmp_path / "a.pt"), "refused")
    one_line(run_rela("translate", data, "--checkpoint", evil, "--output", tmp_path / "o"), "refused")
    assert generate(data, evil, tmp_path, cwd=tmp_path).returncode != 0
    assert run_fairseq("train", *train_arguments(data, hostile), "--max-update", 1).returncode != 0
    override = ("--override", f"checkpoint.finetune_from_model={evil}")
    one_line(run_rela("train", "synthetic", "--data", data, "--save-dir", tmp_path / "r", *override), "refused")


def test_restarts_resume_or_are_refused(data, tmp_path):
    """B22: a missing restore file, a truncated last checkpoint, changed settings, and a foreign folder."""
    run_dir = tmp_path / "run"

    def train(*overrides, save_dir=run_dir):
        quick = ("checkpoint.save_interval_updates=2", "dataset.disable_validation=true", *overrides)
        options = [part for override in quick for part in ("--override", override)]
        return run_rela("train", "synthetic", "--data", data, "--save-dir", save_dir, *options, cwd=tmp_path)

    one_line(train("checkpoint.restore_file=nothere.pt"), "nothere.pt: no such checkpoint")
    one_line(train("++checkpoint.restore_file=nothere.pt"), "nothere.pt: no such checkpoint")
    assert not run_dir.exists()

    four = "optimization.max_update=4"
    ok(train(four))
    assert "already trained" in ok(train(four)).stdout
    one_line(train("optimization.max_update=5"), "with other overrides")

    # as after a kill during the writing of checkpoint_last.pt
    (run_dir / "train.json").unlink()
    last = run_dir / "checkpoint_last.pt"
    last.write_bytes(last.read_bytes()[:1000])
    for path in run_dir.glob("checkpoint*.pt"):
        if path != last and checkpoints.updates_of(safe_loading.load(path)) >= 4:
            path.unlink()
    one_line(train("optimization.max_update=5"), "begun with other overrides")
    result = ok(train(four))
    assert re.search(r"damaged or missing; resuming from checkpoint\S+ at update [23]", result.stdout)
    assert (run_dir / "train.log").read_text().count("$ fairseq-hydra-train") == 2  # of both parts
    assert checkpoints.find(run_dir)[0].updates == 4

    foreign = tmp_path / "foreign"
    foreign.mkdir()
    shutil.copy(last, foreign / "checkpoint_last.pt")
    one_line(train(four, save_dir=foreign), "did not make")


def test_the_whole_chain_runs_and_a_second_run_reuses_it(tmp_path):
    """The command is scripts/reproduce.sh synthetic sparsemax with few updates, which makes its softmax model first."""
    overrides = ("optimization.max_update=60", "checkpoint.save_interval_updates=12", "lr_scheduler.warmup_updates=20")
    softmax = tmp_path / "my experiments" / "synthetic" / run_name("softmax", overrides)
    overrides += ("+start=softmax",)

    def chain(*stages):
        options = ("--root", tmp_path / "my experiments", "--workers", 2)
        options += tuple(word for override in overrides for word in ("--override", override))
        return run_rela("reproduce", "synthetic", "sparsemax", *stages, *options, cwd=tmp_path)

    first = ok(chain())
    assert [p.name for p in tmp_path.iterdir()] == ["my experiments"]
    run_dir = tmp_path / "my experiments" / "synthetic" / run_name("sparsemax", overrides)
    assert f"loading pretrained model from {softmax}/average.pt" in (run_dir / "train.log").read_text()
    scores = json.loads((run_dir / "score.json").read_text())
    assert scores["sentences"] == 300 and "version" in scores["signature"]
    assert re.search(r"sacreBLEU +\d+\.\d\d", first.stdout)
    attention = json.loads((run_dir / "attention.json").read_text())
    assert {site: entry["variants"] for site, entry in attention["sites"].items()} == {
        site: ["sparsemax"] for site in ("encoder", "decoder", "cross")
    }
    assert all(0 < entry["sparsity"] < 1 and entry["null_rate"] == 0 for entry in attention["sites"].values())
    analysis = json.loads((run_dir / "analysis.json").read_text())
    assert analysis["gold"]["file"] == "test.align" and analysis["alignment"]["sentences"] == 300
    assert {site: entry["sparsity"] for site, entry in analysis["sites"].items()} == pytest.approx(
        {site: entry["sparsity"] for site, entry in attention["sites"].items()}
    )
    average = json.loads((run_dir / "average.pt.json").read_text())
    assert [c["updates"] for c in average["checkpoints"]] == [60, 48, 36, 24, 12]
    assert average["missing_updates"] == []

    stamps = {path: path.stat().st_mtime_ns for path in run_dir.rglob("*") if path.name != "score.json"}
    second = ok(chain())
    for words in ("already prepared", "already trained", "already averaged", "already translated", "already analysed"):
        assert words in second.stdout
    assert {path: path.stat().st_mtime_ns for path in stamps} == stamps
    assert second.stdout.splitlines()[-9:] == first.stdout.splitlines()[-9:]

    # files that were changed by hand give an error or are made again
    pieces = (run_dir / "test.bpe").read_text()
    (run_dir / "test.bpe").write_text("junk" + pieces)
    one_line(chain("score"), "test.bpe has changed")
    (run_dir / "test.txt").unlink()
    ok(chain("translate", "score"))
    assert (run_dir / "test.bpe").read_text() == pieces and (run_dir / "test.txt").is_file()
    reference = tmp_path / "my experiments" / "synthetic" / "data" / "raw" / "test.xb"
    reference.write_text(reference.read_text().replace("ka", "ak"))
    one_line(chain("score"), "raw/test.xb is missing or has changed")
    (run_dir / "average.pt").unlink()
    one_line(chain("attention"), "run the stage average first")


def test_the_demo_learns(tmp_path):
    """In the run of scripts/demo.sh both models learn; ReLA-g is sparse and has the better alignment."""
    runs = [tmp_path / "synthetic" / name for name in ("softmax", "rela_g")]
    for run_dir in runs:
        result = ok(run_rela("reproduce", "synthetic", run_dir.name, "--root", tmp_path, timeout=900))
        assert json.loads((run_dir / "score.json").read_text())["bleu"] > 80
        assert "cross: attention that ran" in result.stdout
    softmax, rela = (json.loads((run_dir / "analysis.json").read_text()) for run_dir in runs)
    assert rela["sites"]["cross"]["sparsity"] > 0.3 and softmax["sites"]["cross"]["sparsity"] == 0
    result = ok(run_rela("report", *runs, "--output", tmp_path / "report.html"))
    page = (tmp_path / "report.html").read_text()
    assert "report.html: open this file in a browser" in result.stdout and (tmp_path / "report_figures").is_dir()
    for run_dir in runs:
        alignment = json.loads((run_dir / "analysis.json").read_text())["alignment"]
        assert f"{100 * alignment['normal']['best']['aer']:.1f} %" in page


def test_run_slurm_uses_hydras_launcher(data, tmp_path):
    """The job of run=slurm runs on this machine with submitit's local executor instead of Slurm."""
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher")
    overrides = [
        *("run=slurm", "hydra/launcher=submitit_local", "common.cpu=true", "size=tiny", "optimization.max_update=4"),
        *("distributed_training.distributed_world_size=1", "dataset.max_tokens=1000", "hydra.launcher.gpus_per_node=0"),
        *("checkpoint.save_interval_updates=2", "hydra.launcher.mem_gb=2", "hydra.launcher.cpus_per_task=2"),
    ]
    arguments = [word for override in overrides for word in ("--override", override)]
    run_dir = tmp_path / "a run"
    result = ok(run_rela("train", "synthetic", "--data", data, "--save-dir", run_dir, *arguments, cwd=tmp_path))
    assert "trained for 4 updates" in result.stdout
    assert safe_loading.load(run_dir / "checkpoint_last.pt")["cfg"]["model"]["attention"] == "rela_g"
    assert list((run_dir / "slurm").glob("*_log.out"))
