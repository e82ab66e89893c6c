"""Look inside trained models, and use what is seen.

- One model on one subset: :mod:`.analyze` (read it first), its :mod:`.options`, the :mod:`.sentences`, the weights that
  :mod:`.capture` records, the :mod:`.collectors` that count in them, the :mod:`.record` that is written.
- Measures, pure functions: :mod:`.sparsity`, :mod:`.diversity`, :mod:`.merging`, :mod:`.wake`, :mod:`.aer`.
- Word alignment: :mod:`.align` with the :mod:`.best_head`, :mod:`.goldset`, :mod:`.silver`.
- Ranking a corpus: :mod:`.rank`, from :mod:`.pair_encoder` and :mod:`.pair_scorer` by :mod:`.scoring` to the
  :mod:`.score_file` and its :mod:`.selections` by :mod:`.orders`.
- How well scores detect bad pairs: :mod:`.detection` of :mod:`.damage`, and its :mod:`.comparison` over models.
"""
