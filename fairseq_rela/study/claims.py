"""Judge the paper's claims by the measurements of a study, all by one rule."""

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence

from ..analysis.summaries import Summary, paired
from ..report import paper
from ..variants import SITES
from . import text
from .paper_tables import ERRORS, gold_name, paper_difference
from .values import at_level, baseline, by_measure, difference, find_row, mean, values

AGREES, DIFFERS, OPEN = "agrees", "does not", "cannot be told at this size"
RULE = (
    "A claim is one comparison or several. It **agrees** only where the 95 % interval of every comparison (Student's t "
    "over the seeds, paired where two rows are compared) lies wholly on the paper's side of the limit, it **does not** "
    "where at least one lies wholly on the other side, and it **cannot be told at this size** otherwise, and always "
    "with a single seed. That ReLU alone does not train has a rule of its own. The intervals are not corrected for "
    "their number."
)
_HIGH = 0.5  # sparsity from which a site counts as highly sparse
_ALMOST_NEVER = 0.01  # null rate below which queries count as almost never null
_FAILED = 0.5  # a training has failed if its BLEU is below this share of the baseline's
SHOWN = 4  # maximum number of comparisons that a sentence lists


class Check(NamedTuple):
    """A comparison of one measured value with a limit.

    Attributes:
        name: name of the compared value.
        summary: the measured value, or None if it was not measured.
        above: whether the paper's claim places the value above ``limit``, otherwise below.
        limit: the limit, in the unit of ``summary``.
        scale, digits, unit: the value is printed times ``scale``, with ``digits`` decimals and ``unit``.
    """

    name: str
    summary: Optional[Summary]
    above: bool
    limit: float
    scale: float = 1.0
    digits: int = 2
    unit: str = ""

    @property
    def verdict(self) -> str:
        """AGREES if the whole interval is on the paper's side, DIFFERS if it is on the other side, else OPEN."""
        if self.summary is None or self.summary.interval is None:
            return OPEN
        low, high = self.summary.interval
        if low > self.limit if self.above else high < self.limit:
            return AGREES
        return DIFFERS if (high < self.limit if self.above else low > self.limit) else OPEN

    @property
    def measured(self) -> str:
        """The measured value with its interval, as text."""
        if self.summary is None:
            return "not measured"
        average = text.number(self.scale * self.summary.mean, self.digits)
        bounds = text.interval(self.summary, self.digits, self.scale)
        return " ".join(filter(None, (average, self.unit, bounds)))

    @property
    def side(self) -> str:
        """The paper's side of the limit, such as ``above 0 BLEU``."""
        limit = text.number(self.scale * self.limit, self.digits if self.limit % 1 else 0)
        return f"{'above' if self.above else 'below'} {limit}{' ' + self.unit if self.unit else ''}"


class Claim(NamedTuple):
    """A claim of the paper.

    Attributes:
        claim: the claim, and its place in the paper.
        verdict: one of ``agrees``, ``does not``, ``cannot be told at this size``.
        sentence: the measurements of the study.
        checks: the comparisons behind the verdict.
    """

    claim: str
    verdict: str
    sentence: str
    checks: Sequence[Check] = ()


def judge(study: Dict[str, Any]) -> List[Claim]:
    """Return every claim with its verdict by :data:`RULE`; a claim without measurements "cannot be told".

    A study without rows of Table 1 judges no claim.
    """
    if all(row["table_1"] is None for row in study["rows"]):
        return []
    return [claim for make in _CLAIMS for claim in make(study)]


def margin() -> float:
    """Return the largest absolute difference in BLEU between ReLA-g and softmax on the paper's tasks (Tables 1, 3)."""
    bleu = {row.attention: row.bleu for row in paper.TABLE_1[:10] if row.bleu is not None}
    pairs = [(bleu["rela_g"], bleu["softmax"])]
    pairs += [(task["rela_g"], task["softmax"]) for task in paper.TABLE_3.values()]
    return round(max(abs(first - second) for first, second in pairs), 2)


def overall(checks: Sequence[Check]) -> str:
    """Return the verdict of a claim: DIFFERS if one comparison differs, AGREES if all agree, otherwise OPEN."""
    verdicts = [check.verdict for check in checks]
    if DIFFERS in verdicts:
        return DIFFERS
    return AGREES if verdicts and all(verdict == AGREES for verdict in verdicts) else OPEN


def _claim(claim: str, checks: Sequence[Check], paper_says: str) -> Claim:
    return Claim(claim, overall(checks), f"{_sentence(checks)} {paper_says}".strip(), checks)


def _sentence(checks: Sequence[Check]) -> str:
    """Return the measurements as text: up to :data:`SHOWN` comparisons one by one, more of them as counts."""
    side = checks[0].side
    if all(check.summary is None for check in checks):
        return f"Not measured (the paper's side: {side})."
    if len(checks) <= SHOWN:
        return f"{'; '.join(f'{check.name}: {check.measured}' for check in checks)} (the paper's side: {side})."
    counts = {verdict: [check for check in checks if check.verdict == verdict] for verdict in (AGREES, DIFFERS, OPEN)}
    parts = [
        f"{len(counts[AGREES])} of {len(checks)} comparisons lie on the paper's side ({side}), "
        f"{len(counts[DIFFERS])} on the other, {len(counts[OPEN])} are open"
    ]
    parts += [f"{check.name}: {check.measured}" for check in counts[DIFFERS]]
    return "; ".join(parts) + "."


def _pair(study: Dict[str, Any], first: int, second: int, measure: str, name: str, **how: Any) -> Check:
    """Return a comparison of two rows of Table 1, the first minus the second; ``how`` has the other fields."""
    rows = find_row(study, first), find_row(study, second)
    return Check(name, difference(*rows, measure), **how)


# ------------------------------------------------------------------------------------------------------------- quality

_BLEU = {"unit": "BLEU"}


def _quality(study: Dict[str, Any]) -> List[Claim]:
    limit = margin()
    rela = find_row(study, 7)
    published = paper_difference(study, rela) if rela else None
    says = (
        f"On par is read as at most {limit:.1f} BLEU behind, the largest distance between the two on the paper's five "
        "tasks"
    )
    says += f"; on WMT14 En-De the paper has {text.number(published, 1, sign=True)}." if published is not None else "."
    with_softmax = [_pair(study, 7, 1, "bleu", "ReLA-g less softmax", above=True, limit=-limit, **_BLEU)]
    others = [
        _pair(study, 7, number, "bleu", f"ReLA-g less {name}", above=True, limit=-limit, **_BLEU)
        for number, name in ((2, "sparsemax"), (3, "1.5-entmax"))
    ]
    return [
        _claim("ReLA-g translates on par with softmax (Table 1)", with_softmax, says),
        _claim("ReLA-g translates on par with sparsemax and 1.5-entmax (Table 1)", others, ""),
    ]


def _norm_needed(study: Dict[str, Any]) -> List[Claim]:
    row, base = find_row(study, 4), baseline(study)
    claim = "ReLU alone does not train: a norm is needed (Table 1, row 4)"
    runs = row["runs"] if row else []
    if not runs:
        return [Claim(claim, OPEN, "Not measured.")]
    expected = values(base, "bleu") if base else {}
    known = [run for run in runs if run["state"] == "diverged" or run["seed"] in expected]
    failed = [
        run for run in known if run["state"] == "diverged" or run["score"]["bleu"] < _FAILED * expected[run["seed"]]
    ]
    verdict = OPEN
    if len(known) > 1 and len(failed) in (0, len(known)):
        verdict = AGREES if failed else DIFFERS
    lost = sum(run["state"] == "diverged" for run in failed)
    sentence = (
        f"{len(failed)} of {len(known)} run{'s' * (len(known) != 1)} failed: {lost} diverged, {len(failed) - lost} "
        "ended below half of softmax's BLEU with the same seed. Here the claim agrees where all of at least two runs "
        "failed, and does not where none did."
    )
    summary = mean(row, "bleu")
    if summary is not None:
        sentence += f" BLEU: {text.mean_interval(summary)}."
    return [Claim(claim, verdict, sentence)]


def _ablation(study: Dict[str, Any]) -> List[Claim]:
    limit = margin()
    start = [
        _pair(study, number, 5, "bleu", f"{name} less ReLU + RMSNorm", above=True, limit=0, **_BLEU)
        for number, name in ((6, "ReLA-i"), (7, "ReLA-g"))
    ]
    variants = [
        _pair(study, number, 7, "bleu", f"{name} less ReLA-g", above=False, limit=limit, **_BLEU)
        for number, name in ((8, "LayerNorm"), (9, "GeLU"), (10, "Leaky ReLU"))
    ]
    alone = [
        _pair(study, number, 1, "bleu", f"{name} only, less softmax", above=True, limit=-limit, **_BLEU)
        for number, name in ((12, "decoder"), (13, "cross-attention"))
    ]
    encoder = [
        _pair(study, number, 11, "bleu", f"{name} only, less encoder only", above=True, limit=0, **_BLEU)
        for number, name in ((12, "decoder"), (13, "cross-attention"))
    ]
    return [
        _claim("The gate gains over the norm alone, and so does ReLA-i's start (rows 5 to 7)", start, ""),
        _claim("LayerNorm, GeLU or Leaky ReLU gain nothing over ReLA-g (rows 8 to 10)", variants, ""),
        _claim("ReLA-g in decoder or cross-attention alone is on par with softmax (rows 12, 13)", alone, ""),
        _claim("ReLA-g in the encoder alone is behind those two (rows 11 to 13)", encoder, ""),
    ]


# ------------------------------------------------------------------------------------------------------------ analysis

_PERCENT: Dict[str, Any] = {"scale": 100.0, "digits": 1, "unit": "%"}
_POINTS: Dict[str, Any] = {"scale": 100.0, "digits": 1, "unit": "points"}


def _of_sites(study: Dict[str, Any], kind: str, above: bool, limit: float) -> List[Check]:
    row = find_row(study, 7)
    return [Check(site, mean(row, at_level(study, f"{kind}.{site}")), above, limit, **_PERCENT) for site in SITES]


def _sparsity(study: Dict[str, Any]) -> List[Claim]:
    high = _of_sites(study, "sparsity", True, _HIGH)
    return [
        _claim(
            "ReLA-g is highly sparse at every site (Figure 3)",
            high,
            "High is read as more than half of the weights exactly 0.",
        )
    ]


def _null_rates(study: Dict[str, Any]) -> List[Claim]:
    row = find_row(study, 7)
    true, false = (
        values(row, at_level(study, f"{kind}.cross")) if row else {} for kind in ("null_rate", "null_rate_shuffled")
    )
    rise = [Check("cross-attention, shuffled less true", paired(false, true), True, 0, **_POINTS)]
    return [
        _claim("Heads of ReLA-g switch off for some queries (Figure 6)", _of_sites(study, "null_rate", True, 0), ""),
        _claim("Shuffled targets raise the null rate of cross-attention (Figure 6)", rise, ""),
        _claim(
            "The attention averaged over the heads of a layer is almost never null (section 5.2)",
            _of_sites(study, "layer_null_rate", False, _ALMOST_NEVER),
            "Almost never is read as below 1 % of the queries.",
        ),
    ]


def _diversity(study: Dict[str, Any]) -> List[Claim]:
    softmax, row = find_row(study, 1), find_row(study, 7)

    def checks(tau: str) -> List[Check]:
        found = []
        for site in SITES:
            ours, theirs = (
                values(one, at_level(study, f"diversity.{site}.{at}")) if one else {}
                for one, at in ((row, tau), (softmax, "1.0"))
            )
            found.append(Check(f"{site}, \u03c4 = {tau}", paired(ours, theirs), True, 0, digits=3, unit="nats"))
        return found

    first, *others = (tau for attention, tau in paper.TABLE_6 if attention == "rela_g" and tau is not None)
    lower = [check for tau in others for check in checks(tau)]
    return [
        _claim("Heads of ReLA-g are more diverse than those of softmax (Figure 5)", checks(first), ""),
        _claim(f"They are so at \u03c4 = {text.join(others)} too (Table 6)", lower, ""),
    ]


def _alignment(study: Dict[str, Any]) -> List[Claim]:
    def checks(number: int, against: str) -> List[Check]:
        return [
            _pair(study, 7, number, measure, f"{name}{against}", above=False, limit=0, **_POINTS)
            for name, measure in ERRORS.items()
        ]

    links = f"Against {gold_name(study)}." if study.get("gold_kind") else ""
    sparse = checks(2, ", less sparsemax") + checks(3, ", less 1.5-entmax")
    return [
        _claim("ReLA-g aligns better than softmax (AER, Table 5)", checks(1, ""), links),
        _claim("ReLA-g aligns better than sparsemax and 1.5-entmax (AER, Table 5)", sparse, links),
    ]


def _ranking(study: Dict[str, Any]) -> List[Claim]:
    row = find_row(study, 7)
    start = "auc.null_rate."
    kinds = [name[len(start) :] for name in (by_measure(row) if row else ()) if name.startswith(start)]
    if not kinds:
        return []
    found = [Check(kind.replace("_", " "), mean(row, start + kind), True, 0.5) for kind in kinds]
    pairs = [(kind, mean(row, start + kind), mean(row, f"auc.log_probability.{kind}")) for kind in kinds]
    better = [kind for kind, null, own in pairs if null is not None and own is not None and null.mean > own.mean]
    says = f"Ahead of the model's own log-probability on average: {text.join(better).replace('_', ' ') or 'none'}."
    return [_claim("The null rate of cross-attention finds wrong pairs (section 5.2; area under ROC)", found, says)]


_CLAIMS: List[Callable[[Dict[str, Any]], List[Claim]]] = [
    _quality,
    _norm_needed,
    _ablation,
    _sparsity,
    _null_rates,
    _diversity,
    _alignment,
    _ranking,
]


def count(claims: Sequence[Claim]) -> Dict[str, int]:
    """Return how many claims have each verdict."""
    return {verdict: sum(claim.verdict == verdict for claim in claims) for verdict in (AGREES, DIFFERS, OPEN)}
