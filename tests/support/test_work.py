import pytest
import torch

from assay._support.work import one_thread, spread_over


def test_one_thread_to_a_product():
    before = torch.get_num_threads()
    with one_thread():
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("workers", [1, 3])
def test_order_is_kept_and_threads_are_given_back(workers):
    before = torch.get_num_threads()
    with spread_over(workers) as apply:
        inside = torch.get_num_threads()
        assert list(apply(lambda i: i**2, range(50))) == [i**2 for i in range(50)]
    assert torch.get_num_threads() == before
    assert inside == (before if workers == 1 else 1)
    with pytest.raises(ZeroDivisionError), spread_over(workers) as apply:
        list(apply(lambda i: 1 / i, [1, 0, 2]))
    assert torch.get_num_threads() == before


def test_overlapping_users_give_all_threads_back():
    before = torch.get_num_threads()
    first, second = spread_over(2), spread_over(2)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert torch.get_num_threads() == 1
    second.__exit__(None, None, None)
    assert torch.get_num_threads() == before
