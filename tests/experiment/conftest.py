from tests.transport.conftest import one_thread

__all__ = ["one_thread"]
