"""Study records with known numbers; their means and differences are computed here by numpy and scipy."""

import random

import numpy
from scipy import stats

SITES = ("encoder", "decoder", "cross")
TAUS = ("1.0", "0.5", "0.25", "0.1")
SIGNATURE = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0"
ROWS = {  # label: attention, sites, row of Table 1
    "softmax": ("softmax", SITES, 1),
    "sparsemax": ("sparsemax", SITES, 2),
    "entmax15": ("entmax15", SITES, 3),
    "relu": ("relu", SITES, 4),
    "relu_rmsnorm": ("relu_rmsnorm", SITES, 5),
    "rela_i": ("rela_i", SITES, 6),
    "rela_g": ("rela_g", SITES, 7),
    "rela_g_layernorm": ("rela_g_layernorm", SITES, 8),
    "rela_g_gelu": ("rela_g_gelu", SITES, 9),
    "rela_g_leaky_relu": ("rela_g_leaky_relu", SITES, 10),
    "rela_g-encoder": ("rela_g", ("encoder",), 11),
    "rela_g-decoder": ("rela_g", ("decoder",), 12),
    "rela_g-cross": ("rela_g", ("cross",), 13),
    "rela_g-lr5e-3": ("rela_g", SITES, None),
}


def noise(seed, *names):
    """Return a number from -1 to 1 that depends on a seed and names only."""
    return random.Random(f"{seed} {' '.join(names)}").uniform(-1, 1)


def site_block(attention, seed, site, shift=0.0):
    """Return a site of analysis.json: two layers of two heads."""
    sparse = attention not in ("softmax",)
    null = attention not in ("softmax", "sparsemax", "entmax15")
    taus = TAUS if null else ("1.0",)
    layers = [
        {
            "name": f"{site}.{number}",
            "variant": attention,
            "heads": 2,
            "sparsity": sparse * (0.6 + 0.1 * number + shift + 0.01 * noise(seed, site, "sparsity")),
            "null_rate": null * (0.1 + 0.05 * number + shift + 0.01 * noise(seed, site, "null")),
            "null_rate_by_head": [0.0, 0.2],
            "null_rate_variance": null * (0.02 + 0.001 * noise(seed, site, "variance")),
            "layer_null_rate": null * (0.001 + 0.0005 * noise(seed, site, "layer")),
            "diversity": {tau: 0.3 + 0.4 * null + 0.02 * noise(seed, site, tau) for tau in taus},
        }
        for number in range(2)
    ]
    mean = {key: sum(layer[key] for layer in layers) / 2 for key in ("sparsity", "null_rate", "layer_null_rate")}
    return {"layers": layers, **mean, "diversity": {tau: layers[0]["diversity"][tau] for tau in taus}}


def shuffled_block(block):
    """Return the null rates with shuffled targets: 10 points more."""
    layers = [{"null_rate": layer["null_rate"] + 0.1, "null_rate_variance": 0.03} for layer in block["layers"]]
    return {"layers": layers, "null_rate": block["null_rate"] + 0.1}


def alignment(attention, seed):
    better = 0.1 if attention == "rela_g" else 0.0
    rates = {
        kind: {key: base - better + 0.01 * noise(seed, attention, kind, key) for key in ("aol", "aoh")}
        for kind, base in (("normal", 0.7), ("shifted", 0.6))
    }
    return {"gold": "silver", "sentences": 1000, **rates}


def make_run(label, attention, seed, bleu, words=False, gold=True):
    sites = {site: site_block(attention, seed, site) for site in SITES}
    analysis = {
        "format": 1,
        "attention": attention,
        "sites": sites,
        "shuffled": {"seed": 1, "sites": {site: shuffled_block(block) for site, block in sites.items()}},
        "alignment": alignment(attention, seed) if gold else None,
    }
    if words:
        sites = {site: site_block(attention, seed, site, shift=-0.05) for site in SITES}
        analysis["words"] = {
            "sites": sites,
            "shuffled": {"seed": 1, "sites": {site: shuffled_block(block) for site, block in sites.items()}},
        }
    return {
        "label": label,
        "seed": seed,
        "state": "done",
        "score": {
            "bleu": bleu,
            "tokenised_bleu": bleu + 0.2,
            "signature": SIGNATURE,
            "sentences": 1000,
            "hypothesis_length": 930,
            "reference_length": 1000,
        },
        "updates": 2000,
        "parameters": 1634816,
        "valid": [{"updates": 100, "nll": 4.0}, {"updates": 200, "nll": 3.0 + 0.01 * noise(seed, label)}],
        "analysis": analysis,
        "seconds": {"train": 900.0},
        "machine": {"processor": "AMD EPYC", "cores": 2, "gpu": None},
        "versions": {"python": "3.11.7", "torch": "2.13.0"},
        "translation": {"file": f"{label}.seed-{seed}.txt.gz", "sha256": "0" * 64},
    }


def diverged_run(label, seed):
    return {"label": label, "seed": seed, "state": "diverged", "reason": "the loss is not finite after 300 updates"}


def measures(run):
    """Return every measure of a run, read from its records by loops."""
    found = {"bleu": run["score"]["bleu"], "tokenised_bleu": run["score"]["tokenised_bleu"], "length_ratio": 0.93}
    found.update(updates=run["updates"], parameters=run["parameters"], valid_nll=run["valid"][1]["nll"])
    analysis = run["analysis"]
    for prefix, block in (("", analysis), ("words.", analysis.get("words"))):
        for site in SITES if block else ():
            for key in ("sparsity", "null_rate", "layer_null_rate"):
                found[f"{prefix}{key}.{site}"] = block["sites"][site][key]
            rates = [layer["null_rate"] for layer in block["shuffled"]["sites"][site]["layers"]]
            found[f"{prefix}null_rate_shuffled.{site}"] = numpy.mean(rates)
            for tau, value in block["sites"][site]["diversity"].items():
                found[f"{prefix}diversity.{site}.{tau}"] = value
    for kind, areas in run.get("ranking", {}).items():
        found[f"auc.null_rate.{kind}"] = areas["null_rate_auc"]
        found[f"auc.log_probability.{kind}"] = areas["logprob_auc"]
    for kind in ("normal", "shifted") if analysis["alignment"] else ():
        for key in ("aol", "aoh"):
            found[f"aer.{kind}.{key}"] = analysis["alignment"][kind][key]
    return found


def t_interval(values):
    """Return mean, sample standard deviation and 95 % interval by scipy."""
    mean = float(numpy.mean(values))
    if len(values) < 2:
        return mean, None, None
    error = stats.sem(values)
    low, high = stats.t.interval(0.95, len(values) - 1, loc=mean, scale=error) if error else (mean, mean)
    return mean, float(numpy.std(values, ddof=1)), [float(low), float(high)]


def collect(row, base):
    """Return a row with its means and differences in the form of the collector of `rela study`."""
    done = {run["seed"]: measures(run) for run in row["runs"] if run["state"] == "done"}
    reference = {run["seed"]: measures(run) for run in base["runs"] if run["state"] == "done"}
    row["mean"], differences = {}, {}
    for name in dict.fromkeys(name for found in done.values() for name in found):
        mean, sd, _ = t_interval([found[name] for found in done.values() if name in found])
        row["mean"][name] = {"mean": mean, "sd": sd, "n": len(done)}
        shared = [seed for seed in done if seed in reference and name in done[seed] and name in reference[seed]]
        if shared:
            mean, _, interval = t_interval([done[seed][name] - reference[seed][name] for seed in shared])
            differences[name] = {"mean": mean, "interval": interval, "n": len(shared), "seeds": shared}
    if row is not base:
        row["difference"] = differences
        row["bootstrap"] = {
            str(seed): {"difference": done[seed]["bleu"] - reference[seed]["bleu"], "p": 0.01, "interval": [30, 31]}
            for seed in done
            if seed in reference
        }
    return row


def make_study(bleu, seeds=(1, 2, 3, 4), words=False, gold_kind="silver", task="multi30k_en_de"):
    """Return study.json's content.

    Args:
        bleu: label to the BLEU of each seed, None where the run has diverged; fewer than ``seeds`` where runs are
            missing.
    """
    rows = []
    for label, scores in bleu.items():
        attention, sites, number = ROWS[label]
        runs = [
            diverged_run(label, seed)
            if score is None
            else make_run(label, attention, seed, score, words, gold_kind is not None)
            for seed, score in zip(seeds, scores)
        ]
        row = {"label": label, "attention": attention, "sites": list(sites), "table_1": number, "runs": runs}
        overrides = ["optimization.lr=[0.005]"] if "lr" in label else []
        rows.append({**row, "overrides": overrides, "seeds": list(seeds)})
    base = next((row for row in rows if row["label"] == "softmax"), {"runs": []})
    return {
        "format": 1,
        "study": "multi30k_en_de",
        "task": task,
        "baseline": "softmax",
        "gold_kind": gold_kind,
        "sentences": 1000,
        "languages": ["en", "de"],
        "rows": [collect(row, base) for row in rows],
    }
