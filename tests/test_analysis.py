"""Captured weights and their counts, against loops."""

import shutil
import statistics

import pytest
import torch
from conftest import make_model, make_task, translation_task
from fairseq.models import build_model
from hypothesis import given, settings
from hypothesis import strategies as st
from test_models import random_batch

from fairseq_rela import checkpoints
from fairseq_rela.analysis.analyze import summarise
from fairseq_rela.analysis.capture import capture, derangement, load_model, recorded_weights
from fairseq_rela.analysis.sentences import read_sentences
from fairseq_rela.analysis.sparsity import count_sparsity
from fairseq_rela.errors import InputError
from fairseq_rela.files.lines import read_lines
from fairseq_rela.models.transformer_rela import attention_modules
from fairseq_rela.variants import VARIANTS


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000))
def test_counts_equal_loops(seed):
    generator = torch.Generator().manual_seed(seed)
    weights = torch.rand(3, 2, 4, 5, generator=generator)
    weights[torch.rand(weights.shape, generator=generator) < 0.6] = 0
    allowed = torch.rand(3, 4, 5, generator=generator) < 0.7
    cells = queries = 0
    zeros, nulls = [0, 0], [0, 0]
    for b in range(3):
        for t in range(4):
            keys = [s for s in range(5) if allowed[b, t, s]]
            cells += len(keys)
            queries += bool(keys)
            for h in range(2):
                zeros[h] += sum(float(weights[b, h, t, s]) == 0 for s in keys)
                nulls[h] += bool(keys) and all(float(weights[b, h, t, s]) == 0 for s in keys)
    counts = count_sparsity(weights, allowed)
    assert (counts.cells, counts.queries) == (cells, queries)
    assert counts.zeros.tolist() == zeros and counts.nulls.tolist() == nulls
    total = counts + counts
    assert total.sparsity == counts.sparsity == pytest.approx(sum(zeros) / 2 / cells)
    assert total.null_rate == pytest.approx(sum(nulls) / 2 / queries)
    assert total.sparsity_by_head == pytest.approx([n / cells for n in zeros])
    rates = [n / queries for n in nulls]
    assert total.null_rate_by_head == pytest.approx(rates)
    assert total.null_rate_variance == pytest.approx(statistics.variance(rates))


def test_variance_over_heads_is_the_sample_variance():
    """The paper prints 0.256 for eight heads; the population variance of rates from 0 to 1 cannot exceed 0.25."""
    allowed = torch.ones(1, 1, 1, dtype=torch.bool)
    for heads, highest in ((8, 2 / 7), (4, 1 / 3), (2, 1 / 2)):
        weights = torch.tensor([0.0, 1.0] * (heads // 2)).reshape(1, heads, 1, 1)
        assert count_sparsity(weights, allowed).null_rate_variance == pytest.approx(highest)
    assert count_sparsity(torch.zeros(1, 1, 1, 1), allowed).null_rate_variance is None  # none for one head


def test_a_dense_causal_matrix_is_not_sparse():
    """B15: weights of the future and of padding are not counted as zeros."""
    allowed = torch.ones(1, 6, 6, dtype=torch.bool).tril()
    weights = torch.softmax(torch.zeros(1, 2, 6, 6).masked_fill(~allowed, -torch.inf), -1)
    counts = count_sparsity(weights, allowed)
    assert counts.cells == 21 and counts.sparsity == 0 and counts.null_rate == 0
    assert float((weights == 0).float().mean()) > 0.4


def test_half_precision_and_wrong_shapes_are_refused():
    with pytest.raises(ValueError, match="float32"):
        count_sparsity(torch.zeros(1, 2, 3, 4).half(), torch.ones(1, 3, 4, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"\(B, H, T, S\)"):
        count_sparsity(torch.zeros(2, 3, 4), torch.ones(2, 3, 4, dtype=torch.bool))  # averaged heads, B50


def captured(model, source, lengths, target):
    sites = attention_modules(model)
    with torch.no_grad(), recorded_weights(sites) as weights:
        output = model(source, lengths, target)[0]
    return weights, output


@pytest.mark.parametrize("name", VARIANTS)
def test_recording_gives_all_heads_of_all_sites_and_the_same_output(name):
    """B11, B50: every layer and head is recorded, and recording changes no output; also for softmax."""
    model = make_model(name)
    source, lengths, target = random_batch()
    with torch.no_grad():
        want = model(source, lengths, target)[0]
    weights, output = captured(model, source, lengths, target)
    torch.testing.assert_close(output, want, atol=1e-5, rtol=1e-5)
    assert len(weights) == 6
    for key, w in weights.items():
        keys = 6 if "decoder" in key and "self" in key else 7
        queries = 7 if key.startswith("encoder") else 6
        assert w.shape == (3, 4, queries, keys) and w.dtype in (torch.float32, torch.float64)
        if name in ("softmax", "sparsemax", "entmax15"):
            torch.testing.assert_close(w.sum(-1), torch.ones_like(w.sum(-1)))
    # recording leaves no replaced methods behind
    assert not any("forward" in vars(m) for ms in attention_modules(model).values() for m in ms.values())
    assert all(m.skip_embed_dim_check == (name != "softmax") for m in attention_modules(model)["cross"].values())


def test_weights_of_fairseqs_own_transformer_are_recorded():
    from fairseq import options
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf

    parser = options.get_training_parser()
    flags = ["data", "--arch", "transformer_tiny"]
    cfg = convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, flags))
    model = build_model(cfg.model, make_task()).eval()
    weights, _ = captured(model, *random_batch())
    assert all(w.dim() == 4 and w.shape[1] == 2 for w in weights.values()) and len(weights) == 6


def test_sparsity_does_not_depend_on_padding_or_batches():
    model = make_model("rela_g")
    source, lengths, target = random_batch()

    def cross(source, lengths, target):
        weights, _ = captured(model, source, lengths, target)
        pad = 1
        allowed = (target != pad)[:, :, None] & (source != pad)[:, None, :]
        return count_sparsity(weights["decoder.layers.1.encoder_attn"], allowed)

    together = cross(source, lengths, target)
    alone = None
    for i, (n, m) in enumerate(((7, 6), (5, 4), (3, 5))):
        one = cross(source[i : i + 1, -n:], lengths[i : i + 1], target[i : i + 1, :m])
        alone = one if alone is None else alone + one
    assert together.cells == alone.cells and together.queries == alone.queries
    assert torch.equal(together.zeros, alone.zeros) and torch.equal(together.nulls, alone.nulls)
    assert 0 < together.sparsity < 1


def test_a_module_that_does_not_run_is_an_error():
    model = make_model("rela_g")
    source, lengths, _ = random_batch()
    with pytest.raises(RuntimeError, match="did not run"), recorded_weights(attention_modules(model)):
        model.encoder(source, lengths)


@pytest.fixture(scope="module")
def task(data):
    return translation_task(data, required_seq_len_multiple=8)


def by_sentence(model, task, **options):
    """Return sentence to module to weights without padding, after checking their allowed cells."""
    sentences = {}
    for batch in capture(model, task, "test", **options):
        for row, index in enumerate(batch.ids):
            for item in batch.modules:
                queries, keys = (int(item.allowed[row].any(dim).sum()) for dim in (1, 0))
                allowed = item.allowed[row, :queries, :keys]
                assert item.allowed[row].sum() == allowed.sum()  # padding comes last on both sides
                assert torch.equal(
                    allowed, torch.ones_like(allowed).tril() if item.site == "decoder" else allowed | True
                )
                assert item.weights.shape[1] == 4 and item.name.startswith(
                    "encoder" if item.site == "encoder" else "dec"
                )
                assert f"layers.{item.layer}." in item.name
                sentences.setdefault(index, {})[item.name] = item.weights[row, :, :queries, :keys]
    return sentences


@pytest.mark.parametrize("name", ["rela_g", "softmax"])
def test_batches_of_any_size_give_the_weights_of_a_sentence_alone(task, name):
    """B26: sources are left-padded as in fairseq; results keep the order of the file in any order of batches."""
    model = make_model(name, task=task)
    small, large = (by_sentence(model, task, max_tokens=tokens) for tokens in (1, 4000))
    assert sorted(small) == sorted(large) == list(range(300))
    dataset = task.dataset("test")
    for index in (0, 7, 299):
        inputs = dataset.collater([dataset[index]])["net_input"]
        with torch.no_grad(), recorded_weights(attention_modules(model)) as alone:
            model(**inputs)
        source, target = dataset.src_sizes[index], dataset.tgt_sizes[index]
        for key, weights in alone.items():  # padded to a multiple of 8, sources at the left
            queries = slice(-source, None) if key.startswith("encoder") else slice(target)
            keys = slice(target) if key.startswith("decoder") and "self" in key else slice(-source, None)
            torch.testing.assert_close(small[index][key], weights[0][:, queries, keys])
            torch.testing.assert_close(large[index][key], weights[0][:, queries, keys])


def test_shuffled_targets_come_from_other_sentences(task):
    """Every source gets the target of another sentence; all targets are used; equal seeds give equal pairs."""
    model = make_model(task=task)
    own, shuffled, again = (by_sentence(model, task, **o) for o in ({}, {"shuffle_seed": 1}, {"shuffle_seed": 1}))
    order = derangement(300, 1)
    cross, encoder = "decoder.layers.0.encoder_attn", "encoder.layers.1.self_attn"
    dataset = task.dataset("test")
    for index in range(300):
        torch.testing.assert_close(shuffled[index][encoder], own[index][encoder])
        torch.testing.assert_close(shuffled[index][cross], again[index][cross])
        assert shuffled[index][cross].shape[1:] == (dataset.tgt_sizes[order[index]], dataset.src_sizes[index])
        # the first decoder self-attention depends on the target alone
        self_attention = "decoder.layers.0.self_attn"
        torch.testing.assert_close(shuffled[index][self_attention], own[order[index]][self_attention])


@given(st.integers(2, 60), st.integers(0, 1000))
def test_shuffling_moves_every_sentence(number, seed):
    order = derangement(number, seed)
    assert sorted(order) == list(range(number)) and all(i != j for i, j in enumerate(order))
    assert order == derangement(number, seed)


def test_one_sentence_alone_cannot_be_shuffled():
    with pytest.raises(InputError, match="larger subset"):
        derangement(1, 1)


def test_a_missing_subset_and_a_sentence_over_the_limit_are_named(task):
    with pytest.raises(InputError, match="no subset 'nothere'"):
        next(capture(make_model(task=task), task, "nothere"))
    model = make_model(task=task, max_target_positions=10)
    with pytest.raises(InputError, match=r"test, sentence \d+: \d+ target pieces, but the model takes 10"):
        next(capture(model, task, "test"))


def test_unknown_pieces_stay_in_their_word(task, data, tmp_path):
    """``<unk>`` in binary data does not show whether its word continues."""
    lines = [list(read_lines(data / "bpe" / f"test.{lang}")) for lang in ("xa", "xb")]
    sentences = read_sentences(task, data, "test")
    assert [" ".join(s.source) for s in sentences] == [line + " </s>" for line in lines[0]]
    assert [" ".join(s.target) for s in sentences] == [line + " </s>" for line in lines[1]]
    assert read_sentences(task, tmp_path, "test") == sentences  # without the text, from the dictionaries
    piece = next(piece for piece in lines[0][0].split() if piece.endswith("@@"))
    dictionary = task.source_dictionary
    place = dictionary.indices[piece]
    dictionary.symbols[place] = "<unk>"
    try:
        assert read_sentences(task, data, "test") == sentences
        assert "<unk>" in read_sentences(task, tmp_path, "test")[0].source
    finally:
        dictionary.symbols[place] = piece
    (tmp_path / "bpe").mkdir()
    shutil.copy(data / "bpe" / "test.xa", tmp_path / "bpe" / "test.xa")
    shutil.copy(data / "bpe" / "valid.xb", tmp_path / "bpe" / "test.xb")
    with pytest.raises(InputError, match=r"test\.xb is not the text of the binarised data"):
        read_sentences(task, tmp_path, "test")


HISTORY = {"num_updates": 1, "best_loss": 1.0, "criterion_name": "", "optimizer_name": "", "lr_scheduler_state": {}}


def test_a_checkpoint_of_fairseqs_own_transformer_is_analysed(data, tmp_path):
    """B02: after loading, fairseq 0.12.2 runs a fused encoder layer, which does not return its weights."""
    from fairseq import options, tasks
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf

    flags = [str(data), "--arch", "transformer_tiny", "--task", "translation", "-s", "xa", "-t", "xb"]
    cfg = convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), flags))
    task = tasks.setup_task(cfg.task)
    torch.manual_seed(0)
    state = {
        "args": None,
        "cfg": cfg,
        "model": task.build_model(cfg.model).state_dict(),
        "optimizer_history": [HISTORY],
    }
    path = tmp_path / "checkpoint.pt"
    torch.save({**state, "cfg": plain(cfg), "extra_state": {}, "task_state": {}}, path)
    assert checkpoints.load(path)
    model, _ = load_model(path, data)
    assert type(model).__name__ == "TransformerModel"
    summary = summarise(path, data, "test")
    for site in ("encoder", "decoder", "cross"):
        assert summary["sites"][site]["variants"] == ["softmax"]
        assert summary["sites"][site]["sparsity"] == summary["sites"][site]["null_rate"] == 0
        assert len(summary["sites"][site]["layers"]) == 2


def plain(cfg):
    """Return a configuration in the form that fairseq writes."""
    from omegaconf import OmegaConf

    return OmegaConf.to_container(cfg, resolve=True, enum_to_str=True)
