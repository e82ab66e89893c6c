"""The work of each process of tests/test_distributed.py. fairseq's own ``--user-dir`` import loads the plugin."""

import argparse
import itertools
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

SITES = ("encoder", "decoder", "cross")
SITE_CHOICES = [",".join(c) for n in (1, 2, 3) for c in itertools.combinations(SITES, n)]
WORDS, PAD, EOS = 20, 1, 2
# lengths of sources and targets; each of two processes takes two sentences, so that their padding differs
LENGTHS = ((9, 4), (7, 8), (3, 5), (5, 3))


def cases(variants):
    """Return every variant at all sites, and rela_g, which has the most parameters, at every choice of sites."""
    return [(v, s) for v in variants for s in (SITE_CHOICES if v == "rela_g" else SITE_CHOICES[-1:])]


def sentences():
    """Return (source, target) of each sentence with the end of sentence where fairseq's batches have it."""
    generator = torch.Generator().manual_seed(7)

    def words(length):
        return torch.randint(4, WORDS + 4, (length - 1,), generator=generator)

    return [(torch.cat([words(n), torch.tensor([EOS])]), words(m + 1)) for n, m in LENGTHS]


def batch(pairs):
    """Return left-padded sources, their lengths, right-padded decoder inputs, and the shifted inputs as targets."""
    width, height = max(len(s) for s, _ in pairs), max(len(t) for _, t in pairs)
    sources = torch.full((len(pairs), width), PAD)
    inputs, wanted = torch.full((len(pairs), height), PAD), torch.full((len(pairs), height), PAD)
    for row, (source, target) in enumerate(pairs):
        sources[row, width - len(source) :] = source
        inputs[row, : len(target)] = torch.cat([torch.tensor([EOS]), target[:-1]])
        wanted[row, : len(target)] = target
    return sources, torch.tensor([len(s) for s, _ in pairs]), inputs, wanted


def loss(model, pairs):
    """Return the sum of the negative log-likelihoods over all pieces, divided by 100."""
    sources, lengths, inputs, wanted = batch(pairs)
    log_probabilities = torch.log_softmax(model(sources, lengths, inputs)[0], dim=-1)
    picked = log_probabilities.gather(-1, wanted.unsqueeze(-1)).squeeze(-1)
    return -picked[wanted != PAD].sum() / 100


def make(variant, sites, **more):
    """Build a small model in float64, the same in every process, with gains and gates that are not trivial."""
    from fairseq.data import Dictionary

    from fairseq_rela.models.config import TransformerRelaConfig
    from fairseq_rela.models.transformer_rela import TransformerRelaModel

    dictionary = Dictionary()
    for index in range(WORDS):
        dictionary.add_symbol(f"w{index}")
    sizes = dict(layers=2, embed_dim=16, ffn_embed_dim=24, attention_heads=4)
    options = {f"{side}_{key}": value for side in ("encoder", "decoder") for key, value in sizes.items()}
    torch.manual_seed(3)
    config = TransformerRelaConfig(attention=variant, attention_sites=sites, dropout=0.0, **options, **more)
    task = argparse.Namespace(source_dictionary=dictionary, target_dictionary=dictionary)
    model = TransformerRelaModel.build_model(config, task).double().train()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "attn_norm" in name:
                parameter.uniform_(-1.0, 1.0)
    return model


def train(model, pairs, steps=2):
    """Return the gradients of the first step, and the parameters after a few steps of gradient descent."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    gradients = {}
    for step in range(steps):
        optimizer.zero_grad()
        loss(model, pairs).backward()
        if step == 0:
            gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
        optimizer.step()
    return gradients, {name: p.detach().clone() for name, p in model.named_parameters()}


def observe(model, *parts):
    """Show each part to the thresholds of a model as a batch of one update, and end the update."""
    model.set_num_updates(0)
    for pairs in parts:
        loss(model, pairs)
    model.set_num_updates(1)


def work(rank, user_dir, meeting_point, results):
    """Train every case on this process's half of the sentences, and write the gradients and parameters."""
    torch.set_num_threads(1)
    assert "fairseq_rela" not in sys.modules
    from fairseq.utils import import_user_module

    import_user_module(argparse.Namespace(user_dir=user_dir))
    from fairseq_rela.variants import VARIANTS

    dist.init_process_group("gloo", init_method=f"file://{meeting_point}", rank=rank, world_size=2)
    pairs = sentences()[2 * rank : 2 * rank + 2]
    outcome = {"plugin": sys.modules["fairseq_rela"].__file__, "cases": {}}
    for variant, sites in cases(VARIANTS):
        # wrapped as in fairseq; a parameter without a gradient would make the second step fail
        model = DistributedDataParallel(make(variant, sites), find_unused_parameters=False)
        gradients, parameters = train(model, pairs)
        outcome["cases"][variant, sites] = [
            {name[len("module.") :]: value for name, value in values.items()} for values in (gradients, parameters)
        ]
    model = make("rela_g", ",".join(SITES), rela_sparsity_target=0.7)
    observe(model, pairs)
    outcome["target"] = {name: value for name, value in model.state_dict().items() if "attn_weights" in name}
    torch.save(outcome, f"{results}.{rank}")
    dist.destroy_process_group()
