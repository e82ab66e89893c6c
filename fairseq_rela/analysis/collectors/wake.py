"""Collect which words and tags wake each head."""

from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch

from ...alignment import word_ids
from ...variants import SITES
from ..capture import Batch
from ..sentences import Sentence, join_words
from ..sparsity import awake_queries
from ..wake import WakeCounts, awake_words
from .sites import Sparsity

LISTED = 20  # number of words listed for each head
FEWEST = 5  # the share is unreliable for words with fewer occurrences


class Wake:
    """Count which words and tags wake each head, without the ends of sentences.

    A query belongs to a source word in the encoder. In the decoder and in cross-attention it belongs to the target word
    that its step consumes, which stands before the word that the step predicts.

    Args:
        sentences: all sentences of the subset.
        target_tags, source_tags: the tags of the words of each sentence, or None.
        sparsity: the collector of the null rates that are listed with the words.
    """

    def __init__(
        self,
        sentences: Sequence[Sentence],
        target_tags: Optional[List[List[str]]],
        source_tags: Optional[List[List[str]]],
        sparsity: Sparsity,
    ) -> None:
        self._sentences, self._sparsity = sentences, sparsity
        self._tags = {"encoder": source_tags, "decoder": target_tags, "cross": target_tags}
        self._words: Dict[Tuple[str, int], WakeCounts] = {}
        self._by_tag: Dict[Tuple[str, int], WakeCounts] = {}

    def add(self, batch: Batch) -> None:
        """Count the words and tags of one batch."""
        for item in batch.modules:
            awake = awake_queries(item.weights, item.allowed)  # (B, H, T)
            tags = self._tags[item.site]
            words: List[str] = []
            labels: List[str] = []
            woken = []
            for row, index in enumerate(batch.ids):
                first, pieces = 0, self._sentences[index].source
                if item.site != "encoder":
                    first, pieces = 1, self._sentences[index].target  # step 0 consumes the end of sentence
                queries = awake[row, :, first : first + len(pieces) - 1]
                woken.append(awake_words(queries, word_ids(pieces[:-1])))
                words += join_words(pieces)
                labels += tags[index] if tags is not None else []
            heads, key = torch.cat(woken, dim=1), (item.site, item.layer)
            self._words.setdefault(key, WakeCounts(len(heads))).add(words, heads)
            if tags is not None:
                self._by_tag.setdefault(key, WakeCounts(len(heads))).add(labels, heads)

    def result(self) -> Dict[str, Any]:
        """Return the entry ``wake`` of an analysis."""
        result: Dict[str, Any] = {site: [] for site in SITES}
        for (site, layer), counts in self._words.items():
            for head, null_rate in enumerate(self._sparsity.counts[site, layer].null_rate_by_head):
                words = counts.by_share(head, FEWEST)[:LISTED]
                tags = self._by_tag[site, layer].by_share(head) if (site, layer) in self._by_tag else []
                result[site].append(
                    {
                        "layer": layer,
                        "head": head,
                        "null_rate": null_rate,
                        "words": [{"word": word.key, "count": word.count, "share": word.share} for word in words],
                        "tags": {tag.key: tag.share for tag in tags},
                    }
                )
        return result
