import pytest

from starpo.ragen.config.processor import Processor

X86 = "processor\t: 0\nmodel name\t: Intel(R) Xeon(R) Processor\nflags\t\t: fpu avx2 avx512f{more}\n\n"


@pytest.mark.parametrize(
    ("more", "is_fast"), [("", False), (" avx512_bf16", True), (" amx_tile amx_bf16", True), (" amx_int8", False)]
)
def test_bfloat16_needs_its_own_instructions(more: str, is_fast: bool) -> None:
    processor = Processor.of(X86.format(more=more) + X86.format(more=" amx_bf16"))  # the first core counts
    assert processor.name == "Intel(R) Xeon(R) Processor"
    assert processor.instructions[:2] == ("avx2", "avx512f")
    assert processor.multiplies_bfloat16 == is_fast


def test_arm_flags_are_read() -> None:
    assert Processor.of("BogoMIPS\t: 2100\nFeatures\t: asimd sve bf16\n").instructions == ("sve", "bf16")


def test_unknown_processor_has_no_instructions() -> None:
    assert Processor.of("").facts() == {"cpu": "", "instructions": ""}
