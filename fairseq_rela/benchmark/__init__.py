"""The command ``rela bench``: time attention variants in turn in one process, and draw figures of the results.

- What is measured: :mod:`.core` (attention alone, with :mod:`.memory`), :mod:`.models` (models with random weights),
  :mod:`.trained` (decoding by trained models), :mod:`.real_text` (training on the text of a data folder), :mod:`.flops`.
- How: :mod:`.plan` (sizes and time), :mod:`.timing` (candidates in turn).
- The result: :mod:`.run` writes the record, :mod:`.shown` the lines in the terminal, :mod:`.figures` the pictures.
"""
