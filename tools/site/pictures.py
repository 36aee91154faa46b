"""SVG of primitives, hosts and a training step. Ranks have the plan viewer's colors (tools/view/colors.js)."""

import html
import pathlib
import re

_COLORS = re.findall(r"#[0-9A-F]{6}", (pathlib.Path(__file__).parents[1] / "view" / "colors.js").read_text(encoding="utf-8"))[:8]
_INKS = ["#000", "#000", "#fff", "#000", "#fff", "#fff", "#000", "#000"]
_STYLE = ('<style>text{font:14px system-ui,sans-serif;fill:#555}.v{font-weight:600}.h{font-weight:600;fill:#333}'
          '@media(prefers-color-scheme:dark){text{fill:#bbb}.h{fill:#eee}}</style>')


def _svg(width, height, parts, words):
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img" '
            f'aria-label="{html.escape(words)}">{_STYLE}{"".join(parts)}</svg>\n')


def _text(x, y, words, anchor="start", kind=""):
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" class="{kind}">{html.escape(words)}</text>'


def _cell(x, y, value, owner, width=34):
    """owner: the rank that contributed the value; None: several did."""
    if owner is None:
        stripes = "".join(f'<rect x="{x + i * width / 4}" y="{y + 21}" width="{width / 4}" height="5" fill="{_COLORS[i]}"/>'
                          for i in range(4))
        return (f'<rect x="{x}" y="{y}" width="{width}" height="26" fill="#fff" stroke="#14213d" stroke-width="2"/>{stripes}'
                f'<text x="{x + width / 2}" y="{y + 16}" text-anchor="middle" class="v" style="fill:#000">{value}</text>')
    return (f'<rect x="{x}" y="{y}" width="{width}" height="26" fill="{_COLORS[owner]}" stroke="#555"/>'
            f'<text x="{x + width / 2}" y="{y + 18}" text-anchor="middle" class="v" style="fill:{_INKS[owner]}">{value}</text>')


def _owners(run):
    """The rank that alone had a value before; values of two ranks, or of none, are nobody's own."""
    had = {}
    for rank, values in enumerate(run["before"]):
        for value in values:
            had.setdefault(value, set()).add(rank)
    return {value: ranks.pop() for value, ranks in had.items() if len(ranks) == 1}


def primitive(run):
    """One primitive of primitives_job.py: what each rank held before, and after."""
    owners, left = _owners(run), 70
    wide = max(map(len, run["before"]), default=1) * 36
    right = left + wide + 70
    parts = [_text(left, 16, "before", kind="h"), _text(right, 16, "after", kind="h")]
    for rank, (before, after) in enumerate(zip(run["before"], run["after"])):
        y = 28 + rank * 38
        parts.append(_text(0, y + 18, f"rank {rank}"))
        for x, values in ((left, before), (right, after)):
            parts += [_cell(x + i * 36, y, value, owners.get(value)) for i, value in enumerate(values)]
            if not values:
                parts.append(_text(x, y + 18, "–"))
        parts.append(f'<path d="M{right - 50} {y + 13}h28m-7 -5l7 5l-7 5" fill="none" stroke="#888" stroke-width="2"/>')
    width = right + max(map(len, run["after"]), default=1) * 36 + 10
    return _svg(max(width, 240), 28 + 4 * 38, parts, f"{run['name']}: before and after on 4 ranks")


def hosts(count=2, local=2):
    parts = []
    for node in range(count):
        x = 10 + node * 270
        parts.append(f'<rect x="{x}" y="10" width="250" height="{50 + local * 50}" rx="12" fill="none" stroke="#888" stroke-width="2"/>')
        parts.append(_text(x + 14, 34, f"host {node} (node {node} of {count})", kind="h"))
        for local_rank in range(local):
            rank, y = node * local + local_rank, 48 + local_rank * 50
            parts.append(f'<rect x="{x + 14}" y="{y}" width="222" height="40" rx="8" fill="{_COLORS[rank]}"/>'
                         f'<text x="{x + 26}" y="{y + 25}" style="fill:{_INKS[rank]}" class="v">rank {rank}, local rank {local_rank}</text>')
    return _svg(20 + count * 270, 70 + local * 50, parts, f"{count} hosts with {local} ranks each: world size {count * local}")


def training(world=4):
    parts, step = [], 150
    for rank in range(world):
        x = 10 + rank * step
        for y, words in ((34, f"part {rank} of the data"), (104, f"model, copy {rank}"), (174, f"gradient {rank}")):
            fill = _COLORS[rank] if y != 104 else "none"
            ink = f' style="fill:{_INKS[rank]}"' if y != 104 else ""
            parts.append(f'<rect x="{x}" y="{y}" width="132" height="36" rx="8" fill="{fill}" stroke="#555"/>'
                         f'<text x="{x + 66}" y="{y + 23}" text-anchor="middle"{ink}>{words}</text>')
        for y in (72, 142, 212, 282, 352):
            parts.append(f'<path d="M{x + 66} {y}v28m-5 -7l5 7l5 -7" fill="none" stroke="#888" stroke-width="2"/>')
        parts.append(_text(x, 22, f"rank {rank}", kind="h"))
        for y, words in ((314, "average gradient"), (384, "updated copy")):
            parts.append(f'<rect x="{x}" y="{y}" width="132" height="36" rx="8" fill="none" stroke="#888" stroke-width="2"/>'
                         + _text(x + 66, y + 23, words, "middle"))
    parts.append(f'<rect x="10" y="244" width="{(world - 1) * step + 132}" height="36" rx="8" fill="#14213d" stroke="#888"/>'
                 f'<text x="{10 + ((world - 1) * step + 132) / 2}" y="267" text-anchor="middle" style="fill:#fff" class="v">'
                 'all_reduce, average: the same bits on every rank</text>')
    return _svg(20 + world * step, 440, parts, "Data-parallel training: each rank computes gradients of its part of the data, all_reduce "
                "averages them, every rank updates its copy alike")
