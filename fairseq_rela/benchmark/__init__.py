"""The command ``rela bench``: time attention variants in turn in one process, and draw figures of the results.

- Parts: :mod:`.core` (attention alone), :mod:`.op` (the operator without fairseq; both with :mod:`.passes` and
  :mod:`.memory`), :mod:`.models` (random weights), :mod:`.language_model`, :mod:`.trained` (decoding by trained
  models), :mod:`.real_text` (training on real text), :mod:`.flops`.
- Method: :mod:`.plan` (sizes and time), :mod:`.timing` (candidates in turn).
- Result: :mod:`.run` writes the record, :mod:`.shown` the lines in the terminal, :mod:`.figures` the pictures.
"""
