import jaxtyping
import pytest


@pytest.fixture
def as_users_have_it():
    """Without the run-time checks of types, which users do not have: bad input must be refused by the code itself."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
