"""The templates use what their variables have, and nothing else: no default hides a variable that is missing."""

from dataclasses import MISSING, dataclass, fields
from importlib import resources
from typing import ClassVar

import jinja2
import pytest
from jinja2 import meta, nodes

from tandem.render.v1.bls_variables import BlsVariables
from tandem.render.v1.llmapi import LlmApiVariables
from tandem.render.v1.stack import Variables, config

FOLDERS: list[type[Variables]] = [BlsVariables, LlmApiVariables]


def sources(folder: str) -> dict[str, str]:
    """The templates of a folder by their path in it."""
    loader = jinja2.PackageLoader("tandem.render.v1", folder)
    return {name: loader.get_source(jinja2.Environment(), name)[0] for name in loader.list_templates()}


def names(text: str) -> set[str]:
    """Names that a template expects from outside; `caller` is the block that a macro is called with."""
    parsed = jinja2.Environment().parse(text)
    imported = {each.target for each in parsed.find_all(nodes.Import)}
    return meta.find_undeclared_variables(parsed) - imported - {"caller"}


def test_every_folder_of_templates_has_its_variables() -> None:
    package = resources.files("tandem.render.v1")
    folders = {each.name for each in package.iterdir() if each.is_dir() and list(each.glob("**/*.j2"))}  # type: ignore[attr-defined]
    assert folders == {variables.folder for variables in FOLDERS}


@pytest.mark.parametrize("variables", FOLDERS)
def test_no_template_has_a_default(variables: type[Variables]) -> None:
    assert [name for name, text in sources(variables.folder).items() if "default(" in text] == []


@pytest.mark.parametrize("variables", FOLDERS)
def test_no_variable_has_a_default(variables: type[Variables]) -> None:
    assert [each.name for each in fields(variables) if each.default is not MISSING] == []


@pytest.mark.parametrize("variables", FOLDERS)
def test_each_variable_is_used_and_each_name_is_a_variable(variables: type[Variables]) -> None:
    used = set().union(*map(names, sources(variables.folder).values()))
    assert used == {each.name for each in fields(variables)}


def test_a_name_that_is_no_variable_is_an_error() -> None:
    @dataclass(frozen=True)
    class Few(Variables):
        folder: ClassVar[str] = "llmapi"
        streams: str
        llm_args_path: str

    with pytest.raises(jinja2.UndefinedError, match="'engine' is undefined"):
        config("tensorrt_llm_llmapi", Few("tensorrt_llm", "/etc/tandem/llm_args.yaml"))
