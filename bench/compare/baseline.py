"""Ratios (our time / a peer's) kept in a file: they survive a change of machine better than times do."""

import json
import os
import statistics

from programs import size_text

LEAST_NOISE = 0.05


def ratios_of(contests):
    """{"all_reduce, tcp, plain buffers, 2 ranks, 64 MiB / openmpi": {"median", "low", "high"} of the runs}."""
    ratios = {}
    for answers in contests:
        ours, *peers = answers.libraries
        for size in answers.sizes():
            for peer in peers:
                pairs = [(answers.best(run, ours, size), answers.best(run, peer, size))
                         for run in range(len(answers.runs))]
                runs = [mine["time_us"] / theirs["time_us"] for mine, theirs in pairs if mine and theirs]
                if runs:
                    ratios[f"{answers.question.text()}, {size_text(size)} / {peer}"] = {
                        "median": statistics.median(runs), "low": min(runs), "high": max(runs)}
    return ratios


def read(path):
    with open(path, encoding="utf-8") as file:
        return {entry["what"]: entry for entry in json.load(file)["ratios"]}


def write(path, ratios, machine):
    """Ratios that the file holds for other questions stay."""
    kept = read(path) if os.path.exists(path) else {}
    kept |= {what: {"what": what, **ratio} for what, ratio in ratios.items()}
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        json.dump({"machine": machine, "ratios": list(kept.values())}, file, indent=1)
        file.write("\n")
    os.replace(f"{path}.new", path)


def compare(now, before):
    """[(rose, text)] of ratios in both: above the file's median by more than the larger spread, and 5 % of it."""
    verdicts = []
    for what in now:
        if what not in before:
            continue
        old, new = before[what], now[what]
        noise = max(old["high"] - old["low"], new["high"] - new["low"], LEAST_NOISE * old["median"])
        rose = new["median"] > old["median"] + noise
        verdicts.append((rose, f"{'ROSE ' if rose else 'STAYS'} {what}: {new['median']:.3f}, was {old['median']:.3f}, "
                               f"noise {noise:.3f}"))
    return verdicts
