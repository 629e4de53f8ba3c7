"""docs/clients.md names what the tests here run, and nothing else."""

import re

from conftest import HERE

PAGE = (HERE.parents[1] / "docs" / "clients.md").read_text(encoding="utf-8")
TEST = re.compile(r"\btest_\w+")


def written() -> set[str]:
    files = [file for file in HERE.glob("test_clients_*.py") if file.name != "test_clients_page.py"]
    return {name for file in files for name in re.findall(r"^def (test_\w+)", file.read_text(), re.MULTILINE)}


def test_every_section_names_a_test_that_exists_and_every_test_is_in_a_section():
    _, *sections = PAGE.split("\n## ")
    for section in sections:
        title, _, text = section.partition("\n")
        assert TEST.search(text.partition("Tests: ")[2]), f"{title} names no test"
    assert set(TEST.findall(PAGE)) == written()
