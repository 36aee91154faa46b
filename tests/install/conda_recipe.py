"""tools/conda/recipe.yaml is one that rattler-build takes, of this version and with the Python package's own needs."""

import re
import sys
import tomllib
from pathlib import Path

from rattler_build import VariantConfig
from rattler_build.stage0 import Stage0Recipe

TREE = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TREE / "tools/native"))
import units  # noqa: E402

variants = VariantConfig.from_yaml("c_stdlib: [sysroot]\nc_stdlib_version: ['2.28']\n")
(rendered,) = Stage0Recipe.from_file(TREE / "tools/conda/recipe.yaml").render(variants)
recipe = rendered.recipe
assert str(recipe.package.version) == units.version(), recipe.package.version
needs = str(recipe.requirements.to_dict())
project = tomllib.loads((TREE / "python/pyproject.toml").read_text())
for need in [*project["project"]["dependencies"], *project["build-system"]["requires"], "python" + project["project"]["requires-python"]]:
    name, version = re.fullmatch(r"([a-z]+)(>=.*)", need).groups()
    assert f"{name} {version}" in needs, f"{need} is not in {needs}"
print(recipe.package.name, recipe.package.version, "is a recipe")
