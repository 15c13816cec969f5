"""The trusted core: accepts or rejects certificates with integers, fractions and the standard library alone.

Read it in this order: `values`, `certificate` (the file format and the registry of checkers), `specification` (which
keys each query should read), `fpa` (first passage by its definition, and what forbids it), `tied` (the same for one
increment per token type); then for softmax and FoX heads `linear` and `queries` (what they see), `fixed` (one query
vector for all), `heads` (constructions), `dimensions` (lower bounds). Nothing here knows how a certificate was found.
`verify_file(path)` gives one Verdict per certificate.
"""

from proofs_check.exact import dimensions, fixed, fpa, heads, tied  # noqa: F401  (each registers its checkers)
from proofs_check.exact.certificate import CHECKERS, FORMAT, VERSION, Verdict, digest, verify, verify_file

__all__ = ["CHECKERS", "FORMAT", "VERSION", "Verdict", "digest", "verify", "verify_file"]
