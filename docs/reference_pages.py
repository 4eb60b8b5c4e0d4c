"""Write the pages of the reference that come from the program itself:  python
docs/reference_pages.py

docs/reference/commands/ has a page a command, made of the command's own help.
docs/reference/recipe.md is made of the dataclasses in `whatwhere.spec`. tests/docs/test_pages.py
fails where they are out of date.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import typer

from whatwhere.app import app
from whatwhere.commands.builder import Program, settings_rows
from whatwhere.spec import Recipe
from whatwhere.spec.checks import type_hints, union_members
from whatwhere.spec.docstrings import parse
from whatwhere.spec.toml import settable

REFERENCE = Path(__file__).parent / "reference"
MADE_BY = "<!-- made by docs/reference_pages.py -->\n"

COMMANDS = f"""\
# Commands

{MADE_BY}
`whatwhere COMMAND --help` prints the same text, `whatwhere COMMAND --help-settings` the settings.

- **Settings.** `--set NAME=VALUE` changes a setting. A setting has the same name in every command, in [recipes](../recipe.md) and in Python. Settings
  that are needed often are also options.
- **Output.** Results go to standard output, progress to standard error. `--json` prints the results for programs.
- **Errors.** An error that you can fix is one line on standard error, with exit status 2.
"""  # noqa: E501
RECIPE = f"""\
# Recipe keys

{MADE_BY}
A recipe is a TOML file with the settings that differ from the paper's (`whatwhere train --recipe my.toml`,
`ww.read_recipe`). `--set NAME=VALUE` and `ww.override` change single settings by the same names.

- **Layers** count from 1. `each` means all of them.
- **Choices** are tables with a `kind`: `step = {{ kind = "fixed", momentum = true }}`. If there is nothing else to set, the
  kind is enough: `step = "fixed"`. Without `kind`, the choice stays and only its fields change:
  `--set inference.step.per=batch`.
- **Lists** of tables, such as `[[learning]]` with one table for each layer, replace all layers. A run writes its complete
  recipe in this form.
- **An unknown key** raises an error that suggests the nearest setting.

```toml
seed = 1
[model.layers.2]
maps = 64
[learning.each]
epochs = 10
[learning.each.inference]
steps = 20
```

The values are those of `Recipe.paper()`. The column *from* has the section of the paper that gives a value; *ours* is a
value that the paper leaves open, and that we chose ([deviations](../explanation/mathematics.md#where-we-deviate-from-the-printed-paper)).
Values without a source belong to choices that this recipe does not make. Those of `each` layer are layer 2's; layer 1
has 16 maps, no `fan_in`, and is trained with λ = 2. Without phases (`plan`), inference is one joint phase from the top
layer (the paper's Section 6.3).
"""  # noqa: E501
OURS = "ours"
PAPER = {
    "model.channels": "6",
    "model.nonnegative": "2.6",
    "model.signed_filters": "2.6",
    "model.layers.each.maps": "6",
    "model.layers.each.filter_size": "6",
    "model.layers.each.pooling": "2.5",
    "model.layers.each.pool_size": "6",
    "model.layers.each.pool_stride": "6",
    "model.layers.each.pool_maps": "2.1",
    "model.layers.each.fan_in": "6",
    "model.input.kind": "6",
    "model.input.contrast": "6",
    "learning.each.epochs": "6",
    "learning.each.update": "Algorithm 1",
    "learning.each.cg_steps": "4",
    "learning.each.update_lower_filters": "4.1",
    "learning.each.update_lower_pooling": "4.1",
    "learning.each.inference.lam": "6",
    "learning.each.inference.steps": "6",
    "learning.each.inference.tolerance": "Algorithm 1",
    "learning.each.inference.step": "3.1",
    "learning.each.inference.penalty.alpha": "2.7",
    "learning.each.inference.step.per": "3.1",
    "learning.each.inference.step.momentum": "3.1",
    "learning.each.update.reset_at": "6",
    "inference.lam": "6",
    "inference.steps": "6",
    "inference.tolerance": "Algorithm 1",
    "inference.step": "3.1",
    "inference.penalty.alpha": "6.6",
    "inference.step.momentum": "3.1",
    "descriptor.layers": "6",
    "descriptor.patch": "6",
    "descriptor.raw": "6",
    "descriptor.where": "6",
}
"""The settings that the paper gives, by its sections."""


def command_pages() -> dict[Path, str]:
    """A page for every command, and an overview of them."""
    commands = dict(every_command(typer.main.get_command(app), "whatwhere"))
    folder = REFERENCE / "commands"
    written = {
        folder / f"{page_name(name)}.md": page(each, name) for name, each in commands.items()
    }
    overview = [COMMANDS]
    for title, members in Program.sections.items():
        overview += [f"## {title}\n", "| command | what it does |", "| --- | --- |"]
        overview += [
            f"| [`{name}`]({page_name(name)}.md) | {cell(first_sentence(each))} |"
            for member in members
            for name, each in commands.items()
            if name.split()[1] == member
        ]
        overview.append("")
    names = "\n".join(page_name(name) for name in commands)
    overview += [f"```{{toctree}}\n:hidden:\n\n{names}\n```", ""]
    return {folder / "index.md": "\n".join(overview), **written}


def every_command(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Find a command, or those in its group, with their full names, in alphabetical order."""
    if not hasattr(command, "commands"):
        yield name, command
        return
    for each, inner in sorted(command.commands.items()):
        if not inner.hidden:
            yield from every_command(inner, f"{name} {each}")


def page_name(name: str) -> str:
    """Name the page of a command: `whatwhere anomaly fit` has anomaly-fit."""
    return "-".join(name.split()[1:])


def first_sentence(command: Any) -> str:
    return " ".join(prose(command.help).partition("\n\n")[0].split())


def page(command: Any, name: str) -> str:
    """The page of a command."""
    return "\n".join([f"# {name}\n\n{MADE_BY}", *parts_of_page(command, name)])


def parts_of_page(command: Any, name: str) -> Iterator[str]:
    """Usage, help, options, settings and examples of a command."""
    usage = " ".join(
        [name, *(metavar(each) for each in command.params if is_argument(each)), "[OPTIONS]"]
    )
    yield f"```text\n{usage}\n```\n\n{prose(command.help)}\n"
    yield "| | | default |\n| --- | --- | --- |"
    for parameter in command.params:
        if not getattr(parameter, "hidden", False):
            yield row(parameter)
    yield ""
    yield from settings(command)
    if command.examples:
        yield "\n".join(["<!-- parsed, not run: examples -->", "```sh", *command.examples, "```"])
        yield ""


def settings(command: Any) -> Iterator[str]:
    """The table of the settings that have no option, and the names of those in a recipe."""
    others = [each for name, each in command.known.items() if name not in command.flags]
    in_recipe = [f"`{each.name}.…`" for each in others if each.nested]
    rows = list(settings_rows(each for each in others if not each.nested))
    if rows:
        yield "| setting (`--set`) | | default |\n| --- | --- | --- |"
    for spelled, text in rows:
        name, _, default = spelled.partition("=")
        yield f"| `{name}` | {cell(text)} | {f'`{default}`' if is_default(default) else ''} |"
    if rows:
        yield ""
    if in_recipe:
        names = ", ".join(in_recipe)
        yield f"`--set` also changes the settings of the [recipe](../recipe.md): {names}.\n"


def is_default(text: str) -> bool:
    """Whether the text is a value; otherwise it stands for one, as N does."""
    return text not in ("N", "NUMBER", "TEXT") and "|" not in text


def is_argument(parameter: Any) -> bool:
    return str(parameter.param_type_name) == "argument"


def metavar(parameter: Any) -> str:
    """What stands for the value: `IMAGES`, `[NAME]...`."""
    name = parameter.metavar or parameter.name.upper()
    several = "..." if parameter.nargs == -1 else ""
    return (
        f"{name}{several}"
        if parameter.required or not is_argument(parameter)
        else f"[{name}]{several}"
    )


def prose(text: str | None) -> str:
    """The help of a command as Markdown: a displayed list of lines stays as it is."""
    return re.sub(r"^\s*\x08$", "", inspect.cleandoc(text or ""), flags=re.MULTILINE).strip()


def row(parameter: Any) -> str:
    """One argument or option: its names, its help, its default."""
    spelled = "/".join([*parameter.opts, *parameter.secondary_opts])
    names = metavar(parameter) if is_argument(parameter) else spelled
    if not is_argument(parameter) and not parameter.is_flag:
        names += f" {metavar(parameter)}"
    default = parameter.default() if callable(parameter.default) else parameter.default
    shown = (
        "required"
        if parameter.required
        else ""
        if default in (None, False, "", [], ())
        else f"`{default}`"
    )
    text = re.sub(r"\s+", " ", getattr(parameter, "help", None) or "")
    return f"| `{cell(names)}` | {cell(text)} | {cell(shown)} |"


def cell(text: str) -> str:
    return text.replace("|", "\\|")


def recipe() -> str:
    """The page of all settings."""
    return "\n".join([RECIPE, *sections(Recipe.paper(), "")])


def sections(spec: Any, path: str, *, chosen: bool = True) -> Iterator[str]:
    """The table of a spec's own settings, then those of the specs inside it; of a choice, all that
    can be chosen.

    chosen  the recipe has this spec; otherwise it is an example of one that it could have
    """
    described, hints = parse(type(spec).__doc__), settable(type(spec))
    plain = {name: hint for name, hint in hints.items() if not holds_specs(hint)}
    if plain:
        name = f"[{path[:-1]}]" if path else "At the top"
        title = (
            f'{name} with kind = "{spec.kind}"'
            if "kind" in type_hints(type(spec)).keys() - hints
            else name
        )
        yield (
            f"## {title}\n\n{described.summary}\n\n| key | type | value | from | |\n| --- | --- |"
            " --- | --- | --- |"
        )
        for name, hint in plain.items():
            value, text = getattr(spec, name), described.entries.get(name, "")
            source = PAPER.get(f"{path}{name}", OURS) if chosen else ""
            facts = [f"`{path}{name}`", cell(kind(hint)), shown(value), source, cell(text)]
            yield f"| {' | '.join(facts)} |"
        yield ""
    for name, hint in hints.items():
        value = getattr(spec, name)
        if get_origin(hint) is tuple and holds_specs(hint):
            item = value[-1] if value else example(get_args(hint)[0])
            yield from sections(item, f"{path}{name}.each.", chosen=chosen and bool(value))
            continue
        for member in filter(is_dataclass, union_members(hint)):
            own = type(value) is member
            inner = value if own else example(member)
            yield from sections(inner, f"{path}{name}.", chosen=chosen and own)


def example(item: Any) -> Any:
    """A spec of this kind with the smallest numbers, where a recipe has none by default (a phase
    of inference)."""
    hints = type_hints(item)
    needed = [f.name for f in fields(item) if f.default is MISSING]
    return item(
        **{
            name: [example(get_args(hints[name])[0])] if holds_specs(hints[name]) else 1
            for name in needed
        }
    )


def holds_specs(hint: Any) -> bool:
    """A spec, or a list of them; a choice is a setting, too."""
    return is_dataclass(hint) or (get_origin(hint) is tuple and is_dataclass(get_args(hint)[0]))


def kind(hint: Any) -> str:
    """A type in words."""
    if get_origin(hint) is Literal:
        return ", ".join(f"`{value!r}`".replace("'", '"') for value in get_args(hint))
    if is_dataclass(hint):
        return f'`"{hint.kind}"`'
    if get_origin(hint) is tuple:
        of = kind(get_args(hint)[0])
        return f"list of {of}" if ... in get_args(hint) else f"pair of {of}s"
    options = [option for option in get_args(hint) if option is not type(None)]
    if options:
        return " or ".join(map(kind, options))
    return {"int": "integer", "float": "number", "bool": "true or false"}.get(
        hint.__name__, hint.__name__
    )


def shown(value: Any) -> str:
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if is_dataclass(value):
        return f'`"{value.kind}"`'
    if isinstance(value, tuple):
        return f"`{list(value)}`"
    return f"`{value!r}`".replace("'", '"')


def pages() -> dict[Path, str]:
    return {**command_pages(), REFERENCE / "recipe.md": recipe()}


if __name__ == "__main__":
    made = pages()
    for old in set((REFERENCE / "commands").glob("*.md")) - made.keys():
        old.unlink()
    for path, text in made.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        print(path)
