"""Models with fewer heads: against zeroed heads in the full model, step by step, saved, loaded, and chosen by loops."""

import argparse
import json
import math
import sys

import pytest
import torch
from conftest import ROOT, make_dictionary, make_model, run
from fairseq import checkpoint_utils
from fairseq.data import indexed_dataset
from test_models import random_batch
from test_saved_config import config, load, saved, task_with_dictionaries

from fairseq_rela.analysis.aer import Gold
from fairseq_rela.analysis.capture import capture
from fairseq_rela.analysis.collectors.links import Links
from fairseq_rela.analysis.sentences import read_sentences
from fairseq_rela.attention import build_attention, count_heads, keep_heads
from fairseq_rela.cli import main
from fairseq_rela.data.folder import DataFolder
from fairseq_rela.errors import InputError
from fairseq_rela.experiment.decoding import load_decoding
from fairseq_rela.experiment.scoring import score
from fairseq_rela.experiment.translation import translate
from fairseq_rela.files.lines import read_lines
from fairseq_rela.files.records import read_json
from fairseq_rela.models.kept_heads import describe_heads, heads_of_layers, parse_heads
from fairseq_rela.models.transformer_rela import attention_modules
from fairseq_rela.pruning import text
from fairseq_rela.pruning.choice import Choice, choose, in_order
from fairseq_rela.pruning.heads import Head, list_heads, remove_heads
from fairseq_rela.pruning.importance import losses, null_rates
from fairseq_rela.threshold import ThresholdOptions

D, H = 16, 4
NORMS = ("relu_rmsnorm", "rela_g", "rela_g_layernorm")  # one variant for each norm
FEWER = "encoder=4,0 decoder=0,1 cross=3,0"


def make_attention(name, backend="auto", seed=0, **options):
    """An attention with gains, gates and biases that are not trivial, in float64."""
    torch.manual_seed(seed)
    module = build_attention(name, D, H, encoder_decoder_attention=True, backend=backend, **options)
    with torch.no_grad():
        for key, parameter in module.named_parameters():
            if not key.endswith("proj.weight"):
                parameter.uniform_(-1.0, 1.0)
    return module.double().eval()


def inputs(dtype=torch.float64):
    """Queries and keys, and a mask with padding on the left of the second sentence."""
    torch.manual_seed(3)
    query, key = torch.randn(5, 2, D, dtype=dtype), torch.randn(7, 2, D, dtype=dtype)
    return dict(query=query, key=key, value=key, key_padding_mask=torch.tensor([[False] * 7, [True] * 3 + [False] * 4]))


def with_zeroed(module, heads):
    """Zero the output of some heads, before the norm, by a hook on the module that reads it."""

    def hook(_, arguments):
        z = arguments[0].clone().unflatten(-1, (H, -1))
        z[..., heads, :] = 0
        return (z.flatten(-2), *arguments[1:])

    module.skip_embed_dim_check = True  # torch's softmax attention would not call out_proj
    reader = module.out_proj if getattr(module, "attn_norm", None) is None else module.attn_norm
    reader.register_forward_pre_hook(hook)
    return module


@pytest.mark.parametrize("kept", [(0, 2), (3,), ()])
@pytest.mark.parametrize("name", ["softmax", "relu", "entmax_alpha", *NORMS])
def test_removing_heads_equals_zeroing_their_outputs(name, kept):
    full = with_zeroed(make_attention(name), [head for head in range(H) if head not in kept])
    pruned = keep_heads(make_attention(name), kept)
    want, weights = full(**inputs(), need_head_weights=True)
    got, own = pruned(**inputs(), need_head_weights=True)
    torch.testing.assert_close(got, want, atol=1e-13, rtol=1e-12)
    if kept:
        torch.testing.assert_close(own, weights[list(kept)], atol=1e-13, rtol=1e-12)
    else:
        assert own.shape == (1, *weights.shape[1:]) and not own.any()
        assert torch.equal(got, full.out_proj.bias.expand_as(got))
    # the same by a kernel, and in two steps
    torch.testing.assert_close(pruned(**inputs(), need_weights=False)[0], want, atol=1e-13, rtol=1e-12)
    once = keep_heads(make_attention(name), sorted({*kept, 1}))
    twice = keep_heads(once, [sorted({*kept, 1}).index(head) for head in kept])
    torch.testing.assert_close(twice(**inputs())[0], want, atol=1e-13, rtol=1e-12)
    d_h, extra = D // H, int(name == "rela_g_layernorm" and bool(kept))
    assert pruned.out_proj.weight.shape == (D, len(kept) * d_h + extra) and count_heads(pruned) == len(kept)
    assert not kept or pruned.k_proj.weight.shape == (len(kept) * d_h, D)


@pytest.mark.parametrize("name", ["rela_g", "rela_g_threshold"])
@pytest.mark.parametrize("threshold", [dict(value=0.3), dict(target=0.7)])
def test_the_heads_that_stay_keep_their_thresholds(name, threshold):
    def attention():
        module = make_attention(name, threshold=ThresholdOptions(**threshold))
        if "threshold" in module.attn_weights._buffers:
            module.attn_weights.threshold.fill_(0.2)
        return module

    module = attention()
    expected, _ = with_zeroed(attention(), [1, 2])(**inputs())
    output, _ = keep_heads(module, (0, 3))(**inputs())
    torch.testing.assert_close(output, expected, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("dtype, error", [(torch.float32, 2e-6), (torch.float64, 1e-14)])
@pytest.mark.parametrize("name", NORMS)
def test_null_heads_go_with_unchanged_output(name, dtype, error):
    """The output is equal up to rounding: sums of d numbers, some of them 0, are added in another order."""
    module, other = (make_attention(name).to(dtype) for _ in range(2))
    for one in (module, other):
        with torch.no_grad():
            for head in (0, 3):  # all scores of these heads are -1
                rows = slice(head * 4, head * 4 + 4)
                one.q_proj.weight[rows], one.k_proj.weight[rows] = 0, 0
                one.q_proj.bias[rows], one.k_proj.bias[rows] = 1, -0.5
    before, weights = module(**inputs(dtype), need_head_weights=True)
    assert not weights[[0, 3]].any() and weights[1].any() and weights[2].any()
    after = keep_heads(other, (1, 2))(**inputs(dtype))[0]
    torch.testing.assert_close(after, before, atol=error, rtol=error)


@pytest.mark.parametrize("name", ["softmax", "rela_g", "rela_g_layernorm", "entmax_alpha"])
def test_a_pruned_model_equals_the_whole_one_with_zeroed_heads_step_by_step_too(name):
    # the hooks that zero heads are not called by a kernel
    whole, pruned = make_model(name, rela_backend="plain"), make_model(name)
    error = 1e-6 if name == "softmax" else 1e-10
    kept = parse_heads(FEWER)
    gone = [head for head in list_heads(whole) if head.number >= kept[head.site][head.layer]]
    remove_heads(pruned, gone)
    assert describe_heads(attention_modules(pruned)) == FEWER
    for site, modules in attention_modules(whole).items():
        for layer, module in enumerate(modules.values()):
            with_zeroed(module, list(range(kept[site][layer], H)))
    source, lengths, target = random_batch()
    with torch.no_grad():
        want = whole(source, lengths, target)[0]
        torch.testing.assert_close(pruned(source, lengths, target)[0], want, atol=error, rtol=error)
        # three hypotheses of the first sentence, which change places before the third step
        source, lengths, order = source[:1].repeat(3, 1), lengths[:1].repeat(3), torch.tensor([2, 0, 0])
        want = whole(source, lengths, target[order, :3])[0]
        encoded, state = pruned.encoder(source, lengths), {}
        for step in (1, 2):
            pruned.decoder(target[:, :step], encoder_out=encoded, incremental_state=state)
        pruned.decoder.reorder_incremental_state_scripting(state, order)
        got, extra = pruned.decoder(target[order, :3], encoder_out=encoded, incremental_state=state)
    torch.testing.assert_close(got[:, 0], want[:, 2], atol=error, rtol=error)
    assert extra["attn"][0].shape == (3, 1, source.size(1)) and extra["attn"][0].isfinite().all()


def test_a_pruned_model_trains_all_of_its_parameters():
    model = make_model("rela_g_layernorm", rela_heads=FEWER).train()
    source, lengths, target = random_batch()
    out = model(source, lengths, target)[0]
    (out * torch.randn_like(out)).sum().backward()
    assert [name for name, parameter in model.named_parameters() if parameter.grad is None] == []


# --- the option --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arch", ["transformer_rela", "transformer_rela_tiny"])
def test_the_option_is_set_by_flags_and_saved_with_the_layers_to_keep(arch):
    heads = "encoder=4,3,2,1 decoder=0,4,1 cross=1,0,2"
    cfg = config("--rela-heads", heads, arch=arch)
    model = task_with_dictionaries().build_model(cfg.model)
    assert describe_heads(attention_modules(model)) == heads
    state = saved(cfg, model)
    assert state["cfg"]["model"]["rela_heads"] == heads
    again = load(state, decoder_layers_to_keep="0,2")
    assert describe_heads(attention_modules(again)) == "encoder=4,3,2,1 decoder=0,1 cross=1,2"
    assert again.cfg.rela_heads == "encoder=4,3,2,1 decoder=0,1 cross=1,2"
    del state["cfg"]["model"]["rela_heads"]  # a checkpoint of an earlier version has all heads
    with pytest.raises(InputError, match="the checkpoint does not fit the model"):
        load(state)


@pytest.mark.parametrize(
    "text, message",
    [
        ("encoder", "give numbers, such as encoder=4,3 decoder=2,4 cross=0,4"),
        ("encoder=4,3 encoder=1,1", "give numbers, such as"),
        ("encoder=4,-1", "give numbers, such as"),
        ("self=4,3", "give numbers, such as"),
        ("encoder=4", "1 numbers for encoder, the model has 2 layers there"),
        ("cross=5,1", "decoder.layers.0.encoder_attn has 4 heads; give at most as many"),
    ],
)
def test_impossible_numbers_of_heads_are_refused(text, message):
    with pytest.raises(InputError, match=f"--rela-heads {text}: {message}"):
        make_model(rela_heads=text)


def test_a_layer_without_a_number_of_heads_cannot_be_kept():
    with pytest.raises(InputError, match="no number for cross layer 3, which is kept"):
        heads_of_layers("cross=1,2", "decoder", [3])


def test_a_norm_of_ones_own_is_refused():
    module = make_attention("rela_g")
    module.attn_norm = torch.nn.LayerNorm(D)
    with pytest.raises(InputError, match="the norm LayerNorm cannot do without some heads"):
        keep_heads(module, [0])


# --- the choice --------------------------------------------------------------------------------------------------

HEADS = [Head(site, layer, number) for site in ("encoder", "cross") for layer in (0, 1) for number in (0, 1)]


def test_heads_go_in_the_order_of_their_worth():
    values = dict(zip(HEADS, (0.5, 0.1, 1.0, 0.0, 0.99, 0.3, 0.2, 1.0)))
    assert [values[head] for head in in_order(HEADS, "null", 1, values)] == sorted(values.values(), reverse=True)
    assert [values[head] for head in in_order(HEADS, "loss", 1, values)] == sorted(values.values())
    draws = {tuple(in_order(HEADS, "random", seed, {})) for seed in range(9)}
    assert len(draws) == 9 and all(sorted(draw) == sorted(HEADS) for draw in draws)
    ties = {tuple(in_order(HEADS, "null", seed, dict.fromkeys(HEADS, 0.0))) for seed in range(9)}
    assert len(ties) == 9  # not always the encoder first
    assert set(choose(HEADS, Choice(), values, {})) == {HEADS[2], HEADS[7]}
    assert set(choose(HEADS, Choice(null_rate=0.99), values, {})) == {HEADS[2], HEADS[4], HEADS[7]}
    assert choose(HEADS, Choice(by="loss", remove=0.3), {}, values) == [HEADS[3], HEADS[1]]  # 2.4 of 8 heads


@pytest.mark.parametrize(
    "options, message",
    [
        (dict(by="size"), "--by size: choose one of null, loss, random"),
        (dict(remove=1.2), "--remove 1.2: give a share above 0 and at most 1"),
        (dict(null_rate=0.0), "--null-rate 0.0: give a share above 0"),
        (dict(remove=math.nan), "--remove nan: give a share above 0"),
        (dict(by="loss"), "--by loss needs the share of heads to remove"),
        (dict(null_rate=0.9, remove=0.5), "--null-rate goes with --by null, and without --remove"),
    ],
)
def test_wrong_choices_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        Choice(**options)


# --- the checkpoint ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    """A data folder as fairseq-preprocess writes it, with 9 random sentence pairs as valid and test set."""
    folder, generator = tmp_path_factory.mktemp("data"), torch.Generator().manual_seed(5)
    for lang in ("xa", "xb"):
        make_dictionary().save(str(folder / f"dict.{lang}.txt"))
        for subset in ("valid", "test"):
            stem = f"{folder}/{subset}.xa-xb.{lang}"
            builder = indexed_dataset.make_builder(f"{stem}.bin", impl="mmap", vocab_size=24)
            for length in range(3, 12):
                words = torch.randint(4, 24, (length,), generator=generator)
                builder.add_item(torch.cat((words, torch.tensor([2]))).int())
            builder.finalize(f"{stem}.idx")
    return folder


def write_checkpoint(path, pairs, attention="rela_g", null=()):
    """Write a checkpoint with some heads that are null on every query: site, layer and number of each."""
    cfg = config(arch="transformer_rela_tiny", attention=attention, encoder_layers=2, decoder_layers=2)
    cfg.task.data = str(pairs)
    torch.manual_seed(2)
    model = task_with_dictionaries().build_model(cfg.model)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "attn_norm" in name or name.endswith("proj.bias"):
                parameter.uniform_(-1.0, 1.0)
        for site, layer, number in null:
            module = list(attention_modules(model)[site].values())[layer]
            rows = slice(number * 4, number * 4 + 4)
            module.q_proj.weight[rows], module.k_proj.weight[rows] = 0, 0
            module.q_proj.bias[rows], module.k_proj.bias[rows] = 1, -1
    history = {"num_updates": 8, "optimizer_name": "FairseqAdam", "lr_scheduler_state": {}}
    torch.save(
        {**saved(cfg, model), "args": None, "optimizer_history": [history], "extra_state": {"train_iterator": {}}}, path
    )
    return path


def load_files(path, pairs):
    models, _, task = checkpoint_utils.load_model_ensemble_and_task([str(path)], arg_overrides={"data": str(pairs)})
    return models[0].eval(), task


NULL = [("encoder", 1, 0), ("decoder", 0, 3), *(("cross", 1, number) for number in range(H))]


@pytest.mark.parametrize("attention", NORMS)
def test_the_command_removes_null_heads_and_the_model_translates_as_before(attention, pairs, tmp_path, capsys):
    checkpoint, output = write_checkpoint(tmp_path / "model.pt", pairs, attention, NULL), tmp_path / "pruned.pt"
    assert main(["prune", str(checkpoint), "--data", str(pairs), "--output", str(output)]) == 0
    record = json.loads((tmp_path / "pruned.pt.json").read_text())
    removed = [(one["site"], one["layer"], one["head"]) for one in record["heads"] if one["removed"]]
    assert sorted(removed) == sorted(NULL) and len(record["heads"]) == 24
    assert record["rela_heads"] == "encoder=4,3 decoder=3,4 cross=4,0"
    assert record["loss"]["after"] == pytest.approx(record["loss"]["before"], abs=1e-6)
    printed = capsys.readouterr().out
    assert "6 of 24 heads removed, left: encoder=4,3 decoder=3,4 cross=4,0" in printed
    (whole, task), (pruned, _) = load_files(checkpoint, pairs), load_files(output, pairs)
    counts = [sum(parameter.numel() for parameter in model.parameters()) for model in (whole, pruned)]
    assert counts == [record["parameters"]["before"], record["parameters"]["after"]] and counts[0] > counts[1]
    task.load_dataset("test")
    sample = task.dataset("test").collater([task.dataset("test")[index] for index in range(9)])
    args = argparse.Namespace(beam=4, max_len_a=1, max_len_b=5, lenpen=1)
    found = [task.inference_step(task.build_generator([one], args), [one], sample) for one in (whole, pruned)]
    for old, new in zip(*found):
        assert [one["tokens"].tolist() for one in old] == [one["tokens"].tolist() for one in new]
        for one, two in zip(old, new):
            torch.testing.assert_close(two["positional_scores"], one["positional_scores"], atol=1e-5, rtol=1e-5)


def test_null_rates_and_losses_equal_loops(pairs, tmp_path):
    model, task = load_files(write_checkpoint(tmp_path / "model.pt", pairs, "rela_g", NULL), pairs)
    rates, heads = null_rates(model, task, "valid"), list_heads(model)
    assert {tuple(head) for head in heads if rates[head] == 1} == set(NULL)
    some = [Head("encoder", 0, 2), Head("decoder", 1, 1), Head("cross", 0, 3), Head(*NULL[0])]
    loss, rises = losses(model, task, "valid", some, max_tokens=40)

    def alone(model):
        """The same sum, one sentence at a time, by torch's cross-entropy."""
        dataset, total, pieces = task.dataset("valid"), 0.0, 0
        for index in range(len(dataset)):
            batch = dataset.collater([dataset[index]])
            with torch.no_grad():
                logits = model(**batch["net_input"])[0]
            total += float(torch.nn.functional.cross_entropy(logits[0], batch["target"][0], reduction="sum"))
            pieces += batch["target"].numel()
        return total / pieces

    before = {name: value.clone() for name, value in model.state_dict().items()}
    assert loss == pytest.approx(alone(model), abs=1e-6)
    for head in some:
        pruned = load_files(tmp_path / "model.pt", pairs)[0]
        remove_heads(pruned, [head])
        assert rises[head] == pytest.approx(alone(pruned) - loss, abs=1e-6)
    assert rises[some[-1]] == 0 and all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_softmax_is_pruned_by_loss_and_a_pruned_model_again(pairs, tmp_path, capsys):
    checkpoint = write_checkpoint(tmp_path / "model.pt", pairs, "softmax")
    arguments = ["--data", str(pairs), "--output"]
    assert main(["prune", str(checkpoint), *arguments, str(tmp_path / "no.pt"), "--remove", "0.5"]) == 2
    assert "--by null: the heads of this model are never null; give --by loss" in capsys.readouterr().err
    assert main(["prune", str(checkpoint), *arguments, str(tmp_path / "a.pt"), "--remove", "0.5", "--by", "loss"]) == 0
    record = json.loads((tmp_path / "a.pt.json").read_text())
    rises = [one["loss_rise"] for one in record["heads"] if one["removed"]]
    assert len(rises) == 12 and max(rises) <= min(one["loss_rise"] for one in record["heads"] if not one["removed"])
    again = ["prune", str(tmp_path / "a.pt"), *arguments, str(tmp_path / "b.pt"), "--remove", "1", "--by", "random"]
    assert main(again) == 0
    record = json.loads((tmp_path / "b.pt.json").read_text())
    assert len(record["heads"]) == 12 and record["rela_heads"] == "encoder=0,0 decoder=0,0 cross=0,0"
    assert main(["attention", str(tmp_path / "b.pt"), "--data", str(pairs)]) == 0
    assert main(["analyze", str(tmp_path / "a.pt"), "--data", str(pairs), "--output", str(tmp_path / "analysis")]) == 0


def test_layers_with_fewer_heads_are_aligned(pairs, tmp_path):
    model, task = load_files(write_checkpoint(tmp_path / "model.pt", pairs), pairs)
    sentences = read_sentences(task, pairs, "test")
    full, fewer = Links(sentences), Links(sentences)
    for batch in capture(model, task, "test"):
        full.add(batch)
        cross = [item for item in batch.modules if item.site == "cross"]
        items = [cross[0]._replace(weights=cross[0].weights[:, 1:]), *cross[1:]]
        fewer.add(batch._replace(modules=items))
        with pytest.raises(InputError, match="a layer has no heads in its cross-attention"):
            Links(sentences).add(batch._replace(modules=[cross[0]._replace(weights=cross[0].weights[:, :0])]))
    expected, found = full.result(), fewer.result()
    assert len(expected) == 20 and len(found) == 18 and "normal.layer0.head3" not in found
    for name, lines in found.items():
        if name.startswith("normal.layer0.head"):
            name = f"normal.layer0.head{int(name[-1]) + 1}"
        elif name.startswith("shifted.layer0.head"):
            name = f"shifted.layer0.head{int(name[-1]) + 1}"
        assert lines == expected[name] or name.endswith("layer0.mean")
    gold = [Gold({(0, 0)}, {(0, 0)}) for _ in sentences]
    both = [links.error_rates("x", gold)["normal"]["layers"] for links in (full, fewer)]
    assert both[1][0]["heads"] == both[0][0]["heads"][1:] and both[1][1] == both[0][1]


@pytest.mark.parametrize(
    "output, options, message",
    [
        ("model.pt", [], "must not take the place of a checkpoint"),
        ("checkpoint_last.pt", [], "must not take the place of a checkpoint"),
        ("new.pt", [], "no head has a null rate of 1; the highest is 0."),
        ("new.pt", ["--remove", "0.01"], "--remove 0.01: not even one of 24 heads"),
        ("new.pt", ["--subset", "nothing"], "no subset 'nothing'"),
    ],
)
def test_mistakes_end_in_one_line_and_write_nothing(output, options, message, pairs, tmp_path, capsys):
    checkpoint = write_checkpoint(tmp_path / "model.pt", pairs)
    bytes_before = checkpoint.read_bytes()
    command = ["prune", str(checkpoint), "--data", str(pairs), "--output", str(tmp_path / output), *options]
    assert main(command) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("rela prune: error: ")]
    assert len(lines) == 1 and message in lines[0]
    assert [path.name for path in tmp_path.iterdir()] == ["model.pt"] and checkpoint.read_bytes() == bytes_before


# --- the table ---------------------------------------------------------------------------------------------------

RESULTS = ROOT / "benchmarks" / "pruning" / "pruning.json"


def test_the_documentation_holds_the_measured_numbers():
    results = read_json(RESULTS)
    page = (ROOT / "docs" / "pruning.md").read_text(encoding="utf-8")
    shown = page.split("<!-- pruning begin -->\n")[1].split("<!-- pruning end -->")[0]
    assert shown.strip() == text.markdown(results).strip()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in shown.splitlines() if line.startswith("|")]
    shares = rows[0][2:]
    for attention, by, row in (("rela_g", "null", "null rate"), ("softmax", "random", "random heads")):
        cells = next(cells for cells in rows if cells[0].lower().replace("-", "_") == attention and cells[1] == row)
        for share, cell in list(zip(shares, cells[2:]))[1:]:
            points = [p for p in results["points"] if (p["attention"], p["by"]) == (attention, by)]
            numbers = [p["bleu"] for p in points if f"{100 * p['share']:g} %" == share]
            assert cell.startswith(f"{sum(numbers) / len(numbers):.1f} ± ") if numbers else cell == "-"


@pytest.mark.slow
def test_the_script_measures_what_is_missing_and_makes_the_table(data, trained, tmp_path):
    command = [sys.executable, "-W", "ignore", ROOT / "scripts" / "prune_table.py", "--output", tmp_path / "table"]
    options = ["--data", data, trained / "checkpoint_last.pt", "--shares", 0.5, "--draws", 2, "--beam", 1]
    assert run(*command, *options).returncode == 0
    folder = tmp_path / "table" / "points" / "rela_g.seed-5"
    names = {"whole", "null-0.5", "loss-0.5", "random-0.5-1", "random-0.5-2"}
    assert {path.stem for path in folder.iterdir()} == names
    whole, half = (read_json(folder / f"{name}.json") for name in ("whole", "loss-0.5"))
    assert half["removed"] == 12 and half["parameters"] < whole["parameters"] and half["speed"]["median"] > 0
    translated = translate(DataFolder(data), trained / "checkpoint_last.pt", tmp_path / "out", load_decoding(beam=1))
    assert translated.sentences == whole["sentences"]
    lines = [list(read_lines(path)) for path in (tmp_path / "out.bpe", data / "raw" / "test.xb")]
    assert score(*lines, "xb")["bleu"] == pytest.approx(whole["bleu"], abs=1e-6)
    (folder / "random-0.5-2.json").unlink()
    before = (folder / "whole.json").stat().st_mtime_ns
    assert run(*command, *options).returncode == 0
    assert (folder / "random-0.5-2.json").is_file() and (folder / "whole.json").stat().st_mtime_ns == before
    other = run(*command, *options[:-1], 2)  # another beam
    assert other.returncode == 2 and "whole.json was made with another decoding; remove it, or give" in other.stderr
    assert (tmp_path / "table" / "pruning.png").is_file()
    assert (tmp_path / "table" / "pruning.md").read_text().startswith("BLEU against the share of heads removed")
