"""`fpa-lab check` and `fpa-lab verify`: answers, reasons, certificates, and bad specifications."""

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from lab.cli.keysets import verdicts

# Two sets that no order of levels can serve when dips stand only at the end.
CROSSED = ("--keys", 4, "--targets", "1,3; 2", "--dips", "at-end")


def test_what_fpa_realises_is_status_0(fpa_lab):
    answer = fpa_lab("check", "--keys", 4, "--targets", "1,3; 2")
    assert answer.status == 0
    assert "4 keys, 2 target sets, dips after each key." in answer.out
    assert "FPA, free levels" in answer.out
    assert "levels    1: " in answer.out
    assert "float64" in answer.out
    assert "bfloat16" in answer.out


def test_what_fpa_cannot_do_is_status_1_with_the_reason_in_words(fpa_lab):
    answer = fpa_lab("check", *CROSSED)
    assert answer.status == 1
    assert "{1, 3} kills 2 and spares 3; {2} kills 3 and spares 2" in answer.out
    assert answer.err == ""


def test_json_is_the_stable_answer_and_nothing_else(fpa_lab):
    document = json.loads(fpa_lab("check", "--keys", "a b c", "--targets", "a; b c", "--json").out)
    assert {"keys", "targets", "form", "dips", "heads", "certificates"} <= document.keys()
    assert (document["keys"], document["targets"], document["form"]) == (3, 2, "family")
    fpa = document["heads"]["fpa"]
    assert (fpa["query"], fpa["notion"], fpa["realisable"], fpa["dimension"]) == ("fixed", "uniform", True, 0)
    assert set(fpa["levels"]) == {"a", "b", "c"}
    assert all(fpa["numeric"][name]["max_tv"] < 0.01 for name in ("float64", "float32", "bfloat16"))
    refused = fpa_lab("check", *CROSSED, "--json")
    assert refused.status == 1
    assert json.loads(refused.out)["heads"]["fpa"]["witness"]["kind"] == "fpa-cycle"


def test_specifications_from_files_and_standard_input(fpa_lab, monkeypatch):
    Path("family.yaml").write_text("keys: [a, b, c]\ntargets: [[a, c], [b], [b]]\n")
    Path("history.json").write_text('{"histories": [[{"push": "a"}, {"push": "b"}, {"query": ["a"]}]]}')
    family = fpa_lab("check", "family.yaml")
    assert family.status == 0
    assert family.err == "fpa-lab: warning: targets: set 3: the same as set 2, kept once\n"
    assert "1 queries" in fpa_lab("check", "history.json").out
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a c\nb\n")))
    assert json.loads(fpa_lab("check", "-", "--json").out)["targets"] == 2


def test_a_long_answer_is_cut_for_people(fpa_lab):
    sets = ";".join(str(i) for i in range(1, 31))
    answer = fpa_lab("check", "--keys", 30, "--targets", sets)
    assert "(30 in all" in answer.out
    assert len(answer.out.splitlines()) < 60


def test_certificates_are_written_and_verified(fpa_lab):
    assert fpa_lab("check", "--keys", 4, "--targets", "1,3; 2", "--certificate", "answer.json").status == 0
    verified = fpa_lab("verify", "answer.json")
    assert verified.status == 0
    assert "accepted  fpa-levels (family-decision)" in verified.out
    assert json.loads(fpa_lab("verify", "answer.json", "--json").out)["accepted"] is True
    # A certificate of impossibility is just as true.
    assert fpa_lab("check", *CROSSED, "--certificate", "no.json").status == 1
    assert fpa_lab("verify", "no.json").status == 0


def test_a_certificate_that_was_tampered_with_is_rejected_with_status_1(fpa_lab):
    fpa_lab("check", "--keys", 4, "--targets", "1,3; 2", "--certificate", "answer.json")
    document = json.loads(Path("answer.json").read_text())
    levels = document["certificates"][0]["witness"]["levels"]
    levels["1"], levels["4"] = levels["4"], levels["1"]
    Path("answer.json").write_text(json.dumps(document))
    rejected = fpa_lab("verify", "answer.json")
    assert rejected.status == 1
    assert "REJECTED  fpa-levels" in rejected.out
    answer = json.loads(fpa_lab("verify", "answer.json", "--json").out)
    assert answer["accepted"] is False
    assert not answer["certificates"][0]["accepted"]


def test_verify_imports_neither_torch_nor_numpy(fpa_lab):
    fpa_lab("check", "--keys", 3, "--targets", "1,3; 2", "--certificate", "answer.json")
    script = (
        "import sys; from lab.cli import run; status = run(['verify', 'answer.json']); "
        "print(status, sorted({'torch', 'numpy', 'numba', 'scipy', 'pandas'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "0 []"


def test_baselines_give_one_verdict_per_query_and_notion():
    fixed = {"realisable": False, "ratio": "1/10", "separation": {"realisable": True, "dimension": 0}}
    free = {"separation": {"lower": 1, "upper": 2, "gates": "one for all drops"}, "uniform": {"lower": 2, "upper": 2}}
    assert [(query, notion) for query, notion, _ in verdicts({"fixed": fixed, "free": free})] == [
        ("fixed", "window 1/10"), ("fixed", "separation"), ("free", "separation, one gate"), ("free", "uniform"),
    ]  # fmt: skip


def test_baselines_are_answered_beside_fpa(fpa_lab):
    answer = fpa_lab("check", "--keys", 4, "--targets", "1; 1,2; 2,3; 1,2,3; 1,2,3,4").out
    rows = {tuple(line.split()[:3]): line.split()[-2:] for line in answer.splitlines() if line.startswith(" ")}
    assert rows["softmax", "fixed", "window"] == ["no", "none"]
    assert rows["FoX", "fixed", "window"] == ["no", "none"]
    assert rows["softmax", "free", "uniform"] == ["yes", "3"]
    assert "{1} reads 1 and not 2; {1, 2} reads 2 beside 1" in answer


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "expected a specification file"),
        (["--keys", "3"], "both --keys and --targets"),
        (["family.yaml", "--keys", "3"], "--keys: not used together with the specification family.yaml"),
        (["missing.yaml"], "missing.yaml: cannot be read: No such file or directory"),
        (["empty.yaml"], "empty.yaml: expected a specification, found an empty file"),
        (["unknown.yaml"], "unknown.yaml: line 2: targets: set 1: name 2: unknown key 'cc'; did you mean c?"),
        (["field.yaml"], "field.yaml: line 2: target: unknown field; did you mean targets?"),
        (["twice.yaml"], "twice.yaml: line 2: histories: "),
        (["--keys", "4", "--targets", "1,5"], "--targets: set 1: name 2: unknown key '5'"),
        (["--keys", "0", "--targets", "1"], "--keys: "),
        (["--keys", "-2", "--targets", "1"], "--"),
        (["family.yaml", "--dips", "at-ennd"], "did you mean at-end?"),
        (["family.yaml", "--certificate", "empty.yaml/x"], "empty.yaml/x: cannot be written"),
    ],
)
def test_bad_input_is_one_line(fpa_lab, arguments, said):
    Path("empty.yaml").touch()
    Path("family.yaml").write_text("keys: [a, b, c]\ntargets: [[a, c], [b]]\n")
    Path("unknown.yaml").write_text("keys: [a, b, c]\ntargets: [[a, cc]]\n")
    Path("field.yaml").write_text("keys: [a, b, c]\ntarget: [[a, c]]\n")
    Path("twice.yaml").write_text("histories:\n  - [{push: a}, {push: a}, {query: [a]}]\n")
    assert said in fpa_lab("check", *arguments).error_line


def test_unreadable_files(fpa_lab):
    """A folder and bytes that are no text: unreadable for root too."""
    Path("folder").mkdir()
    Path("binary.yaml").write_bytes(b"keys: 3\n\xff\xfe\n")
    assert "folder: cannot be read: Is a directory" in fpa_lab("check", "folder").error_line
    assert "binary.yaml: line 2: expected text in UTF-8" in fpa_lab("check", "binary.yaml").error_line


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "answer.json: cannot be read"),
        ("", "answer.json: "),
        ("{}", "answer.json: "),
        ('{"format": "other", "version": 1, "specification": null, "certificates": []}', "expected format"),
    ],
)
def test_files_that_are_no_certificates(fpa_lab, content, said):
    if content is not None:
        Path("answer.json").write_text(content)
    assert said in fpa_lab("verify", "answer.json").error_line
