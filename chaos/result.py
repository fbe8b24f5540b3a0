"""Writes the verdict down: result.json for programs and people, junit.xml for CI.

result.json is an interface, so its shape is kept (its keys are in README and in `chaos.checkers.judge.as_json`);
keys may be added. Both files are written to a temporary name first, so that a reader never sees half of one.
"""

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import orjson

from chaos.checkers import LaneVerdict, Result, Verdict
from chaos.checkers.judge import as_json

EXIT_CODES = {Verdict.VALID: 0, Verdict.INVALID: 1, Verdict.UNKNOWN: 2}


def write_result(result: Result, directory: Path) -> Path:
    """Write result.json and junit.xml into a run's directory; returns the path of the first. Raises OSError."""
    path = directory / "result.json"
    _write(path, orjson.dumps(as_json(result), option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS) + b"\n")
    _write(directory / "junit.xml", junit(result))
    return path


def junit(result: Result) -> bytes:
    """One suite a lane and one case a checker: invalid is a failure, unknown an error, not applicable skipped.

    The control never decides, and CI systems know no such thing: what it fails is told as skipped. A further suite
    holds the run's own verdict.
    """
    root = ElementTree.Element("testsuites", name=f"chaos {result.scenario} ({result.profile}, seed {result.seed})")
    suite = ElementTree.SubElement(root, "testsuite", name=result.scenario, time=f"{result.duration_s:.1f}")
    case = ElementTree.SubElement(suite, "testcase", classname=f"chaos.{result.scenario}", name="verdict")
    _tell(case, result.verdict, result.reasons)
    for lane in result.lanes.values():
        _lane_suite(root, result.scenario, lane)
    for each in root:
        each.set("tests", str(len(each)))
        for kind, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            each.set(kind, str(len(each.findall(f"testcase/{tag}"))))
    ElementTree.indent(root)
    return bytes(ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"


def _lane_suite(root: ElementTree.Element, scenario: str, lane: LaneVerdict) -> None:
    suite = ElementTree.SubElement(root, "testsuite", name=f"{scenario}.{lane.name}")
    for name, answer in lane.checkers.items():
        case = ElementTree.SubElement(suite, "testcase", classname=f"chaos.{scenario}.{lane.name}", name=name)
        told = [*answer.reasons, *(f"{figure} = {value}" for figure, value in answer.figures.items())]
        if lane.decides or answer.verdict is Verdict.VALID:
            _tell(case, answer.verdict, told)
        else:
            skipped = ElementTree.SubElement(case, "skipped", message=f"control, does not decide: {answer.verdict}")
            skipped.text = _text(told)


def _tell(case: ElementTree.Element, verdict: Verdict, told: list[str]) -> None:
    tag = {Verdict.INVALID: "failure", Verdict.UNKNOWN: "error", Verdict.NOT_APPLICABLE: "skipped"}.get(verdict)
    if tag is not None:
        kept = ElementTree.SubElement(case, tag, message=_text(told[:1]) or verdict.value)
        kept.text = _text(told)
    elif told:
        ElementTree.SubElement(case, "system-out").text = _text(told)


def _text(lines: list[str]) -> str:
    """XML 1.0 knows no control characters: what a message holds of them is dropped."""
    joined = "\n".join(lines)
    return "".join(char for char in joined if char >= " " or char in "\n\t")


def _write(path: Path, content: bytes) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_bytes(content)
    temporary.replace(path)
