"""The version is that of the project; everything else is in pyproject.toml."""
import pathlib
import re

from setuptools import setup

project = pathlib.Path(__file__).resolve().parent.parent.parent / "CMakeLists.txt"
setup(version=re.search(r"project\(cistern VERSION ([\d.]+)", project.read_text())[1])
