"""Readers of attention weights in fairseq's commands: hard and soft alignments, and ``--replace-unk``.

The weights of a hypothesis are those of the last decoder layer's cross-attention, averaged over its heads and over
the models of an ensemble. Weights of ReLU, GeLU and leaky ReLU are not probabilities, and a query may attend to
nothing; fairseq's own functions do not allow for that.

Letters in shapes: S source tokens, T target tokens.
"""

import functools
from typing import Any, Dict, List, Optional, Sequence, Tuple

from fairseq import utils
from fairseq.data import data_utils
from fairseq.sequence_scorer import SequenceScorer
from torch import Tensor

from .alignment import Link, strongest_links
from .errors import InputError, one_line_in_fairseq
from .functional import as_probabilities


class Links(List[Link]):
    """The links (source word, target word) of one hypothesis, as numbers from 0.

    Attributes:
        source_length: number of source words, without the end of sentence.
    """

    def __init__(self, links: Sequence[Link], source_length: int) -> None:
        super().__init__(links)
        self.source_length = source_length


def hard_alignment(attention: Tensor, source: Tensor, target: Tensor, pad: int, eos: int) -> Links:
    """Return the links of fairseq's ``extract_hard_alignment``, but no link for a query that attends to nothing.

    fairseq links such a query to the first word.

    Args:
        attention: weights of one hypothesis, ``(T, S)``.
        source: tokens, ``(S,)`` or longer.
        target: tokens, ``(T,)`` or longer, padded to the longest hypothesis of the batch.
        pad, eos: numbers of the padding token and of the end of sentence.
    """
    source_words, target_words = (
        ((tokens != pad) & (tokens != eos)).nonzero(as_tuple=True)[0] for tokens in (source, target)
    )
    return Links(strongest_links(attention[target_words][:, source_words]), len(source_words))


def soft_alignment(attention: Tensor, source: Tensor, target: Tensor, pad: int, eos: int) -> List[List[str]]:
    """Return alignment probabilities in the format of fairseq's ``extract_soft_alignment``, which returns raw weights.

    There is a row for each target token and a number for each source token, including the ends of sentences. Weights
    below 0 are set to 0, and each row is divided by its sum. A query that attends to nothing gets a row of zeros.

    Args:
        attention, source, target, pad, eos: as for :func:`hard_alignment`. ``eos`` is not used.
    """
    source_tokens, target_tokens = ((tokens != pad).nonzero(as_tuple=True)[0] for tokens in (source, target))
    rows = as_probabilities(attention[target_tokens][:, source_tokens])
    return [[f"{p:.6f}" for p in row] for row in rows.tolist()]


class AlignedScorer(SequenceScorer):
    """Score reference translations as fairseq does, and extract alignments with a given function.

    fairseq's own scorer always extracts hard alignments, and links a query that attends to nothing to the first word.

    Args:
        tgt_dict: the target dictionary.
        extract_alignment: :func:`hard_alignment`, :func:`soft_alignment`, or a function with the same arguments.
    """

    def __init__(self, tgt_dict: Any, extract_alignment: Any) -> None:
        super().__init__(tgt_dict)
        self.extract_alignment = extract_alignment

    def generate(self, models: Any, sample: Dict[str, Any], **kwargs: Any) -> List[List[Dict[str, Any]]]:
        """Score the references of a batch, and set ``alignment`` where there are attention weights."""
        scored = super().generate(models, sample, **kwargs)
        for source, (hypothesis,) in zip(sample["net_input"]["src_tokens"], scored):
            if hypothesis["attention"] is None:
                continue
            tensors = [tensor.cpu() for tensor in (hypothesis["attention"], source, hypothesis["tokens"])]
            hypothesis["alignment"] = self.extract_alignment(*tensors, self.pad, self.eos)
        return scored


def replace_unknown(pieces: List[str], source: List[str], links: Links, lexicon: Dict[str, str], unk: str) -> List[str]:
    """Return the target pieces with each ``unk`` replaced by the source word that it is linked to.

    An unknown word without a link stays ``unk``.

    Args:
        pieces: target pieces, before BPE is undone.
        source: source words, as many as the model was given.
        links: the links of the hypothesis.
        lexicon: translations of source words; a word that is not in it is copied.
        unk: the symbol for an unknown word.

    Raises:
        InputError: ``source`` does not have as many words as the model was given.
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
    """Make ``--replace-unk`` work with the links of this plugin's task, by replacing a function of fairseq.

    fairseq 0.12 still expects source positions in ``hypothesis["alignment"]``, which now holds links or nothing, and
    fails at the first unknown word. Hypotheses of other tasks still go to fairseq's function.
    """
    original = utils.post_process_prediction
    if getattr(original, "follows_links", False):  # already replaced
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
