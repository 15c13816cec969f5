"""Writes certificates: what a decision found, as the JSON records that `proofs_check.exact` accepts or rejects.

Nothing is checked here; `fpa-lab verify` does that, with code that shares nothing with what made the certificate.
"""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

from lab.errors import InputError
from proofs_check.bounds.family_decision import Cycle, Levels
from proofs_check.bounds.fates import Dips, NoSlot, Revived, Step
from proofs_check.bounds.tied_tokens import Cases, Conflict, Farkas, Found, token_rows
from proofs_check.bounds.walk_is_a_stack import INCREMENT, Crossing, Heights
from proofs_check.exact import FORMAT, VERSION, digest
from proofs_check.exact.fpa import assumptions
from proofs_check.exact.tied import tied_assumptions
from proofs_check.keysets import Histories, KeySetSpec, collector_paused

Record = dict[str, Any]


class Certificates:
    """The certificates of one specification.

    >>> from proofs_check.keysets import from_options
    >>> certificates = Certificates(from_options(2, "1; 2", "at-end"))
    >>> certificates.document()["specification"]
    {'keys': ['1', '2'], 'targets': [['1'], ['2']], 'dips': ['2']}
    """

    def __init__(self, spec: KeySetSpec):
        self.spec = spec
        with collector_paused():
            self.data = spec.to_data()
            self.digest = digest(self.data)
        self.records: list[Record] = []

    def add(self, kind: str, claim: str, assumed: Record, witness: Record) -> Record:
        """Appends a certificate about the specification, unless the same is there already, and returns it."""
        record = {
            "kind": kind,
            "claim": claim,
            "assumptions": {**assumed, "specification": self.digest},
            "witness": witness,
        }
        if record not in self.records:
            self.records.append(record)
        return record

    def add_fpa(self, found: Levels | Cycle | Heights | Crossing | Revived | NoSlot) -> Record:
        """Appends the certificate of a decision about First Passage Attention and returns it."""
        keys = self.spec.keys
        witness: Record
        match found:
            case Levels():
                levels = dict(zip(keys, found.levels.tolist()))
                witness = {"levels": levels, "dips": self._dips(found.dips)}
                return self.add("fpa-levels", "family-decision", assumptions("free"), witness)
            case Cycle():
                witness = {"cycle": [self._step(step) for step in found.steps]}
                return self.add("fpa-cycle", "family-decision", assumptions("free"), witness)
            case Heights():
                witness = {"increment": INCREMENT, "dips": self._dips(found.dips)}
                return self.add("stack-heights", "walk-is-a-stack", assumptions("tied"), witness)
            case Crossing():
                return self.add("crossing-pair", "walk-is-a-stack", assumptions("tied"), self._step(found.step))
            case NoSlot():
                witness = {"row": found.row + 1, "dead": keys[found.key]}
                return self.add("no-slot", "family-decision", assumptions("any"), witness)
        witness = {"row": found.row + 1, "key": keys[found.key], "dead_at": found.dead_at, "alive_at": found.alive_at}
        return self.add("revived-key", "any-eviction", assumptions("any"), witness)

    def add_tied(self, found: Found | Conflict) -> Record:
        """Appends the certificate of increments per token type, or of why there are none, and returns it."""
        assert isinstance(self.spec, Histories)
        assert self.spec.tokens is not None
        types = self.spec.tokens.types
        if isinstance(found, Found):
            offsets = {types[number]: offset for number, offset in found.offsets.items()}
            witness: Record = {"increments": dict(zip(types, found.increments)), "offsets": offsets}
            return self.add("tied-increments", "tied-tokens", tied_assumptions(found.levels), witness)
        event = [row.event for row in token_rows(self.spec)]

        def reason(why: Farkas | Cases) -> Record:
            if isinstance(why, Cases):
                cases = [{"event": int(event[why.row][at]), "reason": reason(case)} for at, case in why.cases]
                return {"row": why.row + 1, "key": self.spec.keys[why.key], "cases": cases}
            return {
                "demands": [
                    {
                        "row": demand.row + 1,
                        "key": self.spec.keys[demand.key],
                        "event": int(event[demand.row][demand.position]),
                        "dies": demand.dies,
                        "times": times,
                    }
                    for demand, times in why.multipliers
                ]
            }

        return self.add("tied-conflict", "tied-tokens", tied_assumptions(found.levels), reason(found.reason))

    def _step(self, step: Step) -> Record:
        return {"row": step.row + 1, "alive": self.spec.keys[step.alive], "dead": self.spec.keys[step.dead]}

    @staticmethod
    def _dips(dips: Dips) -> list[list[list[int]]]:
        with collector_paused():
            pairs = [list(pair) for pair in zip(dips.after.tolist(), dips.value.tolist())]
            bounds = dips.start.tolist()
            return [pairs[low:high] for low, high in pairwise(bounds)]

    def document(self) -> Record:
        """The whole certificate file as plain data."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "specification": self.data,
            "certificates": self.records,
        }

    def write(self, file: str | Path) -> None:
        """Writes the certificate file. Raises `InputError` if it cannot be written."""
        try:
            with collector_paused():
                Path(file).write_text(json.dumps(self.document(), ensure_ascii=False) + "\n", encoding="utf-8")
        except OSError as error:
            raise InputError(f"{file}: cannot be written: {error.strerror or error}") from None
