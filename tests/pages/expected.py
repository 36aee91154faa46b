"""What a page must show, worked out here a second time from the events of plan_dump --run."""

HUES = ["#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7", "#9A9A9A"]


def fill(rank):
    return HUES[rank] if rank < len(HUES) else f"url(#rank{rank})"


def first_step(run):
    return -1 if any(m["kind"] != "signal" and m["begin"] < 0 for m in run["moves"]) else 0


def held(run, depth):
    """{(rank, row, block): ranks} after all steps of up to `depth`, and those that pass through."""
    value = {(rank, row, block): v for rank, row, block, v in run["initial"]}
    passing = {}
    for event in run["events"]:
        if event["value"] < 0 or event["depth"] > depth:
            continue
        for rank, row, block in event["writes"]:
            value[rank, row, block] = event["value"]
        if event.get("passes") and event["until"] > depth:
            passing[event["rank"], 1 if "output" in run["rows"] else 0, event["block"]] = event["value"]
    value.update(passing)
    return {key: run["values"][v] for key, v in value.items()}, set(passing)


def heard(run, depth):
    ranks = {rank: [rank] for rank in range(run["world"])}
    for event in run["events"]:
        if "heard" in event and event["depth"] <= depth:
            ranks[event["rank"]] = event["heard"]
    return ranks


def promised(run):
    """{(rank, row, block): set of ranks} at the end, from the collective's definition alone."""
    n, root, name, row = run["world"], run["root"], run["collective"], 1 if "output" in run["rows"] else 0
    everyone, blocks = set(range(n)), range(run["blocks"])
    if name == "all_reduce":
        return {(r, row, b): everyone for r in range(n) for b in blocks}
    if name == "reduce":
        return {(root, row, b): everyone for b in blocks}
    if name == "reduce_scatter":
        return {(r, row, r): everyone for r in range(n)}
    if name == "all_gather":
        return {(r, row, b): {b} for r in range(n) for b in blocks}
    if name == "gather":
        return {(root, row, b): {b} for b in blocks}
    if name == "broadcast":
        return {(r, row, b): {root} for r in range(n) for b in blocks}
    if name == "scatter":
        return {(r, row, r): {root} for r in range(n)}
    if name == "all_to_all":
        return {(r, row, b): {b} for r in range(n) for b in blocks}
    return {}


def cell_text(run, cell):
    """The text of a cell of the table."""
    if "numbers" in cell:
        return " ".join(map(str, cell["numbers"])) or "empty"
    ranks = cell["ranks"]
    if run["world"] > 4 and run["reduces"] and cell["finished"]:
        return "all"
    return "+".join(map(str, ranks)) if run["world"] <= 4 or len(ranks) <= 3 else f"{len(ranks)}/{run['world']}"
