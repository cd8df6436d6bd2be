from __future__ import annotations

from scarlet.report.axes import axes
from tests.report.runs import run


def test_numbers_are_in_order_then_words_then_nothing() -> None:
    runs = [run("scarlet", 0, [0.5], beta=beta) for beta in (10.0, "auto", 2.0)]
    method, beta = axes([run("dsfl", 0, [0.5]), *runs])
    assert (method.option, method.values) == ("method", ("DS-FL", "SCARLET"))
    assert (beta.option, beta.values) == ("beta", ("2.0", "10.0", "auto", "–"))
    assert [beta.position(each) for each in runs] == [1, 2, 0]


def test_an_option_that_follows_the_method_or_another_option_is_no_axis() -> None:
    runs = [
        run(method, seed, [0.5], workers=seed, uplink_bits=bits, private=private, model=f"for {private}")
        for method, bits in (("cfd", 1), ("dsfl", 32))
        for private in ("mnist5k", "cifar10")
        for seed in (0, 1)
    ]
    assert [axis.option for axis in axes(runs)] == ["method", "private"]


def test_one_run_has_no_axis() -> None:
    assert axes([run("scarlet", 0, [0.5], beta=1.0)]) == ()
