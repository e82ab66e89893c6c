"""The page that compares runs with the paper.

- the runs: ``run``, ``records`` (reads and checks their files), ``groups`` (which can be compared), ``seeds`` (means);
- the paper's numbers: ``paper``; the speeds of a benchmark: ``speed``;
- what the page shows: ``overview``, ``missing``, ``bleu_tables``, ``cost_tables``, ``attention_tables``, ``figures``,
  ``layer_figures``, ``head_figures``, ``wake``, ``sentences``; drawn by ``plots``;
- the page itself: ``page`` fills ``report.jinja`` by ``template`` and writes it by ``figure_folder``;
- ``heatmaps``: the heat maps of ``rela analyze --heat-map``.
"""
