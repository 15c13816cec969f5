"""safe-eviction: which keys can be dropped from a cache for good, and at what price (THEORY.md).

Let all content logits be at most U in size (queries and keys normalised: U is the scale), and let a key be dropped at
the first query at which its penalty, times lambda, is at least

    margin = 2 U + ln(T / epsilon).

Claim. If at most T keys are dropped so, then at every query they have together at most epsilon of the attention
weight, so that dropping them moves the weights by a total variation of at most epsilon.

Proof. Penalties never shrink (any-eviction), so at every later query the key's logit is at most U - margin. The query's
own position has no penalty and a logit of at least -U. So the key's weight is at most exp(2 U - margin) = epsilon / T.
The weights left are scaled up by 1 / (1 - what is dropped), which moves exactly what is dropped.                   QED

Without a bound on later queries and keys nothing is safe: one large logit brings a key back, whatever its penalty.
"""

import math


def margin(bound: float, dropped: int, epsilon: float) -> float:
    """The penalty, times lambda, from which at most `dropped` keys may go, logits being at most `bound` in size."""
    return 2 * bound + math.log(dropped / epsilon)
