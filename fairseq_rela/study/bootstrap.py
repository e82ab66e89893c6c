"""The significance of a difference in BLEU on one test set, by sacreBLEU's paired bootstrap."""

from typing import Any, Dict, List, Sequence, Tuple

from ..experiment.scoring import sacrebleu_metric

BOOTSTRAP_SAMPLES = 1000


def paired_bootstrap(
    hypotheses: Sequence[str], baseline: Sequence[str], references: Sequence[str], target_lang: str
) -> Dict[str, Any]:
    """Return the result of sacreBLEU's paired bootstrap test of two translations of a test set (Koehn 2004).

    Args:
        hypotheses: the translation to test, detokenised.
        baseline: the translation to compare it with.
        references: raw reference text.
        target_lang: language code; selects sacreBLEU's tokeniser (zh for Chinese, otherwise 13a).

    Returns:
        ``difference`` in BLEU, hypotheses minus baseline; ``p`` for the null hypothesis that both are equal; and
        ``interval``, the 95 % interval of the BLEU of ``hypotheses`` over the resampled test sets.
    """
    from sacrebleu.significance import PairedTest

    metric = sacrebleu_metric(target_lang)
    # sacreBLEU refuses two equal translations as a mistake; their difference is 0
    if list(hypotheses) == list(baseline):
        score = metric.corpus_score(list(hypotheses), [list(references)]).score
        return {"difference": 0.0, "p": 1.0, "interval": [score, score]}
    systems: List[Tuple[str, Sequence[str]]] = [("baseline", list(baseline)), ("system", list(hypotheses))]
    test = PairedTest(systems, {"BLEU": metric}, [list(references)], test_type="bs", n_samples=BOOTSTRAP_SAMPLES)
    _, scores = test()
    results: Any = scores["BLEU"]
    first, second = results
    return {
        "difference": second.score - first.score,
        "p": second.p_value,
        "interval": [second.mean - second.ci, second.mean + second.ci],
    }
