"""Measure the attention of trained models, align words with it, and rank corpora by it.

- One model on one subset: :mod:`.analyze` (read it first), its :mod:`.options`, the :mod:`.sentences`
  (:mod:`.contexts` of a language model), the weights that :mod:`.capture` records, the :mod:`.collectors` that add
  them up at the :mod:`.levels` of pieces and words, and the :mod:`.record` that is written.
- Measures, pure functions: :mod:`.sparsity`, :mod:`.diversity`, :mod:`.merging`, :mod:`.wake`, :mod:`.aer`,
  :mod:`.targets`.
- Word alignment: :mod:`.align` with the :mod:`.best_head`, :mod:`.goldset`, :mod:`.silver`.
- Ranking a corpus: :mod:`.rank`, from :mod:`.pair_encoder` and :mod:`.pair_scorer` by :mod:`.scoring` to the
  :mod:`.score_file` and its :mod:`.selections` by :mod:`.orders`.
- How well the scores detect bad pairs: :mod:`.damage` makes such pairs, :mod:`.detection` measures, and
  :mod:`.comparison` combines the results of several models.
- Numbers of several seeds: :mod:`.summaries`.
"""
