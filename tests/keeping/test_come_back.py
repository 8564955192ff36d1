"""What these tests ask of keeping holds again when they are back."""

import pytest


@pytest.mark.skip(reason="come back on derived rows")
def test_the_contract_of_keeping() -> None:
    """The other files of this folder."""
