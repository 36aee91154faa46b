"""The reference: variables from rondo/config.h, options from the programs themselves."""

import ast
import pathlib
import re
import subprocess

_TREE = pathlib.Path(__file__).parents[2]
_FIELD = re.compile(r"^  ([\w:<>]+) (\w+)(?:\s*=\s*([^;]+))?;\s*(?://\s*(.*))?$")


def _default(text):
    """A default as a user writes it: 64u << 20 is 67108864."""
    if text is None:
        return ""
    text = text.strip().replace("'", "")
    plain = re.sub(r"(?<=\d)u\b", "", text)
    if re.fullmatch(r"[-\d\s<*]+", plain):
        return str(eval(compile(ast.parse(plain, mode="eval"), "default", "eval")))  # numbers, <<, * and - alone
    return {"false": "0", "true": "1", "Algorithm::kAuto": "auto"}.get(text, text.strip('"'))


def variables():
    """[(name, default, meaning)] in the header's order."""
    text = (_TREE / "ring/include/rondo/config.h").read_text(encoding="utf-8")
    body = text[text.index("struct RONDO_EXPORT Config {"):text.index("  // settings:")]
    joined = re.sub(r"=\n\s+", "= ", body)  # a default on a line of its own
    out, above = [], ""
    for line in joined.split("\n"):
        if line.strip().startswith("//"):
            words = line.strip()[2:].strip()
            above = f"{above} {words}" if not words.startswith("---") else ""
            continue
        field = _FIELD.match(line)
        if field:
            found = re.match(r".*?(RONDO_[A-Z_]+)(?:=1)?:?\s*(.*)", f"{field[4] or ''} {above}".strip())
            if found:
                meaning = re.sub(r"\s+", " ", found[2]).strip().replace("(shared)", "*Shared*")
                out.append((found[1], _default(field[3]), meaning))
        above = ""
    names = set(re.findall(r'"(RONDO_[A-Z_]+)"', (_TREE / "ring/base/config.cc").read_text(encoding="utf-8")))
    missing = names ^ {name for name, _, _ in out}
    if missing:
        raise SystemExit(f"config.h and config.cc differ in {sorted(missing)}")
    return out


def help_of(command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != 0 or not done.stdout.strip():
        raise SystemExit(f"{command}: exit code {done.returncode}: {done.stderr}")
    return done.stdout.rstrip()


def page(programs):
    """programs: {name: [command without --help]}."""
    rows = "\n".join(f"| `{name}` | {f'`{default}`' if default else ''} | {meaning.replace('|', '&#124;')} |"
                     for name, default, meaning in variables())
    helps = "\n\n".join(f"## {name}\n\n```text\n{help_of([*command, '--help'])}\n```" for name, command in programs.items())
    return ("# Reference\n\nMade from the source. [Variables](environment.md) says more; *Shared* ones must be equal on all ranks.\n\n## Variables\n\n"
            f"| variable | default | meaning |\n|---|---|---|\n{rows}\n\n{helps}\n")
