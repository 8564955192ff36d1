"""What these tests ask of observations holds again when they are back."""

import pytest


@pytest.mark.skip(reason="come back on derived rows")
def test_the_contract_of_observations() -> None:
    """The other files of this folder."""
