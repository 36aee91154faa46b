"""The reference: every option, from the programs themselves."""

import subprocess


def help_of(command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != 0 or not done.stdout.strip():
        raise SystemExit(f"{command}: exit code {done.returncode}: {done.stderr}")
    return done.stdout.rstrip()


def page(programs):
    """programs: {name: [command without --help]}."""
    helps = "\n\n".join(f"## {name}\n\n```text\n{help_of([*command, '--help'])}\n```" for name, command in programs.items())
    return f"# Reference\n\nWhat the programs' `--help` prints. [Variables](environment.md) has a page of its own.\n\n{helps}\n"
