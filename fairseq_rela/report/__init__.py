"""The page of ``rela report``, which compares runs with each other and with the paper.

- The runs: :mod:`.run`, :mod:`.records` (reads and checks their files), :mod:`.groups` (which can be compared),
  :mod:`.seeds` (means over seeds).
- Numbers to compare with: :mod:`.paper` (published), :mod:`.speed` (of a benchmark).
- Tables (:mod:`.table`): :mod:`.overview`, :mod:`.bleu_tables`, :mod:`.cost_tables`, :mod:`.attention_tables`.
- Figures (:mod:`.figure`): :mod:`.figures`, :mod:`.layer_figures`, :mod:`.head_figures` (of a :mod:`.head`),
  :mod:`.operator_figure`, :mod:`.position_figure`, drawn by :mod:`.plots` and written by :mod:`.figure_folder`.
- Other sections: :mod:`.missing`, :mod:`.wake`, :mod:`.sentences`.
- The page: :mod:`.page` fills ``report.jinja`` by :mod:`.template`; :mod:`.characters` replaces what no font can show.
- Heat maps of ``rela analyze --heat-map``: :mod:`.heatmaps`.
"""
