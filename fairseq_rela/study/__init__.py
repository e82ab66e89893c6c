"""Studies: train several models with several seeds, measure them, and compare them with a baseline.

- A study: :mod:`.spec` reads its rows and seeds, :mod:`.folder` has its runs and their files.
- Runs: the :mod:`.queue` starts them, :mod:`.perform` trains and measures one.
- Numbers: :mod:`.collect` writes ``study.json`` from the records of the runs, with the :mod:`.bootstrap`;
  :mod:`.measures` and :mod:`.values` read it; :mod:`.gold_set` measures one more gold alignment.
- Judgement: :mod:`.claims`.
- Output: :mod:`.paper_tables` and :mod:`.target_table` for HTML and Markdown, :mod:`.tables` (Markdown),
  :mod:`.figures`, the words of all in :mod:`.text`, the :mod:`.page`, and :mod:`.docs`, which fills the documents.
"""
