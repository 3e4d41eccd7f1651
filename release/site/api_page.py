"""The names of `import partc`: signatures and docstrings, which griffe reads without running the code."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from release.errors import ReleaseError
from release.site.markdown import DEFINITIONS, code, described, fenced

API = "api"
BESIDE = {
    "Message": "api.ring.Message",
    "MessageRow": "planner.explain.summary.MessageRow",
    "Options": "api.ring.Options",
    "Progress": "pipeline.contract.Progress",
    "Prompt": "api.ring.Prompt",
    "Report": "verifier.report.Report",
    "StageRow": "planner.explain.summary.StageRow",
    "Stop": "api.ring.Stop",
}
"""What signatures name besides, and a user meets → where it is in partc."""
_TITLES = {
    "function": "Functions", "class": "Classes", "error": "Errors", "beside": "What is taken and given",
}  # fmt: skip
_WIDTH = 88
_INTRODUCTION = """\
# Python API

What `import partc` gives, from the docstrings of the code. [partc from Python](docs/python.md) has examples, and says
what holds between versions."""


def api_page(root: Path) -> str:
    """The page of all names in `partc.__all__`.

    Raises:
        ReleaseError: a docstring has a section of another kind than Args and Raises.
    """
    import griffe

    package: Any = griffe.load(
        "partc", search_paths=[root], docstring_parser="google", allow_inspection=False
    )
    named = {name: package[name].final_target for name in package.exports}
    beside = {name: package[path] for name, path in BESIDE.items()}
    parts = [DEFINITIONS, _INTRODUCTION]
    for kind, title in _TITLES.items():
        parts.append(f"## {title}")
        for name, found in {**named, **beside}.items():
            if (_kind(found) if name in named else "beside") == kind:
                parts += _section(name, found)
    return "\n\n".join(parts) + "\n"


def _kind(found: Any) -> str:
    if found.is_class and found.name.endswith("Error"):
        return "error"
    return "class" if found.is_class else "function"


def _section(name: str, found: Any) -> Iterator[str]:
    """A function, an alias of a type or a class under a title, with the members of the class."""
    yield f"### {name}"
    if found.is_attribute:
        yield fenced("python", f"{name} = {found.value}")
    elif found.is_function:
        yield fenced("python", _signature(f"def {name}", found, _returned(found)))
    else:
        yield fenced("python", _class(name, found))
    yield from _docstring(found)
    if found.is_class:
        if _is_made(found):
            yield from _docstring(found["__init__"])
        yield from _members(name, found)


def _is_made(found: Any) -> bool:
    """Whether a class says how a user makes one."""
    return "__init__" in found.members and found["__init__"].docstring is not None


def _class(name: str, found: Any) -> str:
    """The first line of a class; with its arguments where a user makes it, else with its fields."""
    bases = [str(base) for base in found.bases]
    head = f"class {name}" + (f"({', '.join(bases)})" if bases else "")
    if _is_made(found):
        return _signature(head, found["__init__"], "")
    if "dataclass" not in found.labels and "TypedDict" not in bases:
        return head
    fields = [
        f"    {key}: {one.annotation}"
        for key, one in found.members.items()
        if one.is_attribute and not key.startswith("_") and "property" not in one.labels
    ]
    return "\n".join([f"{head}:", *fields])


def _members(name: str, found: Any) -> Iterator[str]:
    """Attributes in a list, then each method."""
    public = [member for key, member in found.members.items() if not key.startswith("_") and member.docstring]
    for member in public:
        if member.is_attribute:
            kind = f": {member.annotation}" if member.annotation else ""
            yield described(code(member.name + kind), _markdown(member.docstring.value))
    for member in public:
        if member.is_function:
            yield f"#### {name}.{member.name}"
            forms = member.overloads or [member]
            word = "async def" if "async" in member.labels else "def"
            head = f"@classmethod\n{word}" if "classmethod" in member.labels else word
            lines = [_signature(f"{head} {member.name}", form, _returned(form)) for form in forms]
            yield fenced("python", "\n".join(lines))
            yield from _docstring(member)


def _docstring(found: Any) -> Iterator[str]:
    """Its text, then a list for each of its sections."""
    for section in found.docstring.parsed if found.docstring else ():
        kind = section.kind.value
        if kind == "text":
            yield _markdown(section.value)
        elif kind == "parameters":
            for one in section.value:
                yield described(code(one.name), _markdown(one.description))
        elif kind == "raises":
            yield "Raises:"
            for one in section.value:
                yield described(code(str(one.annotation)), _markdown(one.description))
        else:
            raise ReleaseError(
                f"{found.path}: no page shows the section {kind!r} of a docstring\n"
                "  hint: write it as text, or add it to release/site/api_page.py"
            )


def _markdown(text: str) -> str:
    """A docstring with links to the manuals that it names; blocks of code without a language are Python."""
    linked = re.sub(r"(?<![\w/`])docs/[\w-]+\.md", r"[\g<0>](\g<0>)", text)
    return re.sub(r"^```\n(.*?)^```$", r"```python\n\1```", linked, flags=re.MULTILINE | re.DOTALL)


def _returned(found: Any) -> str:
    return f" -> {found.returns}" if found.returns else ""


def _signature(head: str, found: Any, returned: str) -> str:
    """`def plan(model: PathLike) -> Plan`, a parameter a line where it is wide."""
    parameters = list(_parameters(found.parameters))
    line = f"{head}({', '.join(parameters)}){returned}"
    if len(line) <= _WIDTH:
        return line
    return "\n".join([f"{head}(", *(f"    {one}," for one in parameters), f"){returned}"])


def _parameters(given: Sequence[Any]) -> Iterator[str]:
    """Parameters as they are written; `self` is left out."""
    stars = {"variadic positional": "*", "variadic keyword": "**"}
    has_star = False
    for one in given:
        kind = one.kind.value
        if one.name in ("self", "cls"):
            continue
        if kind == "keyword-only" and not has_star:
            yield "*"
        has_star |= kind in ("keyword-only", "variadic positional")
        annotation = f": {one.annotation}" if one.annotation else ""
        equals = " = " if annotation else "="
        default = f"{equals}{one.default}" if one.default is not None and kind not in stars else ""
        yield f"{stars.get(kind, '')}{one.name}{annotation}{default}"
