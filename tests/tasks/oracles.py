"""The definitions of the tasks, followed word by word on token names: slow, and sharing nothing with the generators."""

import re


def nested_scope_targets(words):
    """Per row the keys whose scope is still open; a scope is named by its open, and None is the outermost."""
    home, targets = {}, []
    for row, word in enumerate(words):
        scopes = open_scopes(words[: row + 1])
        if word == "key":
            home[row] = scopes[-1]
        targets.append({key for key, scope in home.items() if scope in scopes})
    return targets


def open_scopes(words):
    """Matches brackets from the right: an open with as many closes as opens after it, at most, is still open."""
    scopes = [None]
    for position, word in enumerate(words):
        if word == "open" and never_closed(words[position + 1 :]):
            scopes.append(position)
    return scopes


def never_closed(later):
    balance = 0
    for word in later:
        balance += {"open": 1, "close": -1}.get(word, 0)
        if balance < 0:
            return False
    return True


def leveled_dips_targets(words):
    """A key of level a is a target iff every later dip so far has depth b >= a."""
    kinds = [re.fullmatch(r"(key|dip)(\d+)", word).groups() for word in words]
    return [
        {
            key
            for key in range(row + 1)
            if kinds[key][0] == "key"
            and all(int(n) >= int(kinds[key][1]) for kind, n in kinds[key + 1 : row + 1] if kind == "dip")
        }
        for row in range(len(words))
    ]


def subset_drop_targets(words):
    """At the query, the keys that no drop follows; no other row is asked."""
    kept = {key for key, word in enumerate(words) if word == "key" and words[key + 1] == "keep"}
    return [kept if word == "query" else set() for word in words]


ORACLES = {
    "nested-scope": nested_scope_targets,
    "leveled-dips": leveled_dips_targets,
    "subset-drop": subset_drop_targets,
}
