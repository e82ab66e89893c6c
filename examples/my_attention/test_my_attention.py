import my_attention  # noqa: F401  registers the variant
from fairseq_rela.testing import check_variant


def test_temperature():
    check_variant("temperature")
