"""What fairseq's commands make of attention weights: links, soft alignments, words in the place of unknown ones.

The weights of a hypothesis are those of the last decoder layer's cross-attention, averaged over its heads and over
the models of an ensemble. Those of ReLU, GeLU and leaky ReLU are no probabilities, and a query may attend to nothing.
"""

import functools
from typing import Any, Dict, List, Optional, Sequence, Tuple

from fairseq import utils
from fairseq.data import data_utils
from fairseq.sequence_scorer import SequenceScorer
from torch import Tensor

from .analysis.alignment import Link, strongest_links
from .errors import InputError, one_line_in_fairseq
from .functional import as_probabilities


class Links(List[Link]):
    """The links of one hypothesis.

    Attributes:
        source_length: words of the source sentence, its end left out.
    """

    def __init__(self, links: Sequence[Link], source_length: int) -> None:
        super().__init__(links)
        self.source_length = source_length


def hard_alignment(attention: Tensor, source: Tensor, target: Tensor, pad: int, eos: int) -> Links:
    """Return the links of ``extract_hard_alignment`` of fairseq, but none of a query that attends to nothing.

    fairseq links such a query to the first word.

    Args:
        attention: (T, S), of one hypothesis.
        source, target: (S,) and (T,) or longer, tokens; a target is padded to the longest hypothesis of its batch.
    """
    source_words, target_words = (
        ((tokens != pad) & (tokens != eos)).nonzero(as_tuple=True)[0] for tokens in (source, target)
    )
    return Links(strongest_links(attention[target_words][:, source_words]), len(source_words))


def soft_alignment(attention: Tensor, source: Tensor, target: Tensor, pad: int, eos: int) -> List[List[str]]:
    """Return probabilities in the form of ``extract_soft_alignment`` of fairseq, which prints the bare weights.

    A row for each target token, a number for each source token, ends of sentences counted. Weights below 0 count
    as 0, and each row is divided by its sum. A row of zeros is a query that attends to nothing.

    Args:
        attention, source, target: as for :func:`hard_alignment`.
    """
    source_tokens, target_tokens = ((tokens != pad).nonzero(as_tuple=True)[0] for tokens in (source, target))
    rows = as_probabilities(attention[target_tokens][:, source_tokens])
    return [[f"{p:.6f}" for p in row] for row in rows.tolist()]


class AlignedScorer(SequenceScorer):
    """fairseq's scorer of reference translations, with alignments by a function that is given.

    fairseq's own always extracts hard alignments, and links queries that attend to nothing to the first word.
    """

    def __init__(self, tgt_dict: Any, extract_alignment: Any) -> None:
        super().__init__(tgt_dict)
        self.extract_alignment = extract_alignment

    def generate(self, models: Any, sample: Dict[str, Any], **kwargs: Any) -> List[List[Dict[str, Any]]]:
        """Score the references of a batch, see fairseq's scorer."""
        scored = super().generate(models, sample, **kwargs)
        for source, (hypothesis,) in zip(sample["net_input"]["src_tokens"], scored):
            if hypothesis["attention"] is None:
                continue
            tensors = [tensor.cpu() for tensor in (hypothesis["attention"], source, hypothesis["tokens"])]
            hypothesis["alignment"] = self.extract_alignment(*tensors, self.pad, self.eos)
        return scored


def replace_unknown(pieces: List[str], source: List[str], links: Links, lexicon: Dict[str, str], unk: str) -> List[str]:
    """Return the target pieces with each ``unk`` replaced by the source word that it is linked to.

    An unknown word without a link stays ``unk``: a query that attends to nothing says nothing about its word.

    Args:
        pieces: target, before BPE is undone.
        source: source words, as many as the model was given.
        links: of the hypothesis.
        lexicon: translations of source words; other words are copied.

    Raises:
        InputError: the source has another number of words than the model was given.
    """
    if unk not in pieces:
        return pieces
    if len(source) != links.source_length:
        raise InputError(
            f"--replace-unk: the source has {len(source)} words once its BPE is undone, and {links.source_length} "
            "pieces in the model; leave out --bpe and, in fairseq-interactive, --remove-bpe"
        )
    word_of = {t: source[s] for s, t in links}
    return [
        lexicon.get(word_of[t], word_of[t]) if piece == unk and t in word_of else piece
        for t, piece in enumerate(pieces)
    ]


def let_unknown_words_follow_links() -> None:
    """Make ``--replace-unk`` work with the links of this plugin's task.

    fairseq 0.12 still looks up a source position in ``hypothesis["alignment"]``, which now holds links, or nothing:
    it stops at the first unknown word. Hypotheses of other tasks are left to fairseq.
    """
    original = utils.post_process_prediction
    if getattr(original, "follows_links", False):  # registered before
        return

    @functools.wraps(original)
    def post_process_prediction(
        hypo_tokens: Tensor,
        src_str: str,
        alignment: Any,
        align_dict: Optional[Dict[str, str]],
        tgt_dict: Any,
        remove_bpe: Optional[str] = None,
        extra_symbols_to_ignore: Any = None,
    ) -> Tuple[Tensor, str, Any]:
        if align_dict is None or not isinstance(alignment, Links):
            return original(hypo_tokens, src_str, alignment, align_dict, tgt_dict, remove_bpe, extra_symbols_to_ignore)
        pieces = tgt_dict.string(hypo_tokens, extra_symbols_to_ignore=extra_symbols_to_ignore).split()
        with one_line_in_fairseq():
            pieces = replace_unknown(pieces, src_str.split(), alignment, align_dict, tgt_dict.unk_string())
        hypo_str = data_utils.post_process(" ".join(pieces), remove_bpe)
        return tgt_dict.encode_line(hypo_str, add_if_not_exist=True), hypo_str, alignment

    post_process_prediction.follows_links = True  # type: ignore[attr-defined]
    utils.post_process_prediction = post_process_prediction
