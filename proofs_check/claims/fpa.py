"""The claims about First Passage Attention, section by section as THEORY.md has them."""

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import combinations, product

from proofs_check import exact
from proofs_check.bounds import family_decision as free
from proofs_check.bounds import tied_tokens as tied
from proofs_check.bounds import walk_is_a_stack as stack
from proofs_check.certificates import Certificates
from proofs_check.claims.brute_force import (
    Number,
    free_levels_possible,
    histories,
    laminar_possible,
    penalties,
    rows,
    subsets,
    walk,
    walk_possible,
)
from proofs_check.claims.registry import Instance, claim
from proofs_check.constructions import any_eviction as eviction
from proofs_check.constructions import constant_dimension as constant
from proofs_check.constructions import nested_scope as nested
from proofs_check.constructions.token_head import TokenHead
from proofs_check.keysets import Family, Histories, KeySetSpec, Tokens

EPSILON = 1e-3


def head_numbers(head: TokenHead, tokens: Sequence[str]) -> tuple[list[Number], list[Number]]:
    """Field and levels of a sequence, by the definition of the head's form."""
    values = [head.values[token] for token in tokens]
    field = walk(values) if head.field == "walk" else values
    if head.level == "tied":
        return field, field
    own = [head.levels[token] for token in tokens]
    return field, [o + u for o, u in zip(own, field)] if head.level == "offset" else own


def reads(head: TokenHead, tokens: Sequence[str], query: int, target: set[int]) -> bool:
    """Exactly the keys of the target are without penalty at the query, all others pay at least the head's gap."""
    field, levels = head_numbers(head, tokens)
    found = penalties(levels, field, query)
    keys = [at for at in range(query + 1) if tokens[at] in head.key_tokens]
    return all(found[at] == 0 if at in target else found[at] >= head.gap for at in keys)


def largest_tv(head: TokenHead, tokens: Sequence[str], query: int, target: set[int]) -> float:
    """Total variation from uniform on the target, with the mask and penalty scale that the head states for EPSILON."""
    field, levels = head_numbers(head, tokens)
    scale, mask = head.penalty_scale(len(tokens), EPSILON), head.mask(len(tokens), EPSILON)
    found = penalties(levels, field, query)
    logits = [-float(scale * p) - (0 if t in head.key_tokens else mask) for p, t in zip(found, tokens)]
    weights = [math.exp(logit) for logit in logits]
    total = sum(weights)
    return sum(abs(w / total - (at in target) / len(target)) for at, w in enumerate(weights)) / 2


def certified(spec: KeySetSpec, found) -> bool:
    """Whether the exact checker accepts what a decision found."""
    certificates = Certificates(spec)
    certificates.add_fpa(found)
    return all(verdict.accepted for verdict in exact.verify(certificates.document()))


def death_times(length: int) -> Iterator[tuple[int, ...]]:
    """All ways to kill: for each position 0 (no key), or a step after it, `length` being never."""
    return product(*([0, *range(at + 1, length + 1)] for at in range(length)))


@claim(
    "any-eviction",
    "every choice of death times on short sequences, random ones on longer ones: alive means penalty 0, dead at least"
    " 1/2, the stated lambda keeps the promised total variation; on all small fields no key comes back to life",
    "exact, weights in float",
)
def any_eviction(size: int) -> Iterator[Instance]:
    for length in range(1, min(size, 5) + 3):
        for death in death_times(length):
            yield eviction_reads(death), f"death times {death}"
    rng = random.Random(1)
    for case in range(10 * size):
        length = 10 * size
        drawn = [rng.randint(at + 1, length) if rng.random() < 0.7 else 0 for at in range(length)]
        yield eviction_reads(drawn) and eviction_weights(drawn), f"death times {drawn} (random, seed 1, case {case})"
    for length in range(2, min(size, 6) + 4):
        for field in product(range(3), repeat=length):
            for level in range(3):
                paid = [penalties([level] * length, field, query)[0] for query in range(length)]
                yield paid == sorted(paid), f"level {level}, field {field}"


def eviction_reads(death: Sequence[int]) -> bool:
    head = eviction.any_eviction(death)
    tokens = [str(at + 1) for at in range(len(death))]
    alive = [{at for at in range(query + 1) if query < death[at]} for query in range(len(death))]
    return head.gap == Fraction(1, 2) and all(reads(head, tokens, query, alive[query]) for query in range(len(death)))


def eviction_weights(death: Sequence[int]) -> bool:
    head = eviction.any_eviction(death)
    tokens = [str(at + 1) for at in range(len(death))]
    query = len(death) - 1
    alive = {at for at in range(query + 1) if query < death[at]}
    return not alive or largest_tv(head, tokens, query, alive) <= EPSILON


@claim(
    "constant-dimension",
    "one head reads every set of up to 4 + size keys, and random sets of hundreds, in the encoding with dips after each"
    " key",
    "exact, weights in float",
)
def constant_dimension(size: int) -> Iterator[Instance]:
    head = constant.constant_dimension()
    yield head.dimension == 1, f"content dimension {head.dimension}"
    for keys in range(1, 4 + size + 1):
        for chosen in subsets(keys, empty=True):
            yield subset_read(head, keys, chosen), f"keys {chosen} of {keys}"
    rng = random.Random(2)
    for keys in (30 * size, 60 * size):
        chosen = tuple(key for key in range(keys) if rng.random() < 0.5)
        yield subset_read(head, keys, chosen), f"{len(chosen)} random keys of {keys}"


def subset_read(head: TokenHead, keys: int, chosen: Sequence[int]) -> bool:
    tokens = [token for key in range(keys) for token in ("key", "keep" if key in chosen else "drop")] + ["query"]
    places = {2 * key for key in chosen}
    close = not places or largest_tv(head, tokens, len(tokens) - 1, places) <= EPSILON
    return close and reads(head, tokens, len(tokens) - 1, places) and constant.encode(keys, chosen) == tokens


def scopes(tokens: Sequence[str]) -> list[set[int]]:
    """For each position the keys of the scopes still open, by a stack of scopes."""
    found: list[set[int]] = []
    open_scopes: list[set[int]] = [set()]
    for at, token in enumerate(tokens):
        if token == "open":
            open_scopes.append(set())
        elif token == "close":
            open_scopes.pop()
        else:
            open_scopes[-1].add(at)
        found.append(set().union(*open_scopes))
    return found


def bracketed(length: int) -> Iterator[tuple[str, ...]]:
    """All sequences of that length of keys and brackets that never close more than they opened."""

    def grow(tokens: tuple[str, ...], depth: int) -> Iterator[tuple[str, ...]]:
        if len(tokens) == length:
            yield tokens
            return
        yield from grow((*tokens, "key"), depth)
        yield from grow((*tokens, "open"), depth + 1)
        if depth:
            yield from grow((*tokens, "close"), depth - 1)

    return grow((), 0)


def random_scopes(rng: random.Random, length: int) -> list[str]:
    """Keys and brackets of any depth."""
    tokens: list[str] = []
    depth = 0
    for _ in range(length):
        tokens.append(rng.choice(["key", "open"] + ["close"] * (depth > 0)))
        depth += {"key": 0, "open": 1, "close": -1}[tokens[-1]]
    return tokens


@claim(
    "nested-scope",
    "every sequence of keys and brackets of up to 4 + size tokens, random long ones: every position reads exactly the"
    " keys of the scopes still open",
    "exact, weights in float",
)
def nested_scope(size: int) -> Iterator[Instance]:
    head = nested.nested_scope()
    for length in range(1, min(4 + size, 9) + 1):
        for tokens in bracketed(length):
            yield scopes_read(head, tokens), " ".join(tokens)
    rng = random.Random(3)
    for case in range(size):
        long = random_scopes(rng, 100 * size)
        yield scopes_read(head, long, every=37), f"{len(long)} random tokens (seed 3, case {case})"


def scopes_read(head: TokenHead, tokens: Sequence[str], every: int = 1) -> bool:
    open_keys = scopes(tokens)
    queries = range(len(tokens) - 1, -1, -every)
    if open_keys[-1] and largest_tv(head, tokens, len(tokens) - 1, open_keys[-1]) > EPSILON:
        return False
    return all(reads(head, tokens, query, open_keys[query]) for query in queries)


def small_histories(size: int) -> Iterator[Histories]:
    """All histories of few events over at most three keys, one at a time."""
    for events in histories(3, min(size, 3) + 2):
        pushed = sum(isinstance(event, int) for event in events)
        listed = tuple(event if isinstance(event, int) else tuple(sorted(event)) for event in events)
        yield Histories(tuple("abc"[:pushed]), (listed,))


def random_histories(rng: random.Random) -> Histories:
    """One to three histories over three or four keys in any order, none revived but a few."""
    keys = rng.randint(3, 4)
    found = []
    for _ in range(rng.randint(1, 3)):
        order = rng.sample(range(keys), keys)
        alive = [order.pop()]
        events: list[int | tuple[int, ...]] = [*alive]
        while order:
            if rng.random() < 0.5:
                alive.append(order.pop())
                events.append(alive[-1])
            else:
                alive = [key for key in alive if rng.random() < 0.7] or alive[-1:]
                events.append(tuple(sorted(alive)))
        found.append((*events, tuple(sorted(rng.sample(alive, rng.randint(1, len(alive)))))))
    return Histories(tuple("abcd"[:keys]), tuple(found))


def small_families(size: int) -> Iterator[Family]:
    """Families over two, three and four keys with every choice of slots: up to 2 * size + 1 targets over three keys (of
    7 that there are), size // 2 over four."""
    for keys, most in ((2, 3), (3, 2 * size + 1), (4, size // 2)):
        sets = subsets(keys)
        for count in range(1, min(most, len(sets)) + 1):
            for chosen in combinations(sets, count):
                for slots in subsets(keys, empty=True):
                    yield Family(tuple("abcd"[:keys]), chosen, slots)


def random_families(rng: random.Random, count: int) -> Iterator[Family]:
    """Families over four keys, up to five targets, slots at random."""
    for _ in range(count):
        sets = rng.sample(subsets(4), rng.randint(1, 5))
        slots = [(0, 1, 2, 3), (3,), tuple(key for key in range(4) if rng.random() < 0.6)]
        yield Family(tuple("abcd"), tuple(sorted(sets)), rng.choice(slots))


@claim(
    "walk-is-a-stack",
    "all families over 3 keys with every choice of slots, all histories of few events, random ones over 4 keys: the"
    " decision equals brute force over all walks, and the existence of laminar lives; every certificate accepted",
    "exact",
)
def walk_is_a_stack(size: int) -> Iterator[Instance]:
    rng = random.Random(4)
    specs: list[KeySetSpec] = [*small_histories(size), *small_families(size), *random_families(rng, 20 * size)]
    specs += [random_histories(rng) for _ in range(20 * size)]
    for spec in specs:
        yield walk_decided(spec), spec.to_data()


def walk_decided(spec: KeySetSpec) -> bool:
    found = stack.walk_decision(spec)
    possible = isinstance(found, stack.Heights)
    laminar = all(laminar_possible(row) for row in rows(spec))
    return possible == walk_possible(spec) == laminar and certified(spec, found)


@claim(
    "walk-drift",
    "a grid of increments and offsets: the tolerated number of closed scopes is the largest that harms no key, by the"
    " definition; random nested sequences within it read as if there were no drift",
    "exact",
)
def walk_drift(size: int) -> Iterator[Instance]:
    rng = random.Random(6)
    for drift in [Fraction(sign, part) for part in range(2, 3 + size) for sign in (-1, 0, 1)]:
        for offset in [Fraction(-part, 6) for part in range(8)]:
            found = nested.tolerated_pairs(1, drift - 1, offset)
            what = f"open 1, close {drift - 1}, offset {offset}, tolerated {found}"
            yield found == pairs_by_definition(drift, offset), what
            if found is None or found > 0:
                tokens = drifting_scopes(rng, 6 * size, MOST_PAIRS if found is None else found)
                yield alive_as_open(nested.nested_scope(1, drift - 1, offset), tokens), f"{what}: {' '.join(tokens)}"


MOST_PAIRS = 30


def pairs_by_definition(drift: Fraction, offset: Fraction) -> int | None:
    """The most closed scopes behind a key for which it is alive and the bracket of its own scope kills it; -1 if not
    even none do; None if MOST_PAIRS do no harm."""
    head = nested.nested_scope(1, drift - 1, offset)
    for pairs in range(MOST_PAIRS + 1):
        tokens = ["open", "key", *["open", "close"] * pairs, "close"]
        field, levels = head_numbers(head, tokens)
        last = len(tokens) - 1
        if penalties(levels, field, last - 1)[1] > 0 or penalties(levels, field, last)[1] == 0:
            return pairs - 1
    return None


def drifting_scopes(rng: random.Random, length: int, pairs: int) -> list[str]:
    """Keys and brackets, every key in a scope, with at most that many scopes closed in any scope while it is open."""
    tokens: list[str] = []
    closed: list[int] = []  # for each open scope, the scopes closed in it, however deep
    while len(tokens) < length or closed:
        room = len(tokens) < length and (not closed or closed[0] + len(closed) <= pairs)
        tokens.append(rng.choice(["open"] * room + ["key"] * bool(closed) + ["close"] * bool(closed)))
        if tokens[-1] == "open":
            closed.append(0)
        elif tokens[-1] == "close":
            closed = [count + 1 for count in closed[:-1]]
    return tokens


def alive_as_open(head: TokenHead, tokens: Sequence[str]) -> bool:
    """At every position the keys without penalty are those of the scopes still open."""
    field, levels = head_numbers(head, tokens)
    for query, open_keys in enumerate(scopes(tokens)):
        found = penalties(levels, field, query)
        if {at for at in range(query + 1) if tokens[at] == "key" and found[at] == 0} != open_keys:
            return False
    return True


@claim(
    "tied-tokens",
    "random sets of sequences over four token types: found increments read everything by the definition, refusals are"
    " certified and no small increments contradict them; nested sequences give +1, -1, 0",
    "exact",
)
def tied_tokens(size: int) -> Iterator[Instance]:
    rng = random.Random(7)
    for case in range(15 * size):
        spec = random_tokens(rng)
        for levels in ("tied", "offset"):
            yield tied_decided(spec, levels), f"{levels} levels (seed 7, case {case}): {spec.to_data()}"
    for sequences, length in ((4 * size, 12), (4, 20 * size)):
        spec = token_scopes([random_scopes(rng, length) for _ in range(sequences)])
        found = tied.tied_tokens(spec)
        assert spec.tokens is not None
        numbers = dict(zip(spec.tokens.types, found.increments)) if isinstance(found, tied.Found) else found
        yield numbers == {"key": 0, "open": 1, "close": -1}, f"{sequences} nested sequences of {length}: {numbers}"


def token_scopes(sequences: Sequence[Sequence[str]]) -> Histories:
    """Nested sequences with a query at every position that has something to read."""
    types = ("key", "open", "close")
    typed = []
    for tokens in sequences:
        events: list[tuple[int | None, int | tuple[int, ...] | None]] = []
        for at, keys in enumerate(scopes(tokens)):
            events.append((types.index(tokens[at]), at if tokens[at] == "key" else None))
            events += [(None, tuple(sorted(keys)))] * bool(keys)
        typed.append(tuple(events))
    return _with_tokens(types, typed, max(map(len, sequences)))


def random_tokens(rng: random.Random) -> Histories:
    """One to three short sequences over two types of keys and two other tokens."""
    typed = []
    for _ in range(rng.randint(1, 3)):
        events: list[tuple[int | None, int | tuple[int, ...] | None]] = [(rng.randint(0, 1), 0)]
        alive = [0]
        for key in range(1, rng.randint(3, 7)):
            chance = rng.random()
            if chance < 0.4:
                events.append((rng.randint(0, 1), key))
                alive.append(key)
            elif chance < 0.7:
                events.append((rng.randint(2, 3), None))
            else:
                alive = [k for k in alive if rng.random() < 0.7] or alive[-1:]
                events.append((rng.choice([None, 2, 3]), tuple(alive)))
        typed.append((*events, (None, tuple(alive))))
    return _with_tokens(("x", "y", "p", "q"), typed, 8)


def _with_tokens(types: tuple[str, ...], typed, keys: int) -> Histories:
    plain = tuple(tuple(event for _, event in row if event is not None) for row in typed)
    used = sorted({token for row in typed for token, _ in row if token is not None})
    typed = tuple(tuple((None if t is None else used.index(t), event) for t, event in row) for row in typed)
    tokens = Tokens(tuple(types[number] for number in used), typed)
    return Histories(tuple(f"k{key}" for key in range(keys)), plain, tokens=tokens)


def tied_decided(spec: Histories, levels: tied.Levels) -> bool:
    found = tied.tied_tokens(spec, levels)
    if isinstance(found, tied.Undecided):
        return False
    certificates = Certificates(spec)
    certificates.add_tied(found)
    accepted = all(verdict.accepted for verdict in exact.verify(certificates.document()))
    if isinstance(found, tied.Found):
        return accepted and increments_read(spec, found.increments, found.offsets)
    assert spec.tokens is not None
    types = range(len(spec.tokens.types))
    small = product((-2, -1, 0, 1), repeat=len(types))
    return accepted and not any(
        increments_read(spec, increments, dict.fromkeys(types, offset))
        for increments in small
        for offset in ((0,) if levels == "tied" else (-1, 0))
    )


def increments_read(spec: Histories, increments: Sequence[int], offsets: Mapping[int, int]) -> bool:
    """Every query by the definition, on the specification's own token sequences."""
    assert spec.tokens is not None
    for row in spec.tokens.rows:
        types = [token for token, _ in row if token is not None]
        field = walk(increments[token] for token in types)
        levels = [height + offsets.get(token, 0) for height, token in zip(field, types)]
        query, place = -1, {}
        for token, event in row:
            query += token is not None
            if isinstance(event, int):
                place[event] = query
            elif event is not None:
                found = penalties(levels, field, query)
                if {key for key, at in place.items() if found[at] == 0} != set(event):
                    return False
    return True


@claim(
    "family-decision",
    "all families over 3 keys with every choice of slots, all histories of few events, random families and sets of"
    " histories over 4 keys: the decision equals brute force over all orders of levels and all dips; every certificate"
    " accepted",
    "exact",
)
def family_decision(size: int) -> Iterator[Instance]:
    rng = random.Random(5)
    specs: list[KeySetSpec] = [*small_families(size), *small_histories(size - 1), *random_families(rng, 20 * size)]
    specs += [random_histories(rng) for _ in range(20 * size)]
    for spec in specs:
        yield free_decided(spec), spec.to_data()


def free_decided(spec: KeySetSpec) -> bool:
    found = free.family_decision(spec)
    return isinstance(found, free.Levels) == free_levels_possible(spec) and certified(spec, found)
